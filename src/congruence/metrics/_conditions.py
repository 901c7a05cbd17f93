"""Which properties of the data mislead which scores, and whether rows depend on each other.

`congruence reproduce metric-validity` shows where the entries of `MISLED` come from, except for few rows, inactive
codes, MCC of nonlinear codes (a linear correlation) and InfoM of more codes than factors (undefined for some).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from congruence.arrays import Array, Float, listing
from congruence.errors import InputError
from congruence.formatting import count, percent
from congruence.maps._protocol import protocol
from congruence.maps.dependence import Dependence, check_rows
from congruence.metrics._estimators import standardise
from congruence.metrics._infomec import InfoMEC
from congruence.metrics._own_codes import Conditional
from congruence.metrics.factors import Factor, Factors, factor_columns, has_few_levels
from congruence.rows.engine import Rows

if TYPE_CHECKING:
    from congruence.metrics._scoring import Pairing

ROWS_TO_CHECK = 50  # with fewer, rows left out together are so many that the error rises for that reason
CORRELATED = 0.1  # a factor is correlated with the others if they explain more of it, held out
CURVED = 0.05  # a code is curved if a function of its factor explains so much more of it than a line
ROWS_PER_CELL = 5  # of a table of binned code and factor, at least
ROWS_PER_CODE = 20  # of a model fitted to all codes, at least
INFORMATIVE = 0.1  # about some factor
CELLS = 200  # 20 bins of a code, 10 classes of a factor

_BINNED = {"mig", "modularity", "irs", "mean_mutual_information"}
_FITTED = {"infoe", "explicitness", "mcc_weak", "r2_linear", "r2_nonlinear", "dci_informativeness", "sis"}
_NEAR = {"structural_permutation", "structural_rigid", "structural_similarity", "structural_linear"}
MISLED = {  # which scores a property of the data misleads
    "correlated factors": {"infom", "infoc", "mig", "sap", "irs", "block_score", "mcc", "mcc_spearman"}
    | {"dci_disentanglement", "dci_completeness", "dci_informativeness", "infoe", "explicitness"}
    | {"r2_linear", "r2_nonlinear", *_NEAR} - {"structural_linear"},
    "copied codes": {"infoc", "mig", "sap", "dci_completeness", "structural_rigid"},
    "more codes than factors": {"infom", "modularity", "irs", "block_score"},
    "nonlinear codes": {"infoe", "mig", "modularity", "sap", "mcc", "mcc_weak", "r2_linear", *_NEAR},
    "inactive codes": {"infom", "infoc"},
    "few rows": _BINNED | {"infom", "infoc"},
    "few rows per code": _FITTED,
}


@dataclass(frozen=True)
class Conditions:
    """Properties of the data that mislead scores."""

    n: int
    factors: int
    codes: int  # those that vary
    inactive: int  # codes that InfoMEC leaves out, although they are informative
    correlated: float  # the largest share of a factor that the others explain, held out
    correlated_factor: str
    copies: int  # codes that copy another
    curved: float  # the most that a function of a factor explains of its code beyond a line
    curved_code: str

    def unmet(self, score: str) -> tuple[str, ...]:
        """The properties that mislead a score, by name."""
        return tuple(dict.fromkeys(name for name in self.found() if score in MISLED[name]))

    def found(self) -> dict[str, str]:
        """The properties that these data have, by their names in `MISLED`, and what was measured."""
        enough = ROWS_PER_CELL * CELLS
        measured = {
            "correlated factors": self.correlated > CORRELATED
            and f"the other factors explain {self.correlated:.2f} of the variance of {self.correlated_factor}",
            "copied codes": self.copies and f"{count(self.copies, 'code')} with the ranks of another code",
            "more codes than factors": self.codes - self.copies > self.factors
            and f"{count(self.codes, 'code')}, {count(self.factors, 'factor')}",
            "inactive codes": self.inactive
            and f"InfoMEC leaves out {count(self.inactive, 'informative code')} for the small range of values",
            "nonlinear codes": self.curved > CURVED
            and f"a curve explains {self.curved:.2f} more of the variance of {self.curved_code} than a line",
            "few rows": self.n < enough and f"{self.n}, where bins and near neighbours need {enough}",
            "few rows per code": self.n < ROWS_PER_CODE * (self.codes + 1)
            and f"{self.n} rows, where models of {count(self.codes, 'code')} need {ROWS_PER_CODE * (self.codes + 1)}",
        }
        return {name: text for name, text in measured.items() if text}


def check_conditions(
    z: Float, s: Factors, codes: Sequence[str], infomec: InfoMEC, conditional: Conditional, *, discrete_codes: bool
) -> Conditions:
    """Measure the properties of codes (n, L) and factors that mislead scores."""
    correlated = int(conditional.by_others.argmax())
    copies = np.triu(conditional.copies & (np.ptp(z, axis=0) > 0), 1).any(0)
    curved, code = 0.0, ""
    for k, factor in enumerate(s):
        if discrete_codes or factor.left_out or factor.is_unordered or factor.kind == "circular":
            continue
        j = int(np.nan_to_num(infomec.nmi[k]).argmax())
        line = float((standardise(z[:, j : j + 1]) * standardise(factor.values[:, None])).mean())
        more = float(conditional.alone[k, j]) - line**2
        if more > curved:
            curved, code = more, codes[j]
    return Conditions(
        n=len(z),
        factors=int(s.varies.sum()),
        codes=int((np.ptp(z, axis=0) > 0).sum()),
        inactive=int((~infomec.active & (np.nan_to_num(infomec.nmi).max(0) >= INFORMATIVE)).sum()),
        correlated=float(conditional.by_others[correlated]),
        correlated_factor=s.names[correlated],
        copies=int(copies.sum()),
        curved=curved,
        curved_code=code,
    )


def check_cluster(pairing: Pairing, cluster: Array | None) -> None:
    """Refuse a factor that is the name of the clusters: it cannot be predicted for a cluster that was left out.

    A number that each cluster has one value of, as the age of a patient, can.
    """
    if cluster is None or pairing.unit is None:
        return
    for factor in pairing.s:
        labels = np.unique(factor.values, return_inverse=True)[1].reshape(-1)
        pairs = len(np.unique(labels * (pairing.unit.max() + 1) + pairing.unit))
        names = factor.kind == "categorical" and not factor.note
        same = cluster.dtype.kind in "iuf" and np.array_equal(cluster.astype(np.float64), factor.values)
        if same or (names and pairs == labels.max() + 1 == pairing.unit.max() + 1):
            raise InputError(
                f"factor {factor.name} is also the cluster, so it cannot be predicted for a cluster that was left out; "
                "leave it out of the factors, or cluster by something else"
            )


def measure_row_dependence(pairing: Pairing, *, discrete_codes: bool, seed: int) -> Dependence | None:
    """Whether a linear map from codes to factors is worse on rows left out together; None where that was not checked.

    Not checked: rows with clusters or blocks, and few rows. Only factors that are numbers are predicted: rows sorted by
    class, which no map can predict for a class left out, may still be independent. Codes that repeat few values, as
    those of classes do, are no copies.
    """
    n = len(pairing.z)
    if pairing.unit is not None or n < ROWS_TO_CHECK:
        return None
    s = [factor for factor in pairing.s if not factor.left_out]
    numbers = [factor for factor in s if not factor.is_unordered]
    z = standardise(pairing.z)
    if not s or not z.any():
        return None
    target = standardise(factor_columns(numbers or s, unordered=True).values)
    found = check_rows(Rows(z), Rows(target), protocol(n, nulls=0, bootstrap=0, seed=seed), "linear")
    half_lost = found.consecutive > 1 - (1 - found.scattered) / 2  # rows sorted by a factor need not depend
    repeats = discrete_codes or all(has_few_levels(code) for code in pairing.z.T)
    return replace(
        found,
        ordered=bool(numbers) and found.ordered and half_lost,
        clustered=bool(numbers) and found.clustered,
        copies=found.copies[:0] if repeats else found.copies,
    )


def dependence_notes(found: Dependence, factors: Sequence[Factor]) -> list[str]:
    """What may have been mistaken for dependence, or copies that leave the verdict as it is (few, or exact codes)."""
    guessed = [factor.name for factor in factors if factor.is_guessed and not factor.left_out]
    if found.matters and not found.repeated and guessed:
        return [
            f"The check for dependent rows takes {listing(guessed)} as numbers. If they are names of classes, say so "
            f"with kinds (--kinds {guessed[0]}=categorical)"
        ]
    if found.matters or not len(found.copies):
        return []
    rows = f"{len(found.copies)} of {found.n} rows {'is a copy' if len(found.copies) == 1 else 'are copies'} of others"
    return [f"{rows}. Intervals are too narrow, because each copy counts as a row; leave copies out"]


def dependence_sentence(found: Dependence) -> str:
    """What was found, and what to do."""
    if found.repeated:
        return (
            f"{len(found.copies)} of {found.n} rows are copies of others; leave them out, or give each set of copies a "
            "label as cluster (--cluster)."
        )
    how, value, then = "rows with similar codes are left out together", found.neighbours, "cluster (--cluster)"
    if found.ordered:
        how, value = "consecutive rows are left out together", found.consecutive
        then = "order_blocks (--order-blocks) or cluster (--cluster)"
    return (
        f"The error of a linear map from codes to factors rises from {percent(found.scattered)} to {percent(value)} of "
        f"chance where {how}; state which rows belong together with {then}."
    )
