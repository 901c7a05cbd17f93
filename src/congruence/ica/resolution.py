"""What resolving the axes of a table has shown: which components are identified, and what each looks like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from congruence.arrays import Float
from congruence.errors import InputError
from congruence.ica.components import Components
from congruence.ica.judging import advice_on, resampled_columns, verdict_on
from congruence.ica.portraits import Portrait, portraits_of
from congruence.ica.profile import EDGES
from congruence.ica.stabilities import ComponentStability
from congruence.result import json_text
from congruence.tables import Table


@dataclass(frozen=True, eq=False)
class Resolution:
    """The components of one table, with what tells whether they would come back."""

    name: str
    n: int  # rows
    d: int  # columns
    components: Components
    portraits: tuple[Portrait, ...]  # of the first components
    stability: ComponentStability | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def k(self) -> int:
        """The number of components."""
        return self.components.unmixing.k

    @property
    def rank(self) -> int:
        """Directions in which the rows vary by more than rounding."""
        return self.components.whitening.rank

    @property
    def identified(self) -> int:
        """How many components can be told from noise and come back from every start."""
        return int(self.components.unmixing.identified.sum())

    @property
    def returning(self) -> int:
        """How many identified components also come back on resampled rows, where that was asked for."""
        return sum(row["identified"] and row.get("stable", True) for row in self.table())

    @property
    def edges(self) -> Float:
        """Between which the rows of a portrait are counted, in standard deviations."""
        return EDGES

    @property
    def status(self) -> str:
        """Whether the axes come back: "holds" (all of them), "partly", "fails" (none), "unknown" (not converged)."""
        if self.components.unmixing.reason == "cap":
            return "unknown"
        return "holds" if self.returning == self.k else "partly" if self.returning else "fails"

    @property
    def verdict(self) -> str:
        """One sentence on how many components are identified, and what is wrong with the others."""
        return verdict_on(self)

    @property
    def advice(self) -> list[str]:
        """What to know before the components are used, and what to do about it."""
        return advice_on(self)

    def table(self) -> list[dict[str, Any]]:
        """One row per component: its shape, its sampling error in radians, and whether it comes back.

        `lost_to` tells why a component is not identified: "noise" (as good as Gaussian), "start" (it depends on it) or
        "cap" (the passes ended before the solver had come to rest, so that nothing is known of the start).
        With `stability`, `median`, `low` and `high` are the correlations with its partner on resampled rows.
        """
        found = self.components.unmixing
        columns: dict[str, Any] = {"component": [f"ica{i}" for i in range(self.k)]}
        for name in ("negentropy", "kurtosis", "skewness", "sampling_error", "agreement", "identified"):
            values = getattr(found, name)
            columns[name] = [None] * self.k if values is None else values.tolist()
        why = np.where(found.noise, "noise", "cap" if found.reason == "cap" else "start").tolist()
        columns["lost_to"] = [None if sure else text for sure, text in zip(found.identified, why, strict=True)]
        if self.stability is not None:
            columns |= resampled_columns(self.stability)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the matrices, as plain dicts, lists and numbers."""
        white, found = self.components.whitening, self.components.unmixing
        return {
            "name": self.name,
            "n": self.n,
            "d": self.d,
            "rank": self.rank,
            "retained": white.retained,
            "rows": found.n,
            "error_left": self.components.error_left,
            "status": self.status,
            "identified": self.identified,
            "verdict": self.verdict,
            "advice": self.advice,
            "converged": found.converged,
            "reason": found.reason,
            "switched": found.switched,
            "changes": list(found.changes),
            "gradients": list(found.gradients),
            "variances": white.variances.tolist(),
            "components": self.table(),
            "edges": self.edges.tolist(),
            "portraits": [asdict(one) | {"counts": one.counts.tolist()} for one in self.portraits],
            "stability": None if self.stability is None else _without_profile(self.stability),
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """The same as JSON text."""
        return json_text(self.to_dict())


def resolution_of(
    table: Table,
    found: Components,
    *,
    stability: ComponentStability | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Resolution:
    """Gather what was found about a table into one result; reads its rows once more.

    Parameters
    ----------
    table : Table
        The rows, finite.
    found : Components
        Of these rows, `ICA.found_` or from `components.independent_components`.
    stability : ComponentStability, optional
        Of the same components, from ``component_stability(..., found=found)``.
    settings : mapping, optional
        How they were found, for those who want to find them again.
    """
    if stability is not None and stability.components is not found:
        raise InputError("stability is that of another fit; ask for it with component_stability(..., found=found)")
    return Resolution(table.name, table.n, table.d, found, portraits_of(table, found), stability, dict(settings or {}))


def _without_profile(stability: ComponentStability) -> dict[str, Any]:
    """Everything but the histograms, which the portraits have."""
    return {name: value for name, value in stability.to_dict().items() if name != "profile"}
