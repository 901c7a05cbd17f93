"""A decoder as a whole: how much it stretches, what Theorem 1 makes of that, and which premises can be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Float, to_numpy
from congruence.decoder.bounds import Bound, theorem1
from congruence.decoder.probed import Probed, import_torch, probe
from congruence.decoder.stretch import BiLipschitz, bilipschitz
from congruence.errors import InputError
from congruence.maps._diameter import Diameter, diameter
from congruence.result import json_text

LOOKED_AT = 1000  # rows whose pairs are looked at
PAIRS = 2000  # of rows whose midpoint is looked at
FAR = 2.0  # times the gap that all but 1 % of the rows have: a midpoint so far from every row lies in a hole
FEW = 0.05  # share of midpoints in holes that may be chance
AGREE, DISAGREE = 0.01, 0.05  # of the outputs' diameter: all rows are within the first, or many beyond the second
TOUCHING = 1e-6  # of the typical stretch: two rows that are apart and decoded to the same


@dataclass(frozen=True)
class Premise:
    """One premise of Theorem 1: what the sample says of it. "unknown" means that nothing speaks against it."""

    name: str
    status: str  # "holds", "fails" or "unknown"
    evidence: str


@dataclass(frozen=True, eq=False)
class Examination:
    """What `examine` found of a decoder at given latents."""

    stretch: BiLipschitz
    bound: Bound | None  # None where all latents are the same point
    premises: tuple[Premise, ...]
    diameter: float
    diameter_from: str  # "latents" or "given"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """One sentence: how near the decoder is to an isometry, and whether Theorem 1 says anything."""
        b = self.stretch
        if not np.isfinite(b.constant):
            lost = int(np.isinf(b.constants).sum())
            return f"The decoder loses a direction at {lost} of {b.n} points, so that Theorem 1 promises nothing."
        said = f"The decoder stretches short lengths by {b.s_min.min():.4g} to {b.s_max.max():.4g} at {b.n} points"
        if self.bound is None:
            return f"{said}; all latents are the same point, so there is nothing to bound."
        if self.bound.vacuous:
            return f"{said}; the bound of Theorem 1 is vacuous there."
        share = 100 * self.bound.epsilon / self.bound.diameter
        return f"{said}; by Theorem 1 two such trainings are a rigid motion apart, up to {share:.3g} % of the diameter."

    def to_dict(self) -> dict[str, Any]:
        """All numbers but those of single points, as in the JSON contract."""
        return {
            "verdict": self.verdict,
            "stretch": self.stretch.to_dict(),
            "diameter": self.diameter,
            "diameter_from": self.diameter_from,
            "theorem1": None if self.bound is None else self.bound.to_dict(),
            "premises": [asdict(premise) for premise in self.premises],
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """The same as text."""
        return json_text(self.to_dict())


def examine(
    decoder: Any,
    z: Any,
    *,
    diameter: float | None = None,
    constant: float | None = None,
    method: str = "auto",
    directions: int = 10,
    chunk: int | None = None,
    device: str = "auto",
    seed: int = 0,
    other: tuple[Any, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Examination:
    """Measure a decoder at latents z, (n, d), put the result into Theorem 1, and look at its premises.

    Parameters
    ----------
    decoder, z, method, directions, chunk, device, seed
        As in `bilipschitz`.
    diameter : float, optional
        Of the support of the latents; that of the rows of z unless given.
    constant : float, optional
        Your own c_D, as in `theorem1`.
    other : (decoder, latents), optional
        Another training and its latents of the same inputs, row by row: do their outputs agree?
    settings : mapping, optional
        What to write beside the result.
    """
    found = bilipschitz(decoder, z, method=method, directions=directions, chunk=chunk, device=device, seed=seed)
    probed = probe(decoder, z, device)
    size = _diameter_of(probed).high if diameter is None else diameter
    bound = theorem1(found, size, constant=constant) if size != 0 or diameter is not None else None
    premises = (
        _convex(to_numpy(probed.z).astype(np.float64), seed),
        _injective(probed, found, seed),
        _agreeing(probed, None if other is None else probe(*other, device), seed),
    )
    return Examination(found, bound, premises, size, "latents" if diameter is None else "given", settings or {})


def _diameter_of(probed: Probed) -> Diameter:
    return diameter(probed.z)


def _convex(z: Float, seed: int) -> Premise:
    """Whether midpoints of rows lie where rows are: holes in the sample speak against a convex support."""
    name = "the latents fill a convex set"
    from scipy.spatial import cKDTree

    if len(z) < 10:
        return Premise(name, "unknown", f"{len(z)} rows are too few to tell.")
    rng = np.random.default_rng(seed)
    tree = cKDTree(z)
    some = z[rng.permutation(len(z))[:LOOKED_AT]]
    gaps = tree.query(some, k=2)[0][:, 1]
    pairs = rng.integers(0, len(z), size=(PAIRS, 2))
    away = tree.query(z[pairs].mean(1))[0]
    limit = FAR * float(np.quantile(gaps, 0.99))
    share = float((away > limit).mean())
    text = (
        f"Midpoints of two rows are {np.median(away):.3g} from the nearest row in the median (95 % within "
        f"{np.quantile(away, 0.95):.3g}), rows {np.median(gaps):.3g} from each other; {100 * share:.1f} % of midpoints "
        "lie in holes."
    )
    return Premise(name, "fails" if share > FEW else "unknown", text)


def _injective(probed: Probed, found: BiLipschitz, seed: int) -> Premise:
    """Whether rows that are apart stay apart: the least stretch between any two of some rows."""
    name = "the decoder is injective"
    if np.isinf(found.constants).any():
        return Premise(name, "unknown", "It loses a direction at some points, so that it need not be.")
    torch = import_torch()
    z, out = _decoded(probed, seed)
    apart, decoded = (torch.pdist(values).numpy() for values in (z, out))
    if not (apart > 0).any():
        return Premise(name, "unknown", "No two rows are apart.")
    ratio = decoded[apart > 0] / apart[apart > 0]
    least, typical = float(ratio.min()), float(np.median(ratio))
    text = f"Of {len(ratio)} pairs of rows, distances are multiplied by {least:.3g} to {ratio.max():.3g}."
    return Premise(name, "fails" if least <= TOUCHING * typical else "unknown", text)


def _agreeing(probed: Probed, other: Probed | None, seed: int) -> Premise:
    """Whether two trainings give the same outputs for the same inputs, over the diameter of the outputs."""
    name = "the reconstructions of both trainings agree"
    if other is None:
        return Premise(name, "unknown", "Only one decoder was looked at.")
    if len(other.z) != len(probed.z) or other.outputs != probed.outputs:
        raise InputError(
            f"the other decoder must have the same rows and outputs, but it has {len(other.z)} rows and "
            f"{other.outputs} outputs, not {len(probed.z)} and {probed.outputs}"
        )
    here, there = (_decoded(one, seed)[1] for one in (probed, other))
    apart = (here - there).norm(dim=1).numpy()
    size = float(import_torch().pdist(here).max()) if len(here) > 1 else 0.0
    if size == 0:
        return Premise(name, "unknown", "All outputs are the same.")
    worst, most = float(apart.max() / size), float(np.quantile(apart, 0.95) / size)
    text = (
        f"Of {len(apart)} rows, 95 % have outputs that differ by at most {100 * most:.3g} % of their diameter, "
        f"all by at most {100 * worst:.3g} %."
    )
    return Premise(name, "holds" if worst <= AGREE else "fails" if most > DISAGREE else "unknown", text)


def _decoded(probed: Probed, seed: int) -> tuple[Any, Any]:
    """Some rows of latents and their outputs, flattened, in float64 on the CPU; the same rows for the same seed."""
    torch = import_torch()
    order = np.random.default_rng(seed).permutation(len(probed.z))[:LOOKED_AT]
    z = probed.z[torch.as_tensor(np.sort(order), device=probed.z.device)]
    with torch.no_grad():
        out = torch.cat([probed.decode(part.reshape(len(part), *probed.latent_shape)) for part in z.split(256)])
    return z.double().cpu(), out.flatten(1).double().cpu()
