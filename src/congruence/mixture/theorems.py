"""Which theorem of the hierarchy follows from the conditions, and what it identifies.

Table 1 of the paper asks for F4 in the rows that bring permutation and scale; Theorems 3.9 and 3.10 ask for F2 there,
and for F4 only to identify the decoder as well. The theorems are what was proved, so they win.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from congruence.mixture.verdicts import CERTIFIED, FAILS, HOLDS, SUPPORTED, Condition, all_of

APPLIES, NOT, UNKNOWN = "applies", "does not apply", "unknown"
AFFINE, SCALED = "an affine map", "permutation, scaling and translation"
TABLE_NOTE = (
    "Table 1 of the paper lists F4 for this row; Theorems 3.9 (b) and 3.10 (b, c) ask only for F2 to identify P(Z), "
    "and for F4 to identify f as well. The theorems are followed here."
)


@dataclass(frozen=True)
class Theorem:
    """One statement of the hierarchy: what it asks for, whether it applies, and what it then identifies."""

    name: str  # "Corollary 3.1 (a)", "Theorem 3.9 (b)", ...
    asks: tuple[str, ...]
    status: str  # "applies", "does not apply" or "unknown"
    basis: str  # "certified" where all conditions are, else "supported" or "none"
    identifies: str
    missing: tuple[str, ...]  # conditions that do not hold, or are not known to

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return {
            "name": self.name,
            "asks": list(self.asks),
            "status": self.status,
            "basis": self.basis,
            "identifies": self.identifies,
            "missing": list(self.missing),
        }

    def __str__(self) -> str:
        missing = f" (missing: {', '.join(self.missing)})" if self.missing else ""
        return f"{self.name} {self.status}{missing}: {self.identifies}"


@dataclass(frozen=True)
class Row:
    """A row of Table 1, with what the theorems make of it."""

    number: int  # 1 to 4
    asks: tuple[str, ...]  # as the theorems do, for the prior
    guarantee: str
    prior: str  # status of what is said about P(Z), or P(U, Z)
    decoder: str  # status of what is said about f, which takes F4; "" in the first row, which says nothing
    note: str

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return {
            "number": self.number,
            "asks": list(self.asks),
            "guarantee": self.guarantee,
            "prior": self.prior,
            "decoder": self.decoder,
            "note": self.note,
        }


STATEMENTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Corollary 3.1 (a)", ("P1", "F1", "F4"), f"P(U, Z) and f up to {AFFINE}, U being one variable"),
    ("Corollary 3.1 (b)", ("P1", "F1", "F2"), f"P(U, Z) up to {AFFINE}, U being one variable"),
    ("Theorem 3.9 (a)", ("P1", "F1", "F2"), f"P(U, Z) up to {AFFINE} of Z, U being one variable"),
    ("Theorem 3.9 (b)", ("P1", "F1", "F2", "P2"), f"P(U, Z) up to {SCALED} of Z, U being one variable"),
    ("Theorem 3.9 (c)", ("P1", "F1", "F2", "F4"), f"f up to {AFFINE} as well"),
    ("Theorem 3.10 (a)", ("P1", "F1", "F2"), f"P(Z) up to {AFFINE}"),
    ("Theorem 3.10 (b)", ("P1", "F1", "F2", "P2"), f"P(Z) up to {SCALED}"),
    ("Theorem 3.10 (c)", ("P1", "F1", "F2", "P2", "P3"), f"k, d_1, ..., d_k and P(U) up to order, P(Z) up to {SCALED}"),
    ("Theorem 3.10 (d)", ("P1", "F1", "F2", "F4"), f"f up to {AFFINE} as well"),
)
ROWS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("P1", "F1", "F2"), f"P(Z) up to {AFFINE}", ""),
    (("P1", "F1", "F4"), f"P(Z) and f up to {AFFINE}", ""),
    (("P1", "P2", "F1", "F2"), f"P(Z) up to {SCALED}; f, with F4", TABLE_NOTE),
    (("P1", "P2", "P3", "F1", "F2"), f"P(U, Z) up to {SCALED}; f, with F4", TABLE_NOTE),
)


def theorems(conditions: Mapping[str, Condition]) -> tuple[Theorem, ...]:
    """Every statement of the hierarchy, judged by the conditions P1 to P3 and F1 to F4."""
    return tuple(
        Theorem(
            name,
            asks,
            _status(conditions, asks),
            _basis(conditions, asks),
            identifies,
            tuple(c for c in asks if conditions[c].status != HOLDS),
        )
        for name, asks, identifies in STATEMENTS
    )


def rows(conditions: Mapping[str, Condition]) -> tuple[Row, ...]:
    """The four rows of Table 1, from weak to strong."""
    found = []
    for number, (asks, guarantee, note) in enumerate(ROWS, start=1):
        decoder = "" if number == 1 else _status(conditions, ("P1", "F1", "F4"))
        found.append(Row(number, asks, guarantee, _status(conditions, asks), decoder, note))
    return tuple(found)


def _status(conditions: Mapping[str, Condition], asks: tuple[str, ...]) -> str:
    status = all_of([conditions[name].status for name in asks])
    return APPLIES if status == HOLDS else NOT if status == FAILS else UNKNOWN


def _basis(conditions: Mapping[str, Condition], asks: tuple[str, ...]) -> str:
    if any(conditions[name].status != HOLDS for name in asks):
        return "none"
    return CERTIFIED if all(conditions[name].basis == CERTIFIED for name in asks) else SUPPORTED
