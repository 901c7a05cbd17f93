"""`examine_decoder`: how much a decoder stretches lengths, and what Theorem 1 (Nelson et al. 2026) guarantees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.checks import check_number
from congruence.decoder._latents import read_latents
from congruence.decoder._options import DecoderOptions
from congruence.decoder.bounds import Bound, theorem1
from congruence.decoder.prepared_decoder import PreparedDecoder, import_torch, prepare_decoder
from congruence.decoder.stretch import BiLipschitz, bilipschitz
from congruence.errors import InputError
from congruence.maps._diameter import diameter
from congruence.options import takes
from congruence.progress import Progress
from congruence.result import Finding, Result, Status, conclude

if TYPE_CHECKING:
    from congruence.document import Document

_CLAIM = "Two trainings with this bi-Lipschitz constant differ by a rigid motion, up to the bound."
_SAMPLE = 1000  # rows whose pairwise distances are compared
_PAIRS = 2000  # of rows whose midpoint is compared with the sample
_FAR = 2.0  # times the 99 % quantile of the gaps between neighbours: midpoints farther from every row lie in a hole
_FEW = 0.05  # share of midpoints that may lie in holes by chance
_AGREE = 0.01  # of the outputs' diameter: outputs agree if no row differs by more
_DISAGREE = 0.05  # of the outputs' diameter: outputs disagree if 5 % of the rows differ by more
_TOUCHING = 1e-6  # relative to the typical stretch: two distinct rows have the same output


class StretchNumbers(TypedDict):
    """The bi-Lipschitz constants over all points; those of single points are in the table."""

    n: int
    dimension: int
    outputs: int
    method: Literal["exact", "lanczos", "directions"]
    certified: bool
    constant: float
    mean: float
    quantiles: dict[str, float]
    s_min: float
    s_max: float
    isometry_defect: float
    condition: float
    scale: float
    scale_free: float


class DecoderNumbers(TypedDict):
    """The numbers of an examination; `theorem1` is null where all latents are the same point."""

    stretch: StretchNumbers
    diameter: float
    diameter_from: Literal["latents", "given"]
    theorem1: dict[str, Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class DecoderExamination(Result):
    """The answer to "what does the decoder guarantee?".

    The one finding is the conclusion of Theorem 1, with its premises. ``examination["convex"]`` is a premise by name.
    """

    stretch: BiLipschitz
    bound: Bound | None  # None where all latents are the same point
    theorem1: Finding  # the conclusion
    diameter: float
    diameter_from: Literal["latents", "given"]
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The conclusion of Theorem 1; its premises are in the finding."""
        return (self.theorem1,)

    @property
    def premises(self) -> tuple[Finding, ...]:
        """The premises of Theorem 1."""
        return self.theorem1.premises

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict: the measurement, and its consequence."""
        b = self.stretch
        if not np.isfinite(b.constant):
            lost = int(np.isinf(b.constants).sum())
            return (f"The decoder loses a direction at {lost} of {b.n} points.", "Theorem 1 guarantees nothing there.")
        low, high = b.s_min.min(), b.s_max.max()
        return (f"The decoder multiplies short lengths by {low:.4g} to {high:.4g} at {b.n} points.", self._consequence)

    @property
    def _consequence(self) -> str:
        if self.bound is None:
            return "All latents are the same point, so there is nothing to bound."
        if self.bound.vacuous:
            return "The bound of Theorem 1 is vacuous: it holds for any two sets of this size."
        share = 100 * self.bound.epsilon / self.bound.diameter
        return (
            "If its premises hold, Theorem 1 implies that two trainings differ by a rigid motion, up to "
            f"{share:.3g} % of the diameter."
        )

    @property
    def verdict(self) -> str:
        """How much the decoder stretches, and what Theorem 1 implies."""
        return " ".join(self.headlines)

    def parts(self) -> dict[str, Finding]:
        """The conclusion and its premises by name."""
        return {finding.name: finding for finding in (self.theorem1, *self.premises)}

    def numbers(self) -> DecoderNumbers:
        """Constants over all points, the diameter and the bounds."""
        return {
            "stretch": self.stretch.to_dict(),  # type: ignore[typeddict-item]
            "diameter": self.diameter,
            "diameter_from": self.diameter_from,
            "theorem1": None if self.bound is None else self.bound.to_dict(),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each point, in the order of the latents."""
        yield from self.stretch.table()

    def document(self) -> Document:
        """Constants, their distribution, the bounds of Theorem 1 and its premises."""
        from congruence.decoder._document import describe

        return describe(self)


@takes(DecoderOptions)
def examine_decoder(
    decoder: Any, latents: Any, *, options: DecoderOptions, progress: Progress | None = None
) -> DecoderExamination:
    """Measure how much a decoder stretches lengths at latents, and apply Theorem 1.

    Parameters
    ----------
    decoder : torch module or function
        Maps latents (rows, ...) to outputs (rows, ...) of any shape. A module must be in evaluation mode. It is not
        changed.
    latents : array, tensor, frame, table or path
        The points, (n, d) or (n, ...).
    progress : callable, optional
        Called as progress(what, done, total) while working.

    Returns
    -------
    DecoderExamination
        Its finding is the conclusion of Theorem 1, whose status is never better than that of its premises. A sample
        can refute the premises about the support and the decoder, but cannot prove them.

    References
    ----------
    Nelson et al. 2026, Theorem 1.
    """
    progress = progress or (lambda what, done, total: None)
    size = None if options.diameter in (None, "auto") else _as_diameter(options.diameter)
    if (options.other is None) != (options.other_latents is None):
        raise InputError("other and other_latents must be set together: a decoder and its latents of the same inputs")
    z = read_latents(latents, options, options.other_latents, "other_latents")
    stretch = bilipschitz(
        decoder,
        z.values,
        method=options.method,
        directions=options.directions,
        chunk=options.chunk,
        device=options.device,
        seed=options.seed,
        progress=progress,
    )
    progress("comparing distances", 0, 1)
    prepared = prepare_decoder(decoder, z.values, options.device)
    measured = diameter(prepared.z).high if size is None else size
    bound = theorem1(stretch, measured, constant=options.constant) if measured != 0 else None
    other = None if options.other is None else prepare_decoder(options.other, z.second, options.device)
    premises = _judge_premises(prepared, stretch, other, options.seed)
    return DecoderExamination(
        stretch=stretch,
        bound=bound,
        theorem1=_conclusion(bound, premises),
        diameter=measured,
        diameter_from="latents" if size is None else "given",
        notes=(*z.notes, *stretch.notes),
        settings={
            **z.settings,
            "points": stretch.n,
            "method": stretch.method,
            "diameter": "of the rows" if size is None else size,
            "constant": options.constant,
            "seed": options.seed,
            "device": str(prepared.z.device),
        }
        | ({"directions": options.directions} if stretch.method == "directions" else {}),
    )


def _as_diameter(value: Any) -> float:
    try:
        return check_number("diameter", float(value), 0, open_low=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"diameter must be 'auto' or a number above 0; got {value!r}") from error


def _conclusion(bound: Bound | None, premises: tuple[Finding, ...]) -> Finding:
    """The conclusion of Theorem 1; its number is the bound as a share of the diameter, its null the trivial bound."""
    if bound is None:
        return conclude("theorem1", _CLAIM, premises, evidence="All latents are the same point.")
    share, trivial = bound.epsilon / bound.diameter, bound.trivial / bound.diameter
    against = "no better than" if bound.vacuous else "against"
    evidence = (
        f"The bound is {100 * share:.3g} % of the diameter, {against} the trivial bound of {100 * trivial:.3g} %."
    )
    return conclude("theorem1", _CLAIM, premises, evidence=evidence, number=share, null=trivial)


def _judge_premises(
    prepared: PreparedDecoder, stretch: BiLipschitz, other: PreparedDecoder | None, seed: int
) -> tuple[Finding, ...]:
    """The premises of Theorem 1, as far as a sample of latents can support or refute them."""
    return (
        _judge_stretch(stretch),
        _judge_convexity(to_numpy(prepared.z).astype(np.float64), seed),
        _judge_injectivity(prepared, stretch, seed),
        _judge_agreement(prepared, other, seed),
    )


def _judge_stretch(stretch: BiLipschitz) -> Finding:
    """Whether the local bi-Lipschitz constant is finite at every point."""
    claim = "The decoder has a finite bi-Lipschitz constant."
    lost = int(np.isinf(stretch.constants).sum())
    if lost:
        evidence = f"The Jacobian loses a direction at {lost} of {stretch.n} points."
        return Finding("bi_lipschitz", claim, "fails", evidence=evidence)
    evidence = f"The largest of {stretch.n} points is {stretch.constant:.4g}, a lower estimate of the supremum."
    return Finding("bi_lipschitz", claim, "holds", evidence=evidence, number=stretch.constant)


def _judge_convexity(z: Float, seed: int) -> Finding:
    """Whether the midpoints of pairs of rows are close to other rows: holes in the sample refute a convex support."""
    from scipy.spatial import cKDTree

    name, claim = "convex", "The latents fill a convex set."
    if len(z) < 10:
        return Finding(name, claim, "unknown", evidence=f"{len(z)} rows are too few to judge.")
    rng = np.random.default_rng(seed)
    tree = cKDTree(z)
    some = z[rng.permutation(len(z))[:_SAMPLE]]
    gaps = tree.query(some, k=2)[0][:, 1]
    pairs = rng.integers(0, len(z), size=(_PAIRS, 2))
    distances = tree.query(z[pairs].mean(1))[0]
    limit = _FAR * float(np.quantile(gaps, 0.99))
    share = float((distances > limit).mean())
    evidence = (
        f"{100 * share:.1f} % of the midpoints of two rows lie in holes. Their median distance to the nearest row is "
        f"{np.median(distances):.3g} (95 % within {np.quantile(distances, 0.95):.3g}); that between neighbouring "
        f"rows is {np.median(gaps):.3g}."
    )
    return Finding(name, claim, "fails" if share > _FEW else "unknown", evidence=evidence, number=share)


def _judge_injectivity(prepared: PreparedDecoder, stretch: BiLipschitz, seed: int) -> Finding:
    """Whether distinct rows have distinct outputs: the least ratio of distances over pairs of rows."""
    name, claim = "injective", "The decoder is injective."
    if np.isinf(stretch.constants).any():
        return Finding(name, claim, "unknown", evidence="It loses a direction at some points.")
    torch = import_torch()
    z, out = _decoded(prepared, seed)
    apart, decoded = (torch.pdist(values).numpy() for values in (z, out))
    if not (apart > 0).any():
        return Finding(name, claim, "unknown", evidence="All rows are the same point.")
    ratio = decoded[apart > 0] / apart[apart > 0]
    least, typical = float(ratio.min()), float(np.median(ratio))
    evidence = f"Distances of {len(ratio)} pairs of rows are multiplied by {least:.3g} to {ratio.max():.3g}."
    return Finding(name, claim, "fails" if least <= _TOUCHING * typical else "unknown", evidence=evidence, number=least)


def _judge_agreement(prepared: PreparedDecoder, other: PreparedDecoder | None, seed: int) -> Finding:
    """Whether two trainings have the same outputs for the same inputs, relative to the diameter of the outputs."""
    name, claim = "agreement", "The reconstructions of both trainings agree."
    if other is None:
        return Finding(name, claim, "unknown", evidence="There is no second decoder to compare with.")
    if len(other.z) != len(prepared.z) or other.outputs != prepared.outputs:
        raise InputError(
            f"other must have {len(prepared.z)} rows and {prepared.outputs} outputs, like decoder; got {len(other.z)} "
            f"and {other.outputs}"
        )
    here, there = (_decoded(one, seed)[1] for one in (prepared, other))
    apart = (here - there).norm(dim=1).numpy()
    size = float(import_torch().pdist(here).max()) if len(here) > 1 else 0.0
    if size == 0:
        return Finding(name, claim, "unknown", evidence="All outputs are the same.")
    worst, most = float(apart.max() / size), float(np.quantile(apart, 0.95) / size)
    evidence = (
        f"The outputs of 95 % of {len(apart)} rows differ by at most {100 * most:.3g} % of their diameter, those of "
        f"all rows by at most {100 * worst:.3g} %."
    )
    status: Status = "holds" if worst <= _AGREE else "fails" if most > _DISAGREE else "unknown"
    return Finding(name, claim, status, evidence=evidence, number=worst)


def _decoded(prepared: PreparedDecoder, seed: int) -> tuple[Any, Any]:
    """A sample of latents and their outputs, flattened, in float64 on the CPU; the same rows for the same seed."""
    torch = import_torch()
    order = np.random.default_rng(seed).permutation(len(prepared.z))[:_SAMPLE]
    z = prepared.z[torch.as_tensor(np.sort(order), device=prepared.z.device)]
    with torch.no_grad():
        out = torch.cat([prepared.decode(part.reshape(len(part), *prepared.latent_shape)) for part in z.split(256)])
    return z.double().cpu(), out.flatten(1).double().cpu()
