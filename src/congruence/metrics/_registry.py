"""Every metric with its declared properties, which are tested, and its name and meaning in reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from congruence.checks import check_names
from congruence.metrics._binned import irs, mig, modularity
from congruence.metrics._dci import dci
from congruence.metrics._explicitness import explicitness
from congruence.metrics._infomec import infomec
from congruence.metrics._mcc import CorrelationScores, mcc
from congruence.metrics._regression import RegressionScores, regression
from congruence.metrics._sampled import beta_vae, factor_vae
from congruence.metrics._sap import sap
from congruence.metrics._slots import block_score, sis
from congruence.metrics._structural import GROUPS, structural_nearness
from congruence.metrics._unsupervised import Dependence, unsupervised

HIGHER, LOWER = "higher is better", "lower is better"


@dataclass(frozen=True)
class Metric:
    """One metric of codes against factors.

    `invariant_to` names what may be done without changing the value: to the codes "permutation" (their order), "sign"
    (of each), "scale" (one factor for all), "scales" (each its own), "shift", "monotone" (an increasing function of
    each), "rotation", "linear"; to the factors "factor order" and "relabelling" (of classes).
    """

    name: str
    function: Callable[..., Any]  # of codes (n, L) and factors (n, K); its result has `scores` and `reasons`
    scores: tuple[str, ...]  # headline scores, in order
    range: tuple[float, float]  # the least and the largest value of each
    direction: str  # "higher is better" or "lower is better"
    invariant_to: frozenset[str]
    cost: str  # "fast": seconds for 10,000 rows; "minutes"
    reference: str
    supervised: bool = True  # whether it uses the factors


_UNIT = (0.0, 1.0)
_SIGNED = (-1.0, 1.0)
_TO_ONE = (-math.inf, 1.0)
_FROM_ZERO = (0.0, math.inf)
_EACH = frozenset({"permutation", "sign", "scale", "scales", "shift"})
_SLOTS, _UNSCALED = _EACH - {"permutation"}, _EACH - {"scale", "scales"}
_SHIFTED = frozenset({"permutation", "shift"})
_ORDER = frozenset({"factor order"})
_FACTORS = _ORDER | {"relabelling"}
_UNSIGNED = _EACH - {"sign"} | _FACTORS
_INFOMEC = ("infom", "infoe", "infoc")
_DCI_SCORES = ("dci_disentanglement", "dci_completeness", "dci_informativeness")
_NEARNESS = tuple(f"structural_{group}" for group in GROUPS)
_R2, _DEPENDENCE = RegressionScores.headline, Dependence.headline
_HSU, _RIDGEWAY, _LOCATELLO = "Hsu et al. 2023", "Ridgeway & Mozer 2018", "Locatello et al. 2019"
_NELSON = "Nelson et al. 2026, Definition 2"

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("infomec", infomec, _INFOMEC, _TO_ONE, HIGHER, _EACH - {"scales"} | _FACTORS, "fast", _HSU),
        Metric("dci", dci, _DCI_SCORES, _UNIT, HIGHER, _EACH | _FACTORS, "minutes", "Eastwood & Williams 2018"),
        Metric("mig", mig, ("mig",), _UNIT, HIGHER, _UNSIGNED, "fast", "Chen et al. 2018"),
        Metric("modularity", modularity, ("modularity",), _UNIT, HIGHER, _UNSIGNED, "fast", _RIDGEWAY),
        Metric("explicitness", explicitness, ("explicitness",), _UNIT, HIGHER, _EACH | _FACTORS, "fast", _RIDGEWAY),
        Metric("sap", sap, ("sap",), _UNIT, HIGHER, _FACTORS | {"permutation", "sign"}, "fast", "Kumar et al. 2018"),
        Metric("irs", irs, ("irs",), _SIGNED, HIGHER, _EACH - {"scales"} | _ORDER, "fast", "Suter et al. 2019"),
        Metric("beta_vae", beta_vae, ("beta_vae",), _UNIT, HIGHER, _UNSCALED, "fast", "Higgins et al. 2017"),
        Metric("factor_vae", factor_vae, ("factor_vae",), _UNIT, HIGHER, _EACH, "fast", "Kim & Mnih 2018"),
        Metric("mcc", mcc, CorrelationScores.headline, _UNIT, HIGHER, _EACH | _ORDER, "fast", "Khemakhem et al. 2020"),
        Metric("regression", regression, _R2, _TO_ONE, HIGHER, _EACH | _ORDER, "minutes", _HSU),
        Metric("sis", sis, ("sis",), _SIGNED, HIGHER, _SLOTS, "minutes", "Brady et al. 2023"),
        Metric("block_score", block_score, ("block_score",), _UNIT, HIGHER, _SLOTS, "fast", "Lachapelle et al. 2023"),
        Metric(
            "structural_nearness", structural_nearness, _NEARNESS, _FROM_ZERO, LOWER, _EACH | _ORDER, "fast", _NELSON
        ),
        Metric("unsupervised", unsupervised, _DEPENDENCE, _FROM_ZERO, LOWER, _SHIFTED, "fast", _LOCATELLO, False),
    )
}

METRIC_MEANINGS = {  # the name of a metric in reports, and what its scores measure together
    "infomec": (
        "InfoMEC",
        "how information is distributed: each code should be informative about one factor only (InfoM), each factor be "
        "encoded by one code only (InfoC), and a linear readout of all codes should predict it (InfoE).",
    ),
    "dci": (
        "DCI",
        "trees predict the factors; the score is which codes they use: each code for one factor (disentanglement), one "
        "code for each factor (completeness), and how well they predict (informativeness).",
    ),
    "mig": ("MIG", "whether one code, and no other, encodes a factor. It does not measure what else the code encodes."),
    "modularity": ("Modularity", "whether a code encodes one factor only; codes that encode nothing count 0."),
    "explicitness": (
        "Explicitness",
        "whether the classes are linearly separable; 0.5 is chance, and a rotation does not change it.",
    ),
    "sap": ("SAP", "how much worse a factor is predicted by the second best single code than by the best."),
    "irs": ("IRS", "whether a code stays constant when only factors other than its own change."),
    "beta_vae": (
        "BetaVAE",
        "a linear classifier predicts which factor pairs of rows share; rotated codes can score 1 too.",
    ),
    "factor_vae": ("FactorVAE", "the code with the least variance predicts which factor was fixed."),
    "mcc": (
        "MCC",
        "how well factors and codes correlate when they are matched one to one; the weak one allows a linear map "
        "first, so a rotation does not change it.",
    ),
    "regression": ("R²", "whether all codes together contain the factors; a rotation does not change it."),
    "sis": ("SIS", "whether each slot of codes encodes one object, and no other slot anything of it."),
    "block_score": ("Block score", "whether each group of factors is a function of one block of codes."),
    "structural_nearness": (
        "Structural nearness",
        "how far the codes are from the factors after the best map of a group, as a share of the factors’ diameter.",
    ),
    "unsupervised": (
        "Without factors",
        "how dependent the codes are on each other; independent codes need not be the factors.",
    ),
}

_BINNED = "It is computed from bins: its bias at this number of rows exceeds its spread."
_NEIGHBOURS = "It is computed from near neighbours: its bias at this number of rows may exceed its spread."
_FITTED = "It grows with the number of rows that a model is fitted to, so it has no value for more rows to cover."
_IN_SAMPLE = "It is in sample: it falls as the number of rows grows, by more than its spread."
NO_INTERVAL = {  # scores whose intervals, from subsamples of the rows, do not cover the value of many rows; and why
    **dict.fromkeys(("mig", "modularity", "irs"), _BINNED),
    **dict.fromkeys(("infom", "infoc"), _NEIGHBOURS),
    "infoe": _IN_SAMPLE,
    **dict.fromkeys(_DEPENDENCE, "Sampling errors count as dependence: it falls as the number of rows grows."),
    **dict.fromkeys(("explicitness", "sap", "beta_vae", "factor_vae", "r2_nonlinear", "sis", "block_score"), _FITTED),
    **dict.fromkeys(_DCI_SCORES, _FITTED),
    **dict.fromkeys(_NEARNESS, "It is a share of the diameter, which grows with the number of rows."),
}

SCORES = {  # the name of a score in reports, and the question it answers
    "infom": ("InfoM", "is each code informative about one factor only?"),
    "infoe": ("InfoE", "does a linear readout of all codes predict the factors?"),
    "infoc": ("InfoC", "is each factor encoded by one code only?"),
    "dci_disentanglement": ("DCI disentanglement", "is each code used for one factor only?"),
    "dci_completeness": ("DCI completeness", "is one code enough to predict each factor?"),
    "dci_informativeness": ("DCI informativeness", "can trees predict the factors from all codes?"),
    "mig": ("MIG", "how far is the best code for a factor ahead of the next?"),
    "modularity": ("Modularity", "is each code informative about one factor only (binned)?"),
    "sap": ("SAP", "how much better does the best single code predict than the next?"),
    "explicitness": ("Explicitness", "can a linear classifier separate the classes?"),
    "beta_vae": ("BetaVAE score", "can a classifier predict which factor pairs of rows share?"),
    "factor_vae": ("FactorVAE score", "does the code with the least variance show which factor was fixed?"),
    "irs": ("IRS", "does a code stay constant while other factors change?"),
    "mcc": ("MCC", "how well do codes correlate with factors, matched one to one?"),
    "mcc_spearman": ("MCC, ranks", "the same for ranks, so that any increasing function is allowed"),
    "mcc_weak": ("MCC, weak", "the same after the best linear map"),
    "r2_linear": ("R², linear", "how much of the factors does a linear regression on all codes explain?"),
    "r2_nonlinear": ("R², nonlinear", "how much does a nonlinear regression on all codes explain?"),
    "sis": ("SIS", "does each slot encode one object and nothing about the others?"),
    "block_score": ("Block score", "is each group of factors a function of one block of codes?"),
    "total_correlation": ("Total correlation", "how dependent are the codes, as Gaussians?"),
    "wasserstein_correlation": ("Wasserstein correlation", "how far are they from independent codes, as Gaussians?"),
    "wasserstein_correlation_norm": ("Wasserstein correlation, share", "the same as a share of the variance"),
    "mean_mutual_information": ("Mean information", "how informative is one code about another?"),
    "structural_permutation": ("Nearness, permutation", "how far from the factors, up to order and sign?"),
    "structural_rigid": ("Nearness, rigid", "how far from the factors, up to a rotation?"),
    "structural_similarity": ("Nearness, similarity", "how far from the factors, up to a rotation and a scale?"),
    "structural_linear": ("Nearness, linear", "how far from the factors, up to any linear map?"),
}


def select_metrics(names: str | Iterable[str]) -> tuple[str, ...]:
    """The names of the wanted metrics, in order; "all", "fast" or a list of names of `METRICS`."""
    fast = [name for name, metric in METRICS.items() if metric.cost == "fast"]
    return check_names("metrics", names, METRICS, shortcuts={"all": METRICS, "fast": fast})
