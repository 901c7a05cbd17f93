"""`examine_decoder`: how much a decoder stretches lengths, and what Theorem 1 (Nelson et al. 2026) guarantees."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import numpy as np

from congruence.arrays import to_numpy
from congruence.checks import check_number
from congruence.decoder._latents import read_latents
from congruence.decoder._options import DecoderOptions
from congruence.decoder._premises import MeasuredDecoder, judge_premises
from congruence.decoder.bounds import Bound, UpTo, theorem1
from congruence.decoder.certificates import StretchCertificate, certify_layers
from congruence.decoder.prepared_decoder import prepare_decoder
from congruence.decoder.stretch import BiLipschitz, bilipschitz
from congruence.errors import InputError
from congruence.formatting import count, percent
from congruence.maps._diameter import diameter
from congruence.maps.groups import fit_map
from congruence.options import takes
from congruence.progress import Progress
from congruence.result import Finding, Result, Status, as_data, conclude

_ROUNDING = 1e-6  # of the diameter
_LARGEST_LAYER = 2**21  # entries of a layer whose singular values are computed unasked: about a second
_GROUPS: Mapping[UpTo, str] = {"rigid": "a rigid motion", "similarity": "a rigid motion and a scale"}


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
    """The numbers of an examination; both bounds are null where all latents are the same point.

    `theorem1` bounds the distance from a rigid motion, `theorem1_similarity` that from a similarity. `other` is the
    stretch of the other decoder, certificates are null where the layers do not allow one.
    """

    stretch: StretchNumbers
    other: StretchNumbers | None
    certificate: dict[str, Any] | None
    other_certificate: dict[str, Any] | None
    diameter: float
    diameter_from: Literal["latents", "given"]
    theorem1: dict[str, Any] | None
    theorem1_similarity: dict[str, Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class DecoderExamination(Result):
    """The answer to "what does the decoder guarantee?".

    The findings are the conclusions of Theorem 1 up to a rigid motion and up to a similarity, with the same premises.
    ``examination["convex"]`` is a premise by name.
    """

    stretch: BiLipschitz
    bounds: Mapping[UpTo, Bound]  # up to a rigid motion and up to a similarity; empty if all latents are one point
    theorem1: Finding  # the conclusion up to a rigid motion
    theorem1_similarity: Finding  # the conclusion up to a similarity
    diameter: float
    diameter_from: Literal["latents", "given"]
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    other: BiLipschitz | None = None  # of the other training's decoder
    certificate: StretchCertificate | None = None  # of the decoder, if its layers allow it
    other_certificate: StretchCertificate | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The conclusions of Theorem 1; their premises are in the findings."""
        return self.theorem1, self.theorem1_similarity

    @property
    def premises(self) -> tuple[Finding, ...]:
        """The premises of Theorem 1."""
        return self.theorem1.premises

    @property
    def bound(self) -> Bound | None:
        """The bound up to a rigid motion; None where all latents are the same point."""
        return self.bounds.get("rigid")

    @property
    def best(self) -> Finding:
        """The conclusion up to a rigid motion, unless its bound is vacuous or refuted and that of the other is not."""
        pairs = zip(self.findings, self.bounds.values(), strict=False)  # no bounds if all latents are one point
        usable = (one for one, bound in pairs if not bound.vacuous and one.status != "fails")
        return next(usable, self.theorem1)

    @property
    def status(self) -> Status:
        """The status of the strongest conclusion that is not vacuous."""
        return self.best.status

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict: the measurement, and its consequence."""
        measured = {"The decoder": self.stretch, "The other decoder": self.other}
        known = {what: one for what, one in measured.items() if one is not None}
        lost = any(not np.isfinite(one.constant) for one in known.values())
        consequence = "Theorem 1 guarantees nothing there." if lost else self._consequence
        return (*(_measurement(one, what) for what, one in known.items()), consequence)

    @property
    def _consequence(self) -> str:
        if not self.bounds:
            return "All latents are the same point, so there is nothing to bound."
        best = self.best
        up_to: UpTo = "rigid" if best is self.theorem1 else "similarity"
        bound = self.bounds[up_to]
        share = f"{_GROUPS[up_to]}, up to {percent(bound.epsilon / bound.diameter)} of the diameter"
        if bound.vacuous:
            return "The bound of Theorem 1 is vacuous: it holds for any two sets of this size."
        if best.status == "fails":
            return f"The codes are not within the bound of Theorem 1, so a premise fails. {best.evidence}"
        if best.status == "holds":
            return f"{str(best.basis).capitalize()} by Theorem 1: both trainings differ by {share}."
        if best.basis == "premise fails":
            failing = next(one for one in best.premises if one.status == "fails")
            return f"Theorem 1 does not apply, since a premise fails: {failing.evidence}"
        trainings = "two trainings with such decoders" if self.other is None else "both trainings"
        unknown = ", ".join(one.name for one in best.premises if one.status != "holds")
        kind = "" if bound.certified else " (an estimate from sampled constants)"
        return f"If its open premises hold ({unknown}), Theorem 1 implies that {trainings} differ by {share}{kind}."

    def parts(self) -> dict[str, Finding]:
        """The conclusions and their premises by name."""
        return {finding.name: finding for finding in (*self.findings, *self.premises)}

    def numbers(self) -> DecoderNumbers:
        """Constants over all points, certificates, the diameter and the bounds."""
        return {
            "stretch": as_data(self.stretch),
            "other": as_data(self.other),
            "certificate": as_data(self.certificate),
            "other_certificate": as_data(self.other_certificate),
            "diameter": self.diameter,
            "diameter_from": self.diameter_from,
            "theorem1": as_data(self.bounds.get("rigid")),
            "theorem1_similarity": as_data(self.bounds.get("similarity")),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each point, in the order of the latents."""
        yield from self.stretch.table()


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
        Its findings are the conclusions of Theorem 1, whose status is never better than that of its premises. A sample
        can refute the premises about the support and the decoders, but cannot prove them. Constants are certified
        where the layers allow it and the bound is then not vacuous; otherwise they are sampled, which supports them.

    References
    ----------
    Nelson et al. 2026, Theorem 1.
    """
    progress = progress or (lambda what, done, total: None)
    size = None
    if options.diameter not in (None, "auto"):
        try:
            size = check_number("diameter", float(options.diameter), 0, open_low=True)
        except (TypeError, ValueError) as error:
            raise InputError(f"diameter must be 'auto' or a number above 0; got {options.diameter!r}") from error
    if (options.other is None) != (options.other_latents is None):
        raise InputError("other and other_latents must be set together: a decoder and its latents of the same inputs")
    z = read_latents(latents, options, options.other_latents, "other_latents")
    first = _measure(decoder, z.values, options, progress)
    second = None if options.other is None else _measure(options.other, z.second, options, progress)
    progress("comparing distances", 0, 1)
    rows = diameter(first.prepared.z)
    if size is not None and size < rows.low * (1 - _ROUNDING):
        raise InputError(f"diameter must be at least that of the rows, {rows.low:.7g}; got {size!r}")
    measured = rows.high if size is None else size
    bounds, certified = _bound(first, second, measured, options.constant) if measured != 0 else ({}, True)
    premises = judge_premises(first, second, certified, options.convex)
    notes = [*z.notes, *first.stretch.notes]
    if second is not None:
        notes += [f"Other decoder: {note}" for note in second.stretch.notes]
    if first.certificate is not None and not certified:
        constant = first.certificate.constant
        notes.append(f"The layers certify a constant of {constant:.4g}, whose bound is vacuous; sampled ones are used.")
    return DecoderExamination(
        stretch=first.stretch,
        bounds=bounds,
        theorem1=_conclude("rigid", bounds, premises, first, second),
        theorem1_similarity=_conclude("similarity", bounds, premises, first, second),
        diameter=measured,
        diameter_from="latents" if size is None else "given",
        notes=tuple(notes),
        settings={
            **z.settings,
            "points": first.stretch.n,
            "method": first.stretch.method,
            "diameter": "of the rows" if size is None else size,
            "convex": "declared" if options.convex else "tested on the rows",
            "constant": options.constant,
            "seed": options.seed,
            "device": str(first.prepared.z.device),
        }
        | ({"directions": options.directions} if first.stretch.method == "directions" else {}),
        other=None if second is None else second.stretch,
        certificate=first.certificate,
        other_certificate=None if second is None else second.certificate,
    )


def _measure(decoder: Any, z: Any, options: DecoderOptions, progress: Progress) -> MeasuredDecoder:
    """Measure the stretch of a decoder at its latents, and certify it if its layers allow that."""
    chosen = {name: getattr(options, name) for name in ("method", "directions", "chunk", "device", "seed")}
    stretch = bilipschitz(decoder, z, **chosen, progress=progress)
    prepared = prepare_decoder(decoder, z, options.device)
    certificate = None
    with contextlib.suppress(InputError):
        certificate = certify_layers(decoder, prepared.latent_shape, largest=_LARGEST_LAYER)
    return MeasuredDecoder(prepared, stretch, certificate, options.seed)


def _bound(
    first: MeasuredDecoder, second: MeasuredDecoder | None, diameter: float, constant: float | None
) -> tuple[dict[UpTo, Bound], bool]:
    """The bounds of Theorem 1 by group, and whether they use certificates.

    Certificates are used where there are any, unless their bounds are vacuous and those of sampled constants, which are
    only estimates, are not.
    """

    def apply(a: Any, b: Any) -> dict[UpTo, Bound]:
        return {group: theorem1(a, diameter, constant=constant, other=b, up_to=group) for group in _GROUPS}

    sampled = apply(first.stretch, None if second is None else second.stretch)
    if first.certificate is None and (second is None or second.certificate is None):
        return sampled, False
    certified = apply(first.best, None if second is None else second.best)
    vacuous = [all(bound.vacuous for bound in some.values()) for some in (certified, sampled)]
    return (sampled, False) if vacuous == [True, False] else (certified, True)


def _conclude(
    up_to: UpTo,
    bounds: Mapping[UpTo, Bound],
    premises: tuple[Finding, ...],
    first: MeasuredDecoder,
    second: MeasuredDecoder | None,
) -> Finding:
    """The conclusion of Theorem 1; its number is the bound as a share of the diameter, its null the trivial bound.

    A vacuous bound leaves it unknown. With both codes it is refuted if the best map of the group leaves more than the
    bound: the root mean square of the least-squares map is at most the largest distance that any map leaves.
    """
    name = "theorem1" if up_to == "rigid" else "theorem1_similarity"
    trainings = "Two trainings with such decoders" if second is None else "Both trainings"
    claim = f"{trainings} differ by {_GROUPS[up_to]}, up to the bound."
    if not bounds:
        return conclude(name, claim, premises, evidence="All latents are the same point.")
    bound = bounds[up_to]
    share, trivial = bound.epsilon / bound.diameter, bound.trivial / bound.diameter
    against = "no better than" if bound.vacuous else "against"
    evidence = f"The bound is {percent(share)} of the diameter, {against} the trivial bound of {percent(trivial)}."
    more: dict[str, Any] = {"number": share, "null": trivial}
    concluded = conclude(name, claim, premises, **more)
    if second is not None:
        here, there = (to_numpy(one.prepared.z).astype(np.float64) for one in (first, second))
        apart = np.linalg.norm(fit_map(there, here, up_to)(there) - here, axis=1) / bound.diameter
        rms = float(np.sqrt(np.square(apart).mean()))
        evidence += (
            f" The least-squares map of these codes leaves {percent(rms)} (root mean square), "
            f"{percent(float(apart.max()))} at most."
        )
        if rms > share + _ROUNDING:
            return Finding(name, claim, "fails", evidence=evidence, premises=premises, **more)
    if bound.vacuous and concluded.status == "holds":
        concluded = replace(concluded, status="unknown", basis="not refuted")
    return replace(concluded, evidence=evidence)


def _measurement(b: BiLipschitz, what: str) -> str:
    if not np.isfinite(b.constant):
        return f"{what} loses a direction at {int(np.isinf(b.constants).sum())} of {b.n} points."
    low, high = f"{b.s_min.min():.4g}", f"{b.s_max.max():.4g}"
    by = f"{low} to {high}" if low != high else f"{low} in every direction"
    return f"{what} multiplies short lengths by {by} at {count(b.n, 'point')}."
