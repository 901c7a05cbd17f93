"""`examine_mixture`: what does a mixture prior identify, and do several runs agree?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.checks import check_choice, check_integer
from congruence.errors import InputError
from congruence.mixture import _assumptions as hierarchy
from congruence.mixture._assumptions import Assumptions, AssumptionsNumbers, combine_runs
from congruence.mixture._models import MixtureModel, as_models
from congruence.mixture._options import CODES, MixtureOptions
from congruence.mixture.agreement import AgreementNumbers, LatentSpace, PairAgreement, SpaceAgreement, compare_spaces
from congruence.mixture.conditions import NAMES
from congruence.mixture.priors import GaussianMixture
from congruence.options import takes
from congruence.progress import Progress
from congruence.result import Finding, Record, Result, Status, as_data, recorded
from congruence.tables import as_table
from congruence.tables.inputs import pair_tables
from congruence.tables.table import as_labels

_PAIR_COLUMNS = ("source", "target", "distance", "standardised", "relative", "before")
_STRENGTH = (
    None,
    hierarchy.ESSENTIAL,
    hierarchy.AFFINE,
    hierarchy.SCALED,
    hierarchy.ORDER,
)  # of what is identified, from weak to strong
_HEADLINES = (  # by the row of Table 1
    "No theorem is known to apply",
    "The prior is identified up to an affine map",
    "The prior and the decoder are identified up to an affine map",
    "The prior is identified up to permutation, scaling and translation",
    "The prior and the hidden states are identified up to permutation, scaling and translation",
)
_LOGITS = "the decoder is examined up to the logits of the pixels, without their noise, which the theorems do not cover"


class RunNumbers(TypedDict):
    """One run in JSON; `assumptions` is null if they were not checked."""

    name: str
    model: str
    components: int
    active_latents: float | None
    assumptions: AssumptionsNumbers | None
    notes: list[str]


class MixtureNumbers(TypedDict):
    """The numbers of an examination in JSON; `row` and `identified` hold in every run."""

    row: int
    identified: dict[str, str | None]
    rows: int
    labels: str
    runs: list[RunNumbers]
    agreement: AgreementNumbers | None


@dataclass(frozen=True, eq=False)
class ExaminedRun(Record):
    """One run: its model, and the assumptions it satisfies."""

    name: str
    model: str  # "vade", ...
    components: int
    active_latents: float | None  # latents that carry information about the data, if it was logged
    assumptions: Assumptions | None  # None if they were not checked
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class MixtureExamination(Result):
    """The answer to "what does a mixture prior identify?" for one or more runs.

    ``result["P1"]`` is the finding on P1 in every run, ``result["vade-0", "P1"]`` that in one run, and
    ``result["vade-0", "vade-1"]`` the agreement of two runs. The status is that of the first finding: whether the prior
    is identified, at least up to an affine map. The other findings are its premises and the theorems.
    """

    runs: tuple[ExaminedRun, ...]
    agreement: SpaceAgreement | None  # None for a single run
    spaces: tuple[LatentSpace, ...]  # codes, or draws from a single prior without codes
    labels: Array  # (n,), the cluster of each row, for figures
    labels_from: str
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    @cached_property
    def checked(self) -> dict[str, Assumptions]:
        """The assumptions of the runs in which they were checked, by name."""
        return {run.name: run.assumptions for run in self.runs if run.assumptions is not None}

    @property
    def row(self) -> int:
        """The strongest row of Table 1 that holds in every run that was checked, 1 to 4; 0 for none."""
        return _shared_row(self.checked.values())

    @property
    def identified(self) -> dict[str, str | None]:
        """Up to what "P(Z)", "f" and "P(U)" are identified in every run that was checked; None: unknown."""
        each = [one.identified for one in self.checked.values()] or [dict.fromkeys(("P(Z)", "f", "P(U)"))]
        return {name: min((one[name] for one in each), key=_STRENGTH.index) for name in each[0]}

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The main claim, then P1 to P3, F1 to F4 and the theorems, each in every run that was checked."""
        if not self.checked:
            return (
                Finding("identified", hierarchy.IDENTIFIED, "unknown", evidence="The assumptions were not checked."),
            )
        return (
            self._over_runs([one.finding for one in self.checked.values()]),
            *(self._over_runs([one.premises[name] for one in self.checked.values()]) for name in NAMES),
            *self.theorems,
        )

    @cached_property
    def theorems(self) -> tuple[Finding, ...]:
        """The statements of the hierarchy, each in every run that was checked."""
        each = zip(*(one.theorems for one in self.checked.values()), strict=True)
        return tuple(self._over_runs(some) for some in each)

    def _over_runs(self, findings: Sequence[Finding]) -> Finding:
        return combine_runs(dict(zip(self.checked, findings, strict=True)))

    @property
    def status(self) -> Status:
        """Whether the prior is identified in every run, at least up to an affine map."""
        return self.findings[0].status

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict."""
        agreement = () if self.agreement is None else (self.agreement.verdict,)
        if not self.checked:
            return ("The assumptions were not checked.", *agreement)
        where = ""
        if len(self.runs) > 1 and any(one.row for one in self.checked.values()):
            where = " in every run" if len(self.checked) == len(self.runs) else " in every run that was checked"
        headline = _HEADLINES[self.row]
        if not self.row and (row := _shared_row(replace(one, noise="known") for one in self.checked.values())):
            headline = f"If the distribution of the noise is known, {_HEADLINES[row][0].lower()}{_HEADLINES[row][1:]}"
        verdicts = {one.verdict for one in self.checked.values()}
        reached = Counter(one.row for one in self.checked.values())
        counts = (f"row {row} in {reached[row]}" if row else f"none in {reached[0]}" for row in sorted(reached))
        explanation = f"Of the rows of Table 1, the {len(self.checked)} runs reach: {', '.join(counts)}."
        if len(verdicts) == 1:
            explanation = verdicts.pop()
        elif not any(reached):
            explanation = f"None of the {len(self.checked)} runs is known to satisfy P1, F1 and F2 together."
        return (f"{headline}{where}.", explanation, *agreement)

    def parts(self) -> dict[Any, Finding | PairAgreement]:
        """The findings by name and by (run, name), and the ordered pairs by (source, target)."""
        parts: dict[Any, Finding | PairAgreement] = {finding.name: finding for finding in self.findings}
        for run, one in self.checked.items():
            parts |= {(run, f.name): f for f in (one.finding, *one.premises.values(), one.distinct, *one.theorems)}
        return parts | {(p.source, p.target): p for p in (self.agreement.pairs if self.agreement else ())}

    def numbers(self) -> MixtureNumbers:
        """Every run with its assumptions, and the agreement of all pairs."""
        return {
            "row": self.row,
            "identified": self.identified,
            "rows": len(self.labels),
            "labels": self.labels_from,
            "runs": [run.to_dict() for run in self.runs],
            "agreement": as_data(self.agreement),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each ordered pair of runs; of a single run, one for each finding."""
        if self.agreement is None:
            for finding in self.findings:
                fields = {name: getattr(finding, name) for name in ("name", "status", "basis", "claim", "evidence")}
                yield {"run": self.runs[0].name, **fields}
            return
        for pair in self.agreement.pairs:
            numbers = pair.to_dict()
            mcc = numbers.pop("mcc")
            yield {name: numbers[name] for name in _PAIR_COLUMNS} | mcc


@takes(MixtureOptions)
def examine_mixture(
    prior: Any,
    decoder: Any = None,
    codes: Any = None,
    data: Any = None,
    *,
    options: MixtureOptions,
    progress: Progress | None = None,
) -> MixtureExamination:
    """Check which theorems of Kivva et al. apply to a mixture prior and decoder, and compare several runs.

    Parameters
    ----------
    prior : GaussianMixture, or anything that can be converted to one; or a mapping of name to these
        A fitted scikit-learn mixture, a torch mixture of normal distributions, a model with `mixture_prior()`, arrays
        (weights, means, covariances), a mapping or an object with these names, or the path of a .npz file. A trained
        model provides its decoder and noise. For several runs, pass a mapping of name to model, or of name to
        `MixtureModel`, which holds prior, decoder and codes; they are examined one by one and compared.
    decoder : torch module, optional
        From m latents to n outputs; without it the conditions on the decoder are unknown.
    codes : array, frame or table, (rows, m), optional
        Latents of the data, at which the decoder is examined; by default it is examined at draws from the prior. Draws
        from posteriors are compared with the prior, posterior means are not (`codes_are`).
    data : (rows, n), optional
        Observations, compared with draws of the whole model.
    progress : callable, optional
        Called as progress(what, done, total) while working.

    Returns
    -------
    MixtureExamination
        A finding for every condition and theorem. A theorem holds only if all its premises do.

    References
    ----------
    Kivva et al. 2022, Theorems 3.9 and 3.10, Table 1.
    """
    check_integer("rows", options.rows, 2)
    if options.codes_are is not None:
        check_choice("codes_are", options.codes_are, CODES)
    progress = progress or (lambda what, done, total: None)
    models = as_models(prior, decoder, codes, data, options.noise)
    priors = {}
    for name, model in models.items():
        try:
            priors[name] = model.mixture()
        except InputError as error:
            if len(models) == 1 and name == "model":
                raise
            raise InputError(f"the prior of {name} cannot be used: {error}") from error
    values, labels, notes, files = _read_codes(models, options)
    runs, spaces = [], []
    for i, (name, model) in enumerate(models.items()):
        progress("checking assumptions", i, len(models))
        runs.append(_examine_run(name, model, priors[name], values.get(name), options))
        if name in values:
            spaces.append(LatentSpace(name, values[name], priors[name]))
    agreement = compare_spaces(spaces, seed=options.seed, progress=progress) if len(spaces) > 1 else None
    labels_from = "" if not spaces else options.labels if isinstance(options.labels, str) else "labels"
    rows = len(spaces[0].codes) if spaces else 0
    (first, mixture), *_ = priors.items()
    if labels is None and spaces:
        labels, labels_from = spaces[0].states, f"most likely component in {first}"
    elif not spaces and mixture is not None:
        drawn = mixture.draw(hierarchy.DRAWS, seed=options.seed)
        spaces = [LatentSpace(first, drawn.latents, mixture)]
        labels, labels_from = drawn.states, "component of the prior (draws from the prior)"
    notes = [*notes, *(f"{run.name}: {note}." for run in runs for note in run.notes)]
    notes += [note for run in runs if run.assumptions is not None for note in run.assumptions.notes]
    notes += [] if agreement is None else agreement.notes
    return MixtureExamination(
        runs=tuple(runs),
        agreement=agreement,
        spaces=tuple(spaces),
        labels=np.zeros(0, dtype=int) if labels is None else labels,
        labels_from=labels_from,
        notes=tuple(dict.fromkeys(notes)),
        settings={
            "models": ", ".join(dict.fromkeys(run.model or run.name for run in runs)),
            "components of the prior": [run.components for run in runs],
            "rows": rows,
            "codes are": options.codes_are or "not set",
            "assumptions checked": options.check,
            "tolerance": options.tolerance,
            "largest prior checked": options.max_components,
            "seed": options.seed,
        }
        | files,
    )


def _shared_row(runs: Iterable[Assumptions]) -> int:
    """The strongest row of Table 1 that holds in all of these; 0 for none."""
    each = zip(*(one.rows for one in runs), strict=True)
    return max((some[0].number for some in each if all(row.prior.status == "holds" for row in some)), default=0)


def _read_codes(
    models: Mapping[str, MixtureModel], options: MixtureOptions
) -> tuple[dict[str, Float], Array | None, list[str], dict[str, Any]]:
    """Read the codes of every run on the same rows, the labels of these rows, notes, and the files read."""
    codes = {name: model.codes for name, model in models.items() if model.codes is not None}
    if len(models) > 1 and len(codes) < len(models):
        without = [name for name in models if name not in codes]
        raise InputError(f"several runs are compared by their codes; {', '.join(without)} has none")
    if not codes:
        return {}, None, [], {}
    inputs = pair_tables([as_table(rows, name=name) for name, rows in codes.items()], labels=options.labels)
    labels, rows = inputs.labels, hierarchy.spread_rows(len(inputs.values[0]), options.rows)
    if labels is not None:
        if labels.ndim > 1:
            raise InputError(f"labels must be one column; got shape {labels.shape}")
        labels = np.unique(as_labels(labels), return_inverse=True)[1][rows]
    values = zip(inputs.names, inputs.values, strict=True)
    chosen = {name: np.asarray(to_numpy(x), dtype=np.float64)[rows] for name, x in values}
    return chosen, labels, inputs.notes, recorded(inputs.files)


def _examine_run(
    name: str, model: MixtureModel, prior: GaussianMixture | None, codes: Float | None, options: MixtureOptions
) -> ExaminedRun:
    notes, assumptions, most = list(model.notes), None, options.max_components
    if options.check and prior is not None and model.components <= most:
        assumptions = hierarchy.check_assumptions(prior, model, codes, options)
        notes += [_LOGITS] if model.logits and model.decoder is not None else []
    elif options.check:
        why = f"the prior has {model.components} components (at most {most} are checked)"
        notes.append(f"the assumptions were not checked, since {why}")
    return ExaminedRun(name, model.kind, model.components, model.active_latents, assumptions, tuple(notes))
