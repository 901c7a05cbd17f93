"""What `examine_mixture` returns: runs, their assumptions, and their agreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

from congruence.arrays import Array
from congruence.mixture.agreement import Agreement, AgreementNumbers, LatentSpace, PairAgreement
from congruence.mixture.conditions import HOLDS, NAMES
from congruence.mixture.hierarchy import (
    ESSENTIAL,
    IDENTIFIED,
    ORDER,
    Assumptions,
    AssumptionsNumbers,
)
from congruence.mixture.theorems import AFFINE, SCALED, in_every_run
from congruence.result import Finding, Result, Status

if TYPE_CHECKING:
    from congruence.document import Document

PAIR_COLUMNS = ("source", "target", "distance", "relative", "before", "strong", "weak", "weak_held_out")
STRENGTH = (None, ESSENTIAL, AFFINE, SCALED, ORDER)  # of what is identified, from weak to strong
HEADLINES = (  # by the row of Table 1
    "No theorem is shown to apply",
    "The prior is identified up to an affine map",
    "The prior and the decoder are identified up to an affine map",
    "The prior is identified up to permutation, scaling and translation",
    "The prior and the hidden states are identified up to permutation, scaling and translation",
)


class RunNumbers(TypedDict):
    """One run in JSON; `assumptions` is null where they were not checked."""

    name: str
    model: str
    components: int
    active_latents: float | None
    assumptions: AssumptionsNumbers | None
    notes: list[str]


class MixtureNumbers(TypedDict):
    """The numbers of an examination in JSON; `row` and `identified` are what is reached in every run."""

    row: int
    identified: dict[str, str | None]
    rows: int
    labels: str
    runs: list[RunNumbers]
    agreement: AgreementNumbers | None


@dataclass(frozen=True, eq=False)
class ExaminedRun:
    """One run: its model, and the assumptions it satisfies."""

    name: str
    model: str  # "vade", ...
    components: int
    active_latents: float | None  # latents that carry information about the data, where it was logged
    assumptions: Assumptions | None  # None where they were not checked
    notes: tuple[str, ...] = ()

    def to_dict(self) -> RunNumbers:
        """The run as plain data."""
        return {
            "name": self.name,
            "model": self.model,
            "components": self.components,
            "active_latents": self.active_latents,
            "assumptions": None if self.assumptions is None else self.assumptions.to_dict(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, eq=False, repr=False)
class MixtureExamination(Result):
    """The answer to "what does a mixture prior identify?" for one or more runs.

    ``result["P1"]`` is the finding on P1 in every run, ``result["vade-0", "P1"]`` that in one run, and
    ``result["vade-0", "vade-1"]`` the agreement of two runs. The status is that of the first finding: whether the prior
    is identified, at least up to an affine map. The other findings are its premises and the theorems.
    """

    runs: tuple[ExaminedRun, ...]
    agreement: Agreement | None  # None for a single run
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
        each = zip(*(one.rows for one in self.checked.values()), strict=True)
        return max((some[0].number for some in each if all(row.prior.status == HOLDS for row in some)), default=0)

    @property
    def identified(self) -> dict[str, str | None]:
        """Up to what "P(Z)", "f" and "P(U)" are identified in every run that was checked; None: not shown."""
        each = [one.identified for one in self.checked.values()] or [dict.fromkeys(("P(Z)", "f", "P(U)"))]
        return {name: min((one[name] for one in each), key=STRENGTH.index) for name in each[0]}

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The main claim, then P1 to P3, F1 to F4 and the theorems, each in every run that was checked."""
        if not self.checked:
            return (Finding("identified", IDENTIFIED, "unknown", evidence="The assumptions were not checked."),)
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
        return in_every_run(dict(zip(self.checked, findings, strict=True)))

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
        return (f"{HEADLINES[self.row]}{where}.", self._explanation(), *agreement)

    def _explanation(self) -> str:
        """What each run reaches."""
        verdicts = {one.verdict for one in self.checked.values()}
        if len(verdicts) == 1:
            return verdicts.pop()
        reached = Counter(one.row for one in self.checked.values())
        if not any(reached):
            return f"None of the {len(self.checked)} runs is shown to satisfy P1, F1 and F2 together."
        counts = ", ".join(
            f"row {row} in {reached[row]}" if row else f"none in {reached[0]}" for row in sorted(reached)
        )
        return f"Of the rows of Table 1, the {len(self.checked)} runs reach: {counts}."

    @property
    def verdict(self) -> str:
        """What the theorems identify, and how well the runs agree."""
        return " ".join(self.headlines)

    def parts(self) -> dict[Any, Finding | PairAgreement]:
        """The findings by name and by (run, name), and the ordered pairs by (source, target)."""
        found: dict[Any, Finding | PairAgreement] = {finding.name: finding for finding in self.findings}
        for run, one in self.checked.items():
            found |= {(run, f.name): f for f in (one.finding, *one.premises.values(), *one.theorems)}
        return found | {(p.source, p.target): p for p in (self.agreement.pairs if self.agreement else ())}

    def numbers(self) -> MixtureNumbers:
        """Every run with its assumptions, and the agreement of all pairs."""
        return {
            "row": self.row,
            "identified": self.identified,
            "rows": len(self.labels),
            "labels": self.labels_from,
            "runs": [run.to_dict() for run in self.runs],
            "agreement": None if self.agreement is None else self.agreement.to_dict(),
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
            values = {**numbers, **numbers["mcc"]}
            yield {name: values[name] for name in PAIR_COLUMNS}

    def document(self) -> Document:
        """Hierarchy, assumptions with their evidence, theorems, latent spaces, and the agreement of runs."""
        from congruence.mixture._document import describe

        return describe(self)
