"""Independent components of rows: options, the choice of rows, and checks of the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import f

from congruence.arrays import Array, Float, as_matrix, to_numpy
from congruence.checks import check_integers, check_number
from congruence.errors import InputError, NotConvergedWarning, warn_caller
from congruence.formatting import count
from congruence.ica._halves import blocks_of, check_components, error_limit, pair_errors, units
from congruence.ica._point import polar
from congruence.ica._spectral import rows_needed
from congruence.ica._unmixing import MAX_ITER, PreparedRows, first_components, prepare_rows
from congruence.ica._unmixing import Unmixing as Unmixing
from congruence.ica._whitening import Whitening

TOLERANCE = 1e-4
STARTS = 3  # the default number of random starts
ROUNDING_TURN = 1e-5  # radians: rounding of float32 products may turn components by this indefinitely
FIRST = 100  # rows per component in the first half that is tried
TARGET = 0.05  # radians of error that may be left when rows are chosen automatically


@dataclass(frozen=True, eq=False)
class Components:
    """Independent components, and the whitening of the rows."""

    whitening: Whitening
    unmixing: Unmixing
    error_left: float | None  # upper 95 % limit of how far more rows would turn the components, where rows were chosen
    rows: Array | None = None  # (m,) the rows that the rotation was fitted to, if not all


def independent_components(
    data: Any,
    *,
    n_components: int | float | None = None,
    contrast: str = "logcosh",
    whiten: bool = True,
    standardize: bool = False,
    starts: int = STARTS,
    check: bool = True,
    cluster: Array | None = None,
    rows: int | str = "all",
    tol: float = TOLERANCE,
    max_iter: int = MAX_ITER,
    seed: int | np.random.Generator = 0,
    start: Float | None = None,
    device: str = "auto",
    unit: float | None = None,
) -> Components:
    """Find the independent components of the rows of `data`, shape (n, d).

    The parameters are those of `ICA`, except for the following.

    Parameters
    ----------
    data : numpy array, memory map, tensor on any device, or `DaskRows`
    n_components : int, float or None
        With ``whiten=False``, the number of components to keep after the rotation.
    contrast : as of `ICA`
    whiten : as of `ICA`
    standardize : as of `ICA`
    starts : as of `ICA`
    check : as of `ICA`
    cluster : (n,), optional
        The cluster of every row, for the check: clusters are not divided between the halves.
    rows : as of `ICA`
    tol : as of `ICA`
    max_iter : as of `ICA`
    seed : int or Generator
    start : `w_init` of `ICA`
    device : as of `ICA`
    unit : float, optional
        With ``whiten=False``, the size of rows at which the contrast sees them as 1: by default the root mean square
        along their longest axis, so that components do not depend on units.
    """
    check_fit(rows, tol, max_iter, starts)
    wishes: dict[str, Any] = {"n_components": n_components, "contrast": contrast, "device": device, "unit": unit}
    prepared = prepare_rows(data, whiten=whiten, standardize=standardize, **wishes)
    options: dict[str, Any] = {"starts": starts, "tol": tol, "max_iter": max_iter}
    return components_of(prepared, n_components, rows, seed, start, check=check, labels=cluster, **options)


def check_fit(rows: Any, tol: Any, max_iter: Any, starts: Any = 1) -> None:
    """Check the options of a fit."""
    check_integers(1, starts=starts, max_iter=max_iter)
    whole = isinstance(rows, int | np.integer) and not isinstance(rows, bool)
    if rows not in ("all", "auto") and not (whole and rows >= 2):
        raise InputError(f"rows must be 'all', 'auto' or an integer of at least 2; got {rows!r}")
    check_number("tol", tol, 0, open_low=True)


def components_of(
    prepared: PreparedRows,
    n_components: int | float | None = None,
    rows: int | str = "all",
    seed: int | np.random.Generator = 0,
    start: Float | None = None,
    *,
    check: bool = False,
    labels: Array | None = None,
    **options: Any,
) -> Components:
    """Find the components of rows whose whitening is known; `options` are those of `Sample.unmix`.

    `check` is that of `independent_components`, and `labels` its `cluster`.
    """
    rng, n = np.random.default_rng(seed), len(prepared.data)
    start, options["seed"] = _as_rotation(start, prepared.whitening.retained), rng
    left = None
    if rows == "auto":
        unmixing, index, left = _enough_rows(prepared, rng, start, options)
    else:
        index = None if rows == "all" or int(rows) >= n else np.sort(rng.permutation(n)[: int(rows)])
        unmixing = prepared.subset(index).unmix(start=start, **options)
    if check:
        limits: dict[str, Any] = {"starts": 1, "tol": TOLERANCE, "max_iter": MAX_ITER}
        limits |= {name: options[name] for name in limits if name in options}
        unmixing = check_components(prepared, unmixing, index, labels, rng, **limits)
        if left is not None and not np.isnan(unmixing.sampling_error).any():
            left = _upper_limit(prepared, unmixing, index)  # of the components that are still identified
    if not prepared.whiten:  # the rotation alone, without the unit
        unit = prepared.whitening.inverse[0, 0]
        unmixing = replace(unmixing, unmixing=unmixing.unmixing * unit, mixing=unmixing.mixing / unit)
        unmixing = first_components(unmixing, n_components)
    return Components(prepared.whitening, unmixing, left, index)


def _enough_rows(
    prepared: PreparedRows, rng: np.random.Generator, start: Float | None, options: dict[str, Any]
) -> tuple[Unmixing, Array | None, float]:
    """Double two disjoint halves until they agree, then use both; all rows (None) where they never do."""
    inverse, n = prepared.whitening.inverse, len(prepared.data)
    order = rng.permutation(n)
    half = max(2000, FIRST * prepared.whitening.retained)
    while 2 * half < n:
        first, second = (prepared.subset(np.sort(order[i * half : (i + 1) * half])) for i in range(2))
        halves = first.unmix(start=start, **options), second.unmix(**options)  # from one start they agree too easily
        rotations = [fit.unmixing @ inverse for fit in halves]
        match = np.abs(rotations[0] @ rotations[1].T)
        angles = [np.arccos(np.minimum(match.max(axis), 1)) for axis in (1, 0)]
        sure = np.concatenate([angle[fit.identified] for angle, fit in zip(angles, halves, strict=True)])
        left = _nine_in_ten(sure) / 2  # both halves together err half as much as they differ
        if left <= TARGET:
            index = np.sort(order[: 2 * half])
            fit = prepared.subset(index).unmix(start=rotations[0], near=True, **options)
            left = _upper_limit(prepared, fit, index, left)
            if left <= TARGET:
                return fit, index, left
        half *= int(min(8, max(2, np.ceil((left / TARGET) ** 2))))  # `left` is infinite where neither half is sure
    fit = prepared.subset(None).unmix(start=start, **options)
    return fit, None, _upper_limit(prepared, fit, None)


def _upper_limit(prepared: PreparedRows, fit: Unmixing, index: Array | None, left: float = np.nan) -> float:
    """The angle that nine in ten identified components err by less than, with 95 % confidence.

    `left` is an estimate of that angle from two halves of the rows, which is used where errors are unknown.
    """
    if not fit.identified.any():
        return np.inf
    if np.isnan(fit.sampling_error).any():
        return left * float(np.sqrt(f.ppf(0.95, fit.k - 1, fit.k - 1)))  # two such angles are equally distributed
    block = blocks_of(units(prepared), len(prepared.data), index)
    pairs, _ = pair_errors(prepared.subset(index), fit.unmixing, block)
    limit = _nine_in_ten(error_limit(pairs[fit.identified]))
    return limit if np.isnan(left) else max(left, limit)


def _nine_in_ten(angles: Float) -> float:
    return float(np.quantile(angles, 0.9)) if angles.size else np.inf


def _as_rotation(start: Any, k: int) -> Float | None:
    """The orthogonal matrix nearest to a start, which must be k x k."""
    if start is None:
        return None
    start = as_matrix(start, "the start")
    if start.shape != (k, k):
        raise InputError(f"the start must be a matrix of shape {(k, k)}; got shape {tuple(start.shape)}")
    start = to_numpy(start).astype(np.float64)
    if np.linalg.matrix_rank(start) < k:
        raise InputError("the start has linearly dependent rows, so no rotation is nearest to it")
    rotation: Float = polar(start)
    return rotation


def advice(unmixing: Unmixing) -> str:
    """Return why the solver did not converge, and what to do about it; empty where it did."""
    if unmixing.converged:
        return ""
    enough, few = max(100 * unmixing.k, 2 * rows_needed(unmixing.k)), ""
    if 2 * unmixing.n < enough:
        few = f"{unmixing.n} rows are few for {unmixing.k} components (aim for {enough}). "
    if unmixing.reason == "gaussian":
        return (
            f"No component is distinguishable from Gaussian noise, so all axes may be arbitrary. {few}Use more rows or "
            "fewer components, or keep the whitened rows."
        )
    noise = int(unmixing.noise.sum())
    near = f"{noise} of {unmixing.k} components are nearly Gaussian. " if noise else ""
    remedy = "Raise max_iter (--max-iter), or use fewer components."
    if unmixing.changes[-1] < ROUNDING_TURN:
        remedy = "Rounding may prevent convergence; raise tol (--tol)."
    return (
        f"ICA did not converge: after {unmixing.iterations} passes the components still turned by "
        f"{unmixing.changes[-1]:.1e} radians (gradient {unmixing.gradients[-1]:.1e} of that of a random rotation). "
        f"{near}{few}{remedy}"
    )


def fewer_than_requested(n_components: Any, components: Components) -> str:
    """Return a sentence where more components were requested than there are directions; empty where not."""
    k, rank = components.unmixing.k, components.whitening.rank
    if n_components is None or n_components <= k:
        return ""
    found = f"the rows vary in {count(rank, 'direction')}, so there {'is' if k == 1 else 'are'} {k}"
    return f"{int(n_components)} components were requested, but {found}."


def warn_unless_converged(unmixing: Unmixing) -> None:
    """Warn, with the reason and what to do, where the solver did not converge."""
    if not unmixing.converged:
        warn_caller(advice(unmixing), NotConvergedWarning)
