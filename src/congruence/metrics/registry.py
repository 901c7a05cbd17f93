"""Every metric with its declared properties, which are tested."""

from __future__ import annotations

from collections.abc import Iterable

from congruence.errors import InputError
from congruence.metrics import (
    _beta_vae,
    _block_score,
    _dci,
    _explicitness,
    _factor_vae,
    _infomec,
    _irs,
    _mig,
    _modularity,
    _regression,
    _sap,
    _unsupervised,
    correlation,
    slots,
    structural,
)
from congruence.metrics.metric import Metric

METRICS: dict[str, Metric] = {
    home.DECLARED.name: home.DECLARED
    for home in (
        _infomec,
        _dci,
        _mig,
        _modularity,
        _explicitness,
        _sap,
        _irs,
        _beta_vae,
        _factor_vae,
        correlation,
        _regression,
        slots,
        _block_score,
        structural,
        _unsupervised,
    )
}


def chosen(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the metrics asked for, in order; names that are none are refused.

    "all" is every one of `METRICS`, "fast" those that take seconds for 10,000 rows.
    """
    known = f"'all', 'fast' or some of {', '.join(METRICS)}"
    groups = {"all": tuple(METRICS), "fast": tuple(name for name, metric in METRICS.items() if metric.cost == "fast")}
    if isinstance(names, str):
        if names in groups:
            return groups[names]
        raise InputError(f"metrics must be {known}, as a list; not {names!r}")
    wanted = tuple(names)
    if len(wanted) == 1 and wanted[0] in groups:
        return groups[wanted[0]]
    if not wanted:
        raise InputError(f"metrics is empty: give {known}")
    for name in wanted:
        if name not in METRICS:
            raise InputError(f"metrics must be {known}; {name!r} is not")
    if len(set(wanted)) < len(wanted):
        raise InputError(f"metrics names one twice: {', '.join(wanted)}")
    return wanted
