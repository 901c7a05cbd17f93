"""`assumptions`: what a prior and a decoder satisfy of the conditions of the hierarchy, and what is identified."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Float, as_matrix, to_numpy
from congruence.errors import InputError
from congruence.mixture.canonical import TIED, CanonicalAxes, canonical_axes
from congruence.mixture.fit import judge_data, judge_prior
from congruence.mixture.gmm import GaussianMixture, as_mixture
from congruence.mixture.hidden_states import HiddenStates, recover_hidden_states
from congruence.mixture.structure import MOST_LATENTS
from congruence.mixture.theorems import AFFINE, APPLIES, SCALED, Row, Theorem, rows, theorems
from congruence.mixture.verdicts import CERTIFIED, FAILS, HOLDS, NOTHING, SUPPORTED, UNKNOWN, Condition
from congruence.result import json_text

LOOKED_AT = 1000  # latents drawn from the prior where no codes are given
NAMES = ("P1", "P2", "P3", "F1", "F2", "F3", "F4")
FAMILY = (
    "Remark 2.1: the paper says that other exponential-family mixtures do as well where their density is analytic and "
    "affine maps stay within the family. Only Gaussian mixtures are looked at here; nothing is claimed for others."
)
KNOWN = (
    "Noise of a known law that is added to f(Z) changes nothing: the law of f(Z) follows from P(X) by deconvolution."
)
NO_NOISE = (
    "No noise was said to be added; were it added with a known law, the law of f(Z) would follow by deconvolution."
)
LEARNED = (
    "The noise was said to be unknown (or learned with the model). Deconvolution asks for a known law, so that the "
    "theorems cover the model only where its noise is taken as given."
)
ESSENTIAL = (
    "on each connected component of the latents that are told apart, up to an affine map of its own (Remark 3.11)"
)


@dataclass(frozen=True, eq=False)
class Assumptions:
    """What was found of a prior and a decoder, and the theorems that follow."""

    conditions: Mapping[str, Condition]  # P1, P2, P3, F1, F2, F3, F4
    theorems: tuple[Theorem, ...]
    rows: tuple[Row, ...]  # of Table 1
    axes: CanonicalAxes
    hidden: HiddenStates | None  # None where P2 gives no axes to look along
    data: Condition | None  # whether the whole model fits the data
    noise: str  # "none", "known" or "unknown"
    refused: str  # why nothing can be identified at all, or ""
    notes: tuple[str, ...]

    @property
    def row(self) -> int:
        """The strongest row of Table 1 that applies by the theorems, from 1 to 4; 0 for none.

        The second row asks for the decoder, the third and fourth for the prior alone.
        """
        lit = [row.number for row in self.rows if row.prior == APPLIES]
        return max(lit, default=0)

    @property
    def identified(self) -> dict[str, str]:
        """Of the prior "P(Z)", the decoder "f" and the hidden states "P(U)": up to what, or "not shown"."""
        by = {theorem.name: theorem.status == APPLIES for theorem in self.theorems}
        prior = SCALED if by["Theorem 3.10 (b)"] else AFFINE if by["Theorem 3.10 (a)"] else ""
        decoder = f"up to {AFFINE}" if by["Theorem 3.10 (d)"] else ""
        if not decoder and prior and self.conditions["F3"].status == HOLDS:
            decoder = ESSENTIAL
        hidden = "up to order of variables and names of states" if by["Theorem 3.10 (c)"] else ""
        shown = {"P(Z)": f"up to {prior}" if prior else "", "f": decoder, "P(U)": hidden}
        return {name: text or "not shown" for name, text in shown.items()}

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.refused:
            return self.refused
        found = self.identified
        if found["P(Z)"] == "not shown":
            open_ = [name for name in ("P1", "F1", "F2") if self.conditions[name].status != HOLDS]
            return f"Nothing is shown to be identified, for want of {', '.join(open_)}."
        parts = [f"{name} is identified {text}" for name, text in found.items() if text != "not shown"]
        weak = any(t.status == APPLIES and t.basis == SUPPORTED for t in self.theorems)
        said = "; ".join(parts) + (", as far as the sample shows" if weak else "")
        said += ", if the law of the noise is known" if self.noise == "unknown" else ""
        misfit = self.data is not None and self.data.status == FAILS
        return said + (". But the model does not fit the data, whose law this is about." if misfit else ".")

    def to_dict(self) -> dict[str, Any]:
        """All fields, as in the JSON contract."""
        return {
            "verdict": self.verdict,
            "row": self.row,
            "identified": self.identified,
            "conditions": [self.conditions[name].to_dict() for name in NAMES],
            "theorems": [theorem.to_dict() for theorem in self.theorems],
            "rows": [row.to_dict() for row in self.rows],
            "axes": {"matrix": self.axes.axes.tolist(), "frame": self.axes.frame},
            "hidden": None if self.hidden is None else self.hidden.to_dict(),
            "data": None if self.data is None else self.data.to_dict(),
            "noise": self.noise,
            "refused": self.refused,
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """The same as text."""
        return json_text(self.to_dict())

    def __str__(self) -> str:
        lines = [str(self.conditions[name]) for name in NAMES]
        lines += [] if self.data is None else [str(self.data)]
        lines += [str(theorem) for theorem in self.theorems]
        return "\n".join([*lines, self.verdict])


def assumptions(
    prior: Any,
    decoder: Any = None,
    codes: Any = None,
    data: Any = None,
    *,
    noise: float | str = 0.0,
    tolerance: float = TIED,
    seed: int = 0,
) -> Assumptions:
    """Check P1 to P3 and F1 to F4 of a model, and say which theorem follows.

    Parameters
    ----------
    prior : GaussianMixture, fitted scikit-learn mixture, or model with `mixture_prior()`
    decoder : torch module, optional
        From m latents to n outputs; without it the conditions on it are unknown.
    codes : (rows, m), optional
        Latents of data, to compare with the prior, and where to look at the decoder; else draws from the prior are
        looked at.
    data : (rows, n), optional
        To compare with draws of the whole model.
    noise : float or "unknown"
        Standard deviation of the known Gaussian noise on outputs, or that it is not known.
    tolerance : float
        Of P2: correlation within components that counts as none.
    seed : int

    Returns
    -------
    Assumptions
        Every condition with a status ("holds", "fails", "ambiguous", "unknown") and its evidence. A theorem applies
        only where all it asks for holds.

    References
    ----------
    Kivva et al. 2022.
    """
    mixture = as_mixture(prior)
    quiet = _checked_noise(noise)
    kind = "unknown" if noise == "unknown" else "known" if quiet else "none"
    axes = canonical_axes(mixture, tolerance=tolerance, seed=seed)
    hidden = _hidden(mixture, axes)
    looked = mixture.sample(LOOKED_AT, seed=seed) if codes is None else _rows(codes)
    found = {
        "P1": judge_prior(mixture, codes, seed=seed),
        "P2": axes.condition,
        "P3": _judge_hidden(mixture, hidden),
    }
    refused, fit = "", None
    if decoder is None:
        found |= {name: Condition(name, UNKNOWN, "No decoder was given.", NOTHING) for name in NAMES[3:]}
    else:
        from congruence.mixture.injectivity import decoder_conditions

        judged = decoder_conditions(decoder, looked, seed=seed)
        found |= {condition.name: condition for condition in judged.conditions}
        if judged.latents > judged.outputs:
            refused = (
                f"There are {judged.latents} latents and only {judged.outputs} outputs: a change of what the decoder "
                "drops changes nothing that is seen, so that nothing is identified (Remark 3.6)."
            )
        if data is not None:
            fit = judge_data(_drawn(mixture, decoder, quiet, seed), data, seed=seed)
    return Assumptions(found, theorems(found), rows(found), axes, hidden, fit, kind, refused, _notes(kind, found))


def _rows(codes: Any) -> Float:
    return to_numpy(as_matrix(codes, "codes")).astype(np.float64, copy=False)


def _checked_noise(noise: float | str) -> float:
    if noise == "unknown":
        return 0.0
    if isinstance(noise, str | bool) or noise is None or not (math.isfinite(noise) and noise >= 0):
        raise InputError(f"noise must be a standard deviation of at least 0 or 'unknown', not {noise!r}")
    return float(noise)


def _hidden(mixture: GaussianMixture, axes: CanonicalAxes) -> HiddenStates | None:
    """The hidden variables along the canonical axes, where there are such."""
    if mixture.dimension > MOST_LATENTS or (axes.condition.status != HOLDS and mixture.components > 1):
        return None
    return recover_hidden_states(mixture.pushed(axes.axes.T))


def _judge_hidden(mixture: GaussianMixture, hidden: HiddenStates | None) -> Condition:
    if hidden is None:
        why = (
            f"{mixture.dimension} latents are too many to count over all subsets (at most {MOST_LATENTS})."
            if mixture.dimension > MOST_LATENTS
            else "P2 gives no axes along which components could be counted."
        )
        return Condition("P3", UNKNOWN, why, NOTHING)
    if hidden.status != HOLDS or hidden.structure is None:
        return Condition(
            "P3", UNKNOWN, f"No structure of hidden variables was found for sure: {hidden.reason}.", NOTHING
        )
    told = "; ".join(f"{d} states on latents {list(n)}" for n, d in hidden.structure.key) or "one state"
    said = f"Counting components over all sets of latents finds hidden variables: {hidden.k} ({told}), {hidden.reason}."
    basis = CERTIFIED if hidden.confidence == 1 else SUPPORTED
    return Condition("P3", HOLDS, said, basis, numbers=hidden.to_dict())


def _drawn(mixture: GaussianMixture, decoder: Any, noise: float, seed: int) -> Float:
    """Draws of the whole model: latents of the prior, decoded, with noise."""
    import copy

    from congruence.decoder.probed import import_torch

    torch = import_torch()
    module = copy.deepcopy(decoder).double().cpu().eval()
    with torch.no_grad():
        out = to_numpy(module(torch.as_tensor(mixture.sample(LOOKED_AT, seed=seed))).flatten(1))
    return np.asarray(out + noise * np.random.default_rng(seed).normal(size=out.shape))


def _notes(noise: str, found: Mapping[str, Condition]) -> tuple[str, ...]:
    notes = [{"unknown": LEARNED, "known": KNOWN, "none": NO_NOISE}[noise], FAMILY]
    if found["F3"].status == HOLDS and found["F4"].status != HOLDS:
        notes.append(f"With F3 in place of F4 the decoder is identified {ESSENTIAL}.")
    if found["F2"].status == FAILS:
        notes.append(
            "Remark 3.12: without F2 two priors that no affine map brings together can give the same data, as |x| does "
            "with thirds at -2, -1, 3 and at -2, 1, 3."
        )
    return tuple(notes)
