"""The hierarchy of Kivva et al. (2022): which conditions a prior and a decoder satisfy, and which theorems follow.

Table 1 of the paper lists F4 in the rows for permutation and scale. Theorems 3.9 and 3.10 need only F2 there, and F4
only to identify the decoder as well. The theorems are proved, so they are used here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.errors import InputError, UnknownKeyError
from congruence.formatting import count
from congruence.mixture._models import MixtureModel
from congruence.mixture._options import MixtureOptions
from congruence.mixture.conditions import (
    NAMES,
    CanonicalAxes,
    ConditionNumbers,
    HierarchyCondition,
    canonical_axes,
    judge_data,
    make_condition,
)
from congruence.mixture.hidden_states import MOST_LATENTS, HiddenStates, recover_hidden_states
from congruence.mixture.latent_tests import judge_estimated_axes, judge_prior
from congruence.mixture.priors import GaussianMixture
from congruence.result import Basis, Finding, Status, as_data, combine, conclude

_SAME = 1e-9  # of the standard deviations of the prior: components are equal up to rounding
DRAWS = 1000  # latents drawn from the prior if there are no codes
AFFINE, SCALED = "up to an affine map", "up to permutation, scaling and translation"
ESSENTIAL = "on each connected component of the latents with a unique output, up to one affine map each (Remark 3.11)"
ORDER = "up to the order of variables and the names of states"
IDENTIFIED = "The prior is identified, at least up to an affine map."
_WEAK = ("P1", "F1", "F2")
_STATEMENTS = (
    (
        "Corollary 3.1 (a)",
        ("P1", "F1", "F4", "distinct"),
        f"P(U, Z) and f are identified {AFFINE}, for a single variable U and a continuous f.",
    ),
    ("Corollary 3.1 (b)", (*_WEAK, "distinct"), f"P(U, Z) is identified {AFFINE}, for a single variable U."),
    ("Theorem 3.9 (a)", (*_WEAK, "distinct"), f"P(U, Z) is identified {AFFINE} of Z, for a single variable U."),
    ("Theorem 3.9 (b)", (*_WEAK, "P2", "distinct"), f"P(U, Z) is identified {SCALED} of Z, for a single variable U."),
    ("Theorem 3.9 (c)", (*_WEAK, "F4"), f"f, if continuous, is identified {AFFINE} as well."),
    ("Theorem 3.10 (a)", _WEAK, f"P(Z) is identified {AFFINE}."),
    ("Theorem 3.10 (b)", (*_WEAK, "P2"), f"P(Z) is identified {SCALED}."),
    ("Theorem 3.10 (c)", (*_WEAK, "P2", "P3"), f"k, d_1, ..., d_k and P(U) are identified up to order, P(Z) {SCALED}."),
    ("Theorem 3.10 (d)", (*_WEAK, "F4"), f"f, if continuous, is identified {AFFINE} as well."),
)
_TABLE_NOTE = (
    "Table 1 of the paper lists F4 for this row; Theorems 3.9 (b) and 3.10 (b, c) need only F2 to identify P(Z), and "
    "F4 to identify f as well. The theorems are used here."
)
_ROWS = (
    (_WEAK, f"P(Z) {AFFINE}", ""),
    (("P1", "F1", "F4"), f"P(Z) and f {AFFINE}", ""),
    (("P1", "P2", "F1", "F2"), f"P(Z) {SCALED}; with F4, f {AFFINE}", _TABLE_NOTE),
    (("P1", "P2", "P3", "F1", "F2"), f"P(U, Z) {SCALED}; with F4, f {AFFINE}", _TABLE_NOTE),
)
_UNKNOWN_NOISE = (
    "The distribution of the noise is unknown, or was learned with the model. Deconvolution needs a known one, so the "
    "theorems cover the model only if its noise is considered known."
)
_WITHOUT_F2 = (
    "Remark 3.12: without F2, two priors that are not affinely equivalent can have the same distribution of "
    "the data, for example |x| with components at −2, −1, 3 and at −2, 1, 3."
)


@dataclass(frozen=True)
class HierarchyRow:
    """A row of Table 1, judged by the theorems."""

    number: int  # 1 to 4
    prior: Finding  # on P(Z), or P(U, Z); its claim is the guarantee of the row
    decoder: Finding | None  # on f, which needs F4; None in the first row, which is not about f
    note: str

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return {
            "number": self.number,
            "asks": needed(self.prior),
            "guarantee": self.prior.claim,
            "prior": self.prior.status,
            "decoder": None if self.decoder is None else self.decoder.status,
            "note": self.note,
        }


def apply_theorems(premises: Mapping[str, Finding], general: Sequence[Finding] = ()) -> tuple[Finding, ...]:
    """Return every statement of the hierarchy as a conclusion from its conditions.

    `premises` are P1 to P3, F1 to F4 and "distinct", that no two components are equal; `general` are premises of every
    statement that are not known to hold.
    """
    return tuple(conclude(name, claim, [*(premises[c] for c in needs), *general]) for name, needs, claim in _STATEMENTS)


def table_rows(premises: Mapping[str, Finding], general: Sequence[Finding] = ()) -> tuple[HierarchyRow, ...]:
    """Return the four rows of Table 1, from weak to strong; the parameters are those of `apply_theorems`."""
    decoder = conclude("decoder", f"f is identified {AFFINE}.", [*(premises[c] for c in ("P1", "F1", "F4")), *general])
    rows = []
    for number, (needs, guarantee, note) in enumerate(_ROWS, start=1):
        prior = conclude(f"row {number}", guarantee, [*(premises[c] for c in needs), *general])
        rows.append(HierarchyRow(number, prior, None if number == 1 else decoder, note))
    return tuple(rows)


def needed(conclusion: Finding) -> list[str]:
    """The names of the premises of a conclusion."""
    return [premise.name for premise in conclusion.premises]


def missing(conclusion: Finding) -> list[str]:
    """The names of the premises that are not known to hold."""
    return [premise.name for premise in conclusion.premises if premise.status != "holds"]


def combine_runs(findings: Mapping[str, Finding]) -> Finding:
    """Combine findings of one name, by run, into the claim that it holds in all runs.

    A finding that holds in some runs only is ambiguous; otherwise the status is the worst. The evidence is that of the
    worst run, with its name.
    """
    each = list(findings.values())
    if len(each) == 1:
        return each[0]
    held = [name for name, finding in findings.items() if finding.status == "holds"]
    overall = combine(each)
    worst, finding = next((name, finding) for name, finding in findings.items() if finding.status == overall)
    status: Status = "ambiguous" if held and overall != "holds" else overall
    basis: Basis | None = None
    if status == "holds":
        basis = "certified" if all(one.basis == "certified" for one in each) else "supported"
    elif any(one.basis == "premise fails" for one in each) and status != "fails":
        basis = "premise fails"
    evidence = f"{finding.evidence} ({worst})" if finding.evidence else ""
    if held and status != "holds":
        evidence = f"Holds in {len(held)} of {len(each)} runs ({', '.join(held)}). {evidence}".rstrip()
    premises: dict[str, dict[str, Finding]] = {}
    for run, one in findings.items():
        for premise in one.premises:
            premises.setdefault(premise.name, {})[run] = premise
    shared = tuple(map(combine_runs, premises.values()))
    return Finding(finding.name, finding.claim, status, basis, evidence, premises=shared)


class AssumptionsNumbers(TypedDict):
    """The assumptions of one prior and decoder, in JSON. `identified` is null if nothing is known to be identified."""

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

    conditions: Mapping[str, HierarchyCondition]  # P1, P2, P3, F1, F2, F3, F4
    axes: CanonicalAxes
    hidden: HiddenStates | None  # None if P2 provides no axes
    distinct: Finding  # whether no two components are equal
    data: HierarchyCondition | None = None  # whether the whole model fits the data
    noise: str = "none"  # "none", "known" or "unknown"
    refused: str = ""  # why nothing can be identified at all, or ""

    def __getitem__(self, name: str) -> Finding:
        """The finding of this name: "P1" to "F4", "identified", or a theorem."""
        known = (self.finding, *self.premises.values(), self.distinct, *self.general, *self.theorems)
        found = {one.name: one for one in known}
        if name not in found:
            raise UnknownKeyError(f"there is no {name!r} in these assumptions; the keys are {', '.join(found)}")
        return found[name]

    @property
    def premises(self) -> dict[str, Finding]:
        """The findings on P1 to P3 and F1 to F4."""
        return {name: self.conditions[name].finding for name in NAMES}

    @property
    def general(self) -> tuple[Finding, ...]:
        """Premises of every statement that are not known to hold: noise of a known distribution, a fit to the data."""
        noise = Finding("noise", "The distribution of the noise is known.", "unknown", evidence=_UNKNOWN_NOISE)
        misfit = () if self.data is None or self.data.status != "fails" else (self.data.finding,)
        return (*((noise,) if self.noise == "unknown" else ()), *misfit)

    @cached_property
    def theorems(self) -> tuple[Finding, ...]:
        """Every statement of the hierarchy, as a conclusion from the conditions."""
        return apply_theorems({**self.premises, "distinct": self.distinct}, self.general)

    @cached_property
    def rows(self) -> tuple[HierarchyRow, ...]:
        """The rows of Table 1."""
        return table_rows(self.premises, self.general)

    @property
    def row(self) -> int:
        """The strongest row of Table 1 that holds by the theorems, 1 to 4; 0 for none.

        Row 2 includes the decoder; rows 3 and 4 are about the prior alone.
        """
        return max((row.number for row in self.rows if row.prior.status == "holds"), default=0)

    @property
    def identified(self) -> dict[str, str | None]:
        """Up to what the prior "P(Z)", the decoder "f" and the hidden states "P(U)" are identified; None: unknown."""
        holds = {theorem.name: theorem.status == "holds" for theorem in self.theorems}
        prior = SCALED if holds["Theorem 3.10 (b)"] else AFFINE if holds["Theorem 3.10 (a)"] else None
        decoder = AFFINE if holds["Theorem 3.10 (d)"] else None
        if decoder is None and prior is not None and self.conditions["F3"].status == "holds":
            decoder = ESSENTIAL
        return {"P(Z)": prior, "f": decoder, "P(U)": ORDER if holds["Theorem 3.10 (c)"] else None}

    @property
    def finding(self) -> Finding:
        """Whether the prior is identified; Remark 3.6 refutes it."""
        if self.refused:
            return Finding("identified", IDENTIFIED, "fails", evidence=self.refused)
        return conclude("identified", IDENTIFIED, [*(self.premises[name] for name in _WEAK), *self.general])

    @property
    def verdict(self) -> str:
        """What is identified, in one or two sentences."""
        if self.refused:
            return self.refused
        if self.noise == "unknown":
            known = replace(self, noise="known")
            if known.row:
                return f"If the distribution of the noise is known, {known.verdict}"
        if self.identified["P(Z)"] is None:
            return f"Nothing is known to be identified. Not known to hold: {', '.join(missing(self.finding))}."
        text = "; ".join(f"{name} is identified {how}" for name, how in self.identified.items() if how is not None)
        if any(t.status == "holds" and t.basis == "supported" for t in self.theorems):
            text += ", as far as the sample shows"
        return f"{text}."

    @property
    def notes(self) -> tuple[str, ...]:
        """The limits of the conclusions."""
        notes = [_UNKNOWN_NOISE] if self.noise == "unknown" else []
        if self.conditions["F3"].status == "holds" != self.conditions["F4"].status:
            notes.append(f"With F3 in place of F4, the decoder is identified {ESSENTIAL}.")
        if self.conditions["F2"].status == "fails":
            notes.append(_WITHOUT_F2)
        return tuple(notes)

    def to_dict(self) -> AssumptionsNumbers:
        """Conditions, theorems, rows of Table 1 and hidden states as plain data."""
        return {
            "row": self.row,
            "identified": self.identified,
            "conditions": [self.conditions[name].to_dict() for name in NAMES],
            "theorems": [
                {name: getattr(theorem, name) for name in ("name", "status", "basis")}
                | {"asks": needed(theorem), "missing": missing(theorem), "identifies": theorem.claim}
                for theorem in self.theorems
            ],
            "rows": [row.to_dict() for row in self.rows],
            "axes": {"matrix": self.axes.axes.tolist(), "frame": self.axes.frame},
            "hidden": as_data(self.hidden),
            "data": as_data(self.data),
            "noise": self.noise,
            "refused": self.refused,
        }


def check_assumptions(
    prior: GaussianMixture, model: MixtureModel, codes: Float | None, options: MixtureOptions
) -> Assumptions:
    """Check P1 to P3 and F1 to F4 of one model, with its prior and the rows of its codes that are used, (n, m)."""
    decoder, data, noise, seed = model.decoder, model.data, model.noise, options.seed
    deviation = 0.0 if noise == "unknown" else noise
    if isinstance(deviation, str | bool) or deviation is None or not (math.isfinite(deviation) and deviation >= 0):
        raise InputError(f"noise must be a standard deviation of at least 0, or 'unknown'; got {noise!r}")
    kind = "unknown" if noise == "unknown" else "known" if deviation else "none"
    tested, codes_are = codes, options.codes_are or model.codes_are
    if model.draws is not None and codes_are == "means":
        drawn = to_numpy(model.draws)
        tested, codes_are = drawn[spread_rows(len(drawn), options.rows)], "encoder"
    p1, test = judge_prior(prior, tested, codes_are=codes_are, seed=seed)
    mixture = prior if test is None else test.mixture
    axes = canonical_axes(mixture, tolerance=options.tolerance, seed=seed)
    p2, rows = axes.condition, None
    if p1.status == "fails":
        why = "The codes do not follow the prior (P1), so its components say nothing about their latents."
        hidden, p2, p3 = None, make_condition("P2", "unknown", why), make_condition("P3", "unknown", why)
    else:
        if test is not None and prior.fitted:
            rows = len(test.sample)
            p2 = judge_estimated_axes(mixture, test.sample, seed=seed)
        hidden, p3 = _judge_hidden(mixture, axes, p2, rows)
    conditions = {"P1": p1, "P2": p2, "P3": p3}
    refused, fit = "", None
    if decoder is None:
        conditions |= {name: make_condition(name, "unknown", "There is no decoder.") for name in NAMES[3:]}
    else:
        from congruence.decoder.prepared_decoder import import_torch
        from congruence.mixture.injectivity import decoder_conditions

        points = prior.sample(DRAWS, seed=seed) if codes is None else to_numpy(as_matrix(codes, "codes"))
        shown = decoder_conditions(decoder, points, seed=seed)
        conditions |= {condition.name: condition for condition in shown.conditions}
        if shown.latents > shown.outputs:
            refused = (
                f"There are {shown.latents} latents and only {shown.outputs} outputs: latents can change without "
                "changing any output, so nothing is identified (Remark 3.6)."
            )
        if data is not None:  # compared with draws of the whole model
            with import_torch().no_grad():
                module = copy.deepcopy(decoder).double().cpu().eval()
                out = to_numpy(module(import_torch().as_tensor(prior.sample(DRAWS, seed=seed))).flatten(1))
            out = out + deviation * np.random.default_rng(seed).normal(size=out.shape)
            fit = judge_data(out, data, seed=seed)
    return Assumptions(conditions, axes, hidden, _judge_distinct(mixture), fit, kind, refused)


def _judge_distinct(prior: GaussianMixture) -> Finding:
    """Whether no two components are equal; the weights of equal ones are not determined, and neither is P(U, Z)."""
    name, claim = "distinct", "No two components of the prior are equal."
    spread = np.sqrt(np.maximum(np.diagonal(prior.covariance), np.finfo(float).tiny))
    shapes = (prior.covariances / np.outer(spread, spread)).reshape(prior.components, -1)
    values = np.concatenate([prior.means / spread, shapes], axis=1)  # (J, m + m^2)
    for i, one in enumerate(values):
        equal = np.flatnonzero(np.abs(values[i + 1 :] - one).max(axis=1) <= _SAME)
        if equal.size:
            evidence = f"Components {i} and {i + 1 + equal[0]} are equal, so their weights are not determined."
            return Finding(name, claim, "fails", evidence=evidence)
    return Finding(name, claim, "holds", "supported" if prior.fitted else "certified")


def _judge_hidden(
    prior: GaussianMixture, axes: CanonicalAxes, p2: HierarchyCondition, rows: int | None
) -> tuple[HiddenStates | None, HierarchyCondition]:
    """Recover the hidden variables (None if no axes allow it), and judge P3; `rows`: of a mixture that was fitted."""

    def describe(hidden: HiddenStates) -> str:
        return f"{count(hidden.k or 0, 'hidden variable')} ({hidden.structure})"

    hidden: HiddenStates | None = None
    status: Status = "unknown"
    exact = False
    if prior.dimension > MOST_LATENTS:
        why = f"{prior.dimension} latents are too many to count components over all subsets (at most {MOST_LATENTS})."
    elif p2.status != "holds" and prior.components > 1:
        why = "P2 is not known to hold, so components cannot be counted along the latents."
        if axes.frame == "found" and axes.status == "holds" and rows is None:
            hidden = recover_hidden_states(prior.pushed(axes.axes.T))
            along = f"counting yields {describe(hidden)}" if hidden.structure else hidden.reason
            why = "P3 is about the latents as given, which mix the axes of independent latents."
            why += f" Along these axes: {along}."
    else:
        hidden = recover_hidden_states(prior, rows=rows)
        status, exact = hidden.status, rows is None and (hidden.status == "fails" or hidden.confidence == 1)
        why = f"No reliable structure of hidden variables was found: {hidden.reason}."
        if status == "fails":
            why = f"Counting components over all sets of latents excludes P3: {hidden.reason}."
        elif status == "holds":
            why = f"Counting components over all sets of latents yields {describe(hidden)}; {hidden.reason}."
    numbers = hidden.to_dict() if hidden is not None and status != "unknown" else None
    return hidden, make_condition("P3", status, why, exact=exact and status != "unknown", numbers=numbers)


def spread_rows(n: int, most: int) -> Array:
    """At most this number of n rows, evenly spread."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(int)
