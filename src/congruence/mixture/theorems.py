"""The theorems of the hierarchy: what each needs, and what it then identifies.

Table 1 of the paper lists F4 in the rows for permutation and scale. Theorems 3.9 and 3.10 need only F2 there, and F4
only to identify the decoder as well. The theorems are what was proved, so they are followed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from congruence.mixture.conditions import AMBIGUOUS, CERTIFIED, HOLDS
from congruence.result import Basis, Finding, Status, combine, conclude

AFFINE, SCALED = "up to an affine map", "up to permutation, scaling and translation"
TABLE_NOTE = (
    "Table 1 of the paper lists F4 for this row; Theorems 3.9 (b) and 3.10 (b, c) need only F2 to identify P(Z), and "
    "F4 to identify f as well. The theorems are followed here."
)
STATEMENTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Corollary 3.1 (a)", ("P1", "F1", "F4"), f"P(U, Z) and f are identified {AFFINE}, for a single variable U."),
    ("Corollary 3.1 (b)", ("P1", "F1", "F2"), f"P(U, Z) is identified {AFFINE}, for a single variable U."),
    ("Theorem 3.9 (a)", ("P1", "F1", "F2"), f"P(U, Z) is identified {AFFINE} of Z, for a single variable U."),
    ("Theorem 3.9 (b)", ("P1", "F1", "F2", "P2"), f"P(U, Z) is identified {SCALED} of Z, for a single variable U."),
    ("Theorem 3.9 (c)", ("P1", "F1", "F2", "F4"), f"f is identified {AFFINE} as well."),
    ("Theorem 3.10 (a)", ("P1", "F1", "F2"), f"P(Z) is identified {AFFINE}."),
    ("Theorem 3.10 (b)", ("P1", "F1", "F2", "P2"), f"P(Z) is identified {SCALED}."),
    (
        "Theorem 3.10 (c)",
        ("P1", "F1", "F2", "P2", "P3"),
        f"k, d_1, ..., d_k and P(U) are identified up to order, P(Z) {SCALED}.",
    ),
    ("Theorem 3.10 (d)", ("P1", "F1", "F2", "F4"), f"f is identified {AFFINE} as well."),
)
ROWS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("P1", "F1", "F2"), f"P(Z) {AFFINE}", ""),
    (("P1", "F1", "F4"), f"P(Z) and f {AFFINE}", ""),
    (("P1", "P2", "F1", "F2"), f"P(Z) {SCALED}; with F4, also f", TABLE_NOTE),
    (("P1", "P2", "P3", "F1", "F2"), f"P(U, Z) {SCALED}; with F4, also f", TABLE_NOTE),
)


@dataclass(frozen=True)
class Row:
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


def conclusions(premises: Mapping[str, Finding]) -> tuple[Finding, ...]:
    """Return every statement of the hierarchy as a conclusion from the findings on P1 to P3 and F1 to F4."""
    return tuple(conclude(name, claim, [premises[c] for c in asks]) for name, asks, claim in STATEMENTS)


def table_rows(premises: Mapping[str, Finding]) -> tuple[Row, ...]:
    """Return the four rows of Table 1, from weak to strong."""
    decoder = conclude("decoder", f"f is identified {AFFINE}.", [premises[c] for c in ("P1", "F1", "F4")])
    return tuple(
        Row(
            number,
            conclude(f"row {number}", guarantee, [premises[c] for c in asks]),
            None if number == 1 else decoder,
            note,
        )
        for number, (asks, guarantee, note) in enumerate(ROWS, start=1)
    )


def needed(conclusion: Finding) -> list[str]:
    """The names of the conditions a conclusion needs."""
    return [premise.name for premise in conclusion.premises]


def missing(conclusion: Finding) -> list[str]:
    """The names of the conditions among them that are not known to hold."""
    return [premise.name for premise in conclusion.premises if premise.status != HOLDS]


def in_every_run(findings: Mapping[str, Finding]) -> Finding:
    """Combine findings of one name over runs into the claim that it holds in all of them.

    One that holds in some runs only is ambiguous; else the status is that of the worst. The evidence is that of the
    worst run, which it names.
    """
    each = list(findings.values())
    if len(each) == 1:
        return each[0]
    held = [name for name, finding in findings.items() if finding.status == HOLDS]
    overall = combine(each)
    worst, finding = next((name, finding) for name, finding in findings.items() if finding.status == overall)
    status: Status = AMBIGUOUS if held and overall != HOLDS else overall
    basis: Basis | None = None
    if status == HOLDS:
        basis = CERTIFIED if all(one.basis == CERTIFIED for one in each) else "supported"
    elif any(one.basis == "premise fails" for one in each) and status != "fails":
        basis = "premise fails"
    evidence = f"{finding.evidence} ({worst})" if finding.evidence else ""
    if held and status != HOLDS:
        evidence = f"Holds in {len(held)} of {len(each)} runs ({', '.join(held)}). {evidence}".rstrip()
    premises = zip(*(one.premises for one in each), strict=True)
    shared = tuple(in_every_run(dict(zip(findings, some, strict=True))) for some in premises)
    return Finding(finding.name, finding.claim, status, basis, evidence, premises=shared)
