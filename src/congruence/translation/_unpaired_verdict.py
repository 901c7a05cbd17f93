"""From the evidence without paired rows to a finding, the sentences of the verdict, and notes."""

from __future__ import annotations

from congruence.formatting import fixed, number, percent
from congruence.result import Finding, Status
from congruence.translation.result import INSIDE, RowMatching

LEVEL = 0.01  # of the test against each null
SHARED = 0.25  # least share of the way from the null to two samples of one model
AGREEMENT, WITHIN = 0.7, 0.5  # least mean R² of the maps of two halves: over all rows, and within clusters
LEAD = 4.0  # least lead over the best different map, in standard errors
CLAIM = "One rotation, reproduced on disjoint halves of the rows, aligns the two sets of rows better than chance."
EXPERIMENTAL = "Experimental: only paired rows can confirm this map."
NEXT: dict[Status, str] = {
    "holds": "Test it on rows that both models embedded (congruence translate fit) before you rely on it.",
    "unknown": "Embed a few hundred rows with both models and fit on these (congruence translate fit).",
}


def judge_matching(matching: RowMatching) -> tuple[Finding, tuple[str, ...], tuple[str, ...]]:
    """Decide whether the rows determine the map. It holds if all checks pass and is unknown otherwise.

    It never fails: that no map was found without pairs is no evidence that there is none.
    """
    reasons = tuple(failed_checks(matching))
    status: Status = "unknown" if reasons else "holds"
    if reasons:
        answer = "Without paired rows, the map from new to old vectors is not determined."
        evidence = " ".join(reasons)
    else:
        answer = "Without paired rows, one map from new to old vectors stands out."
        evidence = (
            f"Its residual, {number(matching.residual)}, is below that of rows without shared structure, "
            f"{number(matching.null)} (p = {matching.p:.1g}), and maps fitted on disjoint halves of the rows agree (R² "
            f"{matching.mean_agreement:.2f})."
        )
    finding = Finding("matching", CLAIM, status, evidence=evidence, number=matching.residual, null=matching.null)
    return finding, (answer, evidence), (f"{EXPERIMENTAL} {NEXT[status]}",)


def failed_checks(matching: RowMatching) -> list[str]:
    """One sentence for each check that does not pass."""
    reasons = []
    without = "rearranged within their clusters" if matching.nearest == INSIDE else "without shared structure"
    if not any(matching.nulls.values()):
        reasons.append("No null was searched (nulls is 0).")
    elif not matching.p <= LEVEL:
        reasons.append(
            f"The residual, {number(matching.residual)}, is not clearly below that of rows {without}, "
            f"{number(matching.null)} (p = {matching.p:.2g}; {LEVEL:g} is required)."
        )
    elif not matching.shared >= SHARED:
        reasons.append(
            f"The residual lies only {percent(max(matching.shared, 0.0))} of the way from that of rows {without} to "
            f"that of two samples of one model ({percent(SHARED)} is required)."
        )
    if not matching.lead >= LEAD:
        reasons.append("A different map fits as well: the data may be symmetric.")
    if not matching.agreement:
        reasons.append("No halves were compared (splits is 0).")
    elif not matching.mean_agreement >= AGREEMENT:
        reasons.append(
            f"Maps fitted on disjoint halves of the rows disagree (R² {fixed(matching.mean_agreement, 2)}; "
            f"{AGREEMENT:g} is required)."
        )
    elif not matching.mean_agreement_within >= WITHIN:
        reasons.append(
            "Maps fitted on disjoint halves of the rows agree on clusters but not within them (R² "
            f"{fixed(matching.mean_agreement_within, 2)}; {WITHIN:g} is required)."
        )
    return reasons
