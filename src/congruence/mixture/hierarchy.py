"""Check the conditions of the hierarchy for one prior and decoder, and say what is identified."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from congruence.arrays import Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.formatting import count
from congruence.mixture._options import TOLERANCE
from congruence.mixture.canonical import CanonicalAxes, canonical_axes
from congruence.mixture.conditions import FAILS, HOLDS, NAMES, UNKNOWN, Condition, ConditionNumbers, judged
from congruence.mixture.fit import judge_data, judge_prior
from congruence.mixture.gmm import GaussianMixture, as_mixture
from congruence.mixture.hidden_states import HiddenStates, recover_hidden_states
from congruence.mixture.structure import MOST_LATENTS
from congruence.mixture.theorems import AFFINE, SCALED, Row, conclusions, missing, needed, table_rows
from congruence.result import Finding, conclude

DRAWS = 1000  # latents drawn from the prior where no codes are given
ESSENTIAL = (
    "on each connected component of the latents with a unique output, up to an affine map of its own (Remark 3.11)"
)
ORDER = "up to the order of variables and the names of states"
IDENTIFIED = "The prior is identified, at least up to an affine map."
UNKNOWN_NOISE = (
    "The distribution of the noise is unknown, or was learned with the model. Deconvolution needs a known one, so the "
    "theorems cover the model only if its noise is taken as given."
)
WITHOUT_F2 = (
    "Remark 3.12: without F2, two priors that no affine map carries onto each other can give the same data, as |x| "
    "does for components at −2, −1, 3 and at −2, 1, 3."
)


class AssumptionsNumbers(TypedDict):
    """What one prior and decoder satisfy, in JSON. `identified` is null where nothing is shown."""

    row: int
    identified: dict[str, str | None]
    conditions: list[ConditionNumbers]
    theorems: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    axes: dict[str, Any]
    hidden: dict[str, Any] | None
    data: ConditionNumbers | None
    noise: str
    refused: str


@dataclass(frozen=True, eq=False)
class Assumptions:
    """The conditions that a prior and a decoder satisfy, and the theorems that follow."""

    conditions: Mapping[str, Condition]  # P1, P2, P3, F1, F2, F3, F4
    axes: CanonicalAxes
    hidden: HiddenStates | None  # None where P2 gives no axes
    data: Condition | None = None  # whether the whole model fits the data
    noise: str = "none"  # "none", "known" or "unknown"
    refused: str = ""  # why nothing can be identified at all, or ""

    @property
    def premises(self) -> dict[str, Finding]:
        """The findings on P1 to P3 and F1 to F4."""
        return {name: self.conditions[name].finding for name in NAMES}

    @cached_property
    def theorems(self) -> tuple[Finding, ...]:
        """Every statement of the hierarchy, as a conclusion from the conditions."""
        return conclusions(self.premises)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rows of Table 1."""
        return table_rows(self.premises)

    @property
    def row(self) -> int:
        """The strongest row of Table 1 that holds by the theorems, 1 to 4; 0 for none.

        Row 2 includes the decoder; rows 3 and 4 are about the prior alone.
        """
        return max((row.number for row in self.rows if row.prior.status == HOLDS), default=0)

    @property
    def identified(self) -> dict[str, str | None]:
        """Up to what the prior "P(Z)", the decoder "f" and the hidden states "P(U)" are identified; None: not shown."""
        holds = {theorem.name: theorem.status == HOLDS for theorem in self.theorems}
        prior = SCALED if holds["Theorem 3.10 (b)"] else AFFINE if holds["Theorem 3.10 (a)"] else None
        decoder = AFFINE if holds["Theorem 3.10 (d)"] else None
        if decoder is None and prior is not None and self.conditions["F3"].status == HOLDS:
            decoder = ESSENTIAL
        return {"P(Z)": prior, "f": decoder, "P(U)": ORDER if holds["Theorem 3.10 (c)"] else None}

    @property
    def finding(self) -> Finding:
        """Whether the prior is identified; Remark 3.6 refutes it."""
        if self.refused:
            return Finding("identified", IDENTIFIED, FAILS, evidence=self.refused)
        premises = [self.premises[name] for name in ("P1", "F1", "F2")]
        if self.noise == "unknown":
            premises.append(Finding("noise", "The distribution of the noise is known.", "unknown"))
        return conclude("identified", IDENTIFIED, premises)

    @property
    def verdict(self) -> str:
        """What is identified, in one or two sentences."""
        if self.refused:
            return self.refused
        found = self.identified
        if found["P(Z)"] is None:
            return f"Nothing is shown to be identified. Not shown to hold: {', '.join(missing(self.finding))}."
        parts = [f"{name} is identified {text}" for name, text in found.items() if text is not None]
        sampled = any(t.status == HOLDS and t.basis == "supported" for t in self.theorems)
        said = "; ".join(parts)
        said += ", as far as the sample shows" if sampled else ""
        said += ", if the distribution of the noise is known" if self.noise == "unknown" else ""
        misfit = self.data is not None and self.data.status == FAILS
        return said + (". However, the model does not fit the data." if misfit else ".")

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the conclusions."""
        notes = [UNKNOWN_NOISE] if self.noise == "unknown" else []
        if self.conditions["F3"].status == HOLDS and self.conditions["F4"].status != HOLDS:
            notes.append(f"With F3 in place of F4, the decoder is identified {ESSENTIAL}.")
        if self.conditions["F2"].status == FAILS:
            notes.append(WITHOUT_F2)
        return tuple(notes)

    def to_dict(self) -> AssumptionsNumbers:
        """Conditions, theorems, rows of Table 1 and hidden states as plain data."""
        return {
            "row": self.row,
            "identified": self.identified,
            "conditions": [self.conditions[name].to_dict() for name in NAMES],
            "theorems": [
                {
                    "name": theorem.name,
                    "status": theorem.status,
                    "basis": theorem.basis,
                    "asks": needed(theorem),
                    "missing": missing(theorem),
                    "identifies": theorem.claim,
                }
                for theorem in self.theorems
            ],
            "rows": [row.to_dict() for row in self.rows],
            "axes": {"matrix": self.axes.axes.tolist(), "frame": self.axes.frame},
            "hidden": None if self.hidden is None else self.hidden.to_dict(),
            "data": None if self.data is None else self.data.to_dict(),
            "noise": self.noise,
            "refused": self.refused,
        }


def check_assumptions(
    prior: Any,
    decoder: Any = None,
    codes: Any = None,
    data: Any = None,
    *,
    noise: float | str = 0.0,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Assumptions:
    """Check P1 to P3 and F1 to F4 of one model; the parameters are those of `congruence.mixture.examine_mixture`."""
    mixture = as_mixture(prior)
    deviation = _checked_noise(noise)
    kind = "unknown" if noise == "unknown" else "known" if deviation else "none"
    axes = canonical_axes(mixture, tolerance=tolerance, seed=seed)
    hidden = _hidden(mixture, axes)
    conditions = {
        "P1": judge_prior(mixture, codes, seed=seed),
        "P2": axes.condition,
        "P3": _judge_hidden(mixture, hidden),
    }
    refused, fit = "", None
    if decoder is None:
        conditions |= {name: judged(name, UNKNOWN, "No decoder was given.") for name in NAMES[3:]}
    else:
        from congruence.mixture.injectivity import decoder_conditions

        points = mixture.sample(DRAWS, seed=seed) if codes is None else _rows(codes)
        found = decoder_conditions(decoder, points, seed=seed)
        conditions |= {condition.name: condition for condition in found.conditions}
        if found.latents > found.outputs:
            refused = (
                f"There are {found.latents} latents and only {found.outputs} outputs: latents can change without "
                "changing any output, so nothing is identified (Remark 3.6)."
            )
        if data is not None:
            fit = judge_data(_draw_outputs(mixture, decoder, deviation, seed), data, seed=seed)
    return Assumptions(conditions, axes, hidden, fit, kind, refused)


def _rows(codes: Any) -> Float:
    return to_numpy(as_matrix(codes, "codes")).astype(np.float64, copy=False)


def _checked_noise(noise: float | str) -> float:
    if noise == "unknown":
        return 0.0
    if isinstance(noise, str | bool) or noise is None or not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"noise must be a standard deviation of at least 0 or 'unknown', not {noise!r}")
    return float(noise)


def _hidden(mixture: GaussianMixture, axes: CanonicalAxes) -> HiddenStates | None:
    """The hidden variables along the canonical axes, where P2 gives such axes."""
    if mixture.dimension > MOST_LATENTS or (axes.condition.status != HOLDS and mixture.components > 1):
        return None
    return recover_hidden_states(mixture.pushed(axes.axes.T))


def _judge_hidden(mixture: GaussianMixture, hidden: HiddenStates | None) -> Condition:
    if hidden is None:
        why = (
            f"{mixture.dimension} latents are too many to count components over all subsets (at most {MOST_LATENTS})."
            if mixture.dimension > MOST_LATENTS
            else "P2 gives no axes along which components could be counted."
        )
        return judged("P3", UNKNOWN, why)
    if hidden.status != HOLDS or hidden.structure is None:
        return judged("P3", UNKNOWN, f"No reliable structure of hidden variables was found: {hidden.reason}.")
    found = f"{count(hidden.k or 0, 'hidden variable')} ({hidden.structure})"
    said = f"Counting components over all sets of latents gives {found}; {hidden.reason}."
    return judged("P3", HOLDS, said, exact=hidden.confidence == 1, numbers=hidden.to_dict())


def _draw_outputs(mixture: GaussianMixture, decoder: Any, noise: float, seed: int) -> Float:
    """Draws of the whole model: latents from the prior, decoded, with noise."""
    import copy

    from congruence.decoder.probed import import_torch

    torch = import_torch()
    module = copy.deepcopy(decoder).double().cpu().eval()
    with torch.no_grad():
        out = to_numpy(module(torch.as_tensor(mixture.sample(DRAWS, seed=seed))).flatten(1))
    return np.asarray(out + noise * np.random.default_rng(seed).normal(size=out.shape))
