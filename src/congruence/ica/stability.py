"""`component_stability`: are components reproduced from other random starts and on resampled rows?

A component is a direction in the space of all whitened rows, and the correlation of two components over all rows is the
cosine of their directions: no pass over the rows is needed to compare two fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, is_tensor, listing, to_numpy
from congruence.checks import check_integer, check_integers
from congruence.errors import InputError
from congruence.ica._halves import directions, whitened_space
from congruence.ica._icasso import Clusters, cluster_components
from congruence.ica._linear import open_rows
from congruence.ica._point import random_rotation
from congruence.ica._unmixing import MAX_ITER, PreparedRows, Unmixing, first_components, prepare_rows
from congruence.ica.components import TOLERANCE, Components, check_fit, components_of, warn_unless_converged
from congruence.ica.estimator import ICA
from congruence.ica.profiles import profile_components
from congruence.ica.results import Agreement, ComponentStability, StabilityPoint
from congruence.progress import Progress, Steps
from congruence.stats.matching import matched_correlations
from congruence.stats.resampling import Units, units_of
from congruence.tables import Table, as_table, is_table
from congruence.tables.table import as_labels, missing_labels

CURVE_RESTARTS, CURVE_BOOTSTRAP = 3, 5  # at most, for every number of components on the curve
FEW_CLUSTERS = 10  # below this a bootstrap over clusters has too few independent cases
RESTART, DRAW = 0, 1  # the purpose of a stream of random numbers
CHANCE_COMPONENTS = 2000  # drawn in all


def component_stability(
    X: Any,
    *,
    n_components: int | float | None = None,
    contrast: str = "logcosh",
    whiten: bool = True,
    standardize: bool = False,
    normalize: str | None = None,
    restarts: int = 10,
    bootstrap: int = 20,
    cluster: Any = None,
    curve: Sequence[int] = (),
    rows: int | str = "all",
    tol: float = TOLERANCE,
    max_iter: int = MAX_ITER,
    seed: int = 0,
    device: str = "auto",
    found: Components | None = None,
    progress: Progress | None = None,
) -> ComponentStability:
    """Measure which independent components of X are reproduced from other random starts and on resampled rows.

    The components of all rows are compared with those found from other random starts, and with those of bootstrap
    resamples: whitened by their own moments, in their own principal directions, from a random start. There are two
    comparisons: every component with its partner in every other fit (matched one to one), and clusters of the
    components of all fits together (Icasso).

    Parameters
    ----------
    X : (n, d)
        Anything that `congruence.tables.as_table` takes, or an iterator of chunks.
    n_components : as of `ICA`
    contrast : as of `ICA`
    whiten : as of `ICA`
    standardize : as of `ICA`
    normalize : as of `ICA`
    restarts : number of fits of the same rows from other random starts
    bootstrap : number of fits of resampled rows
    cluster : array of shape (n,), or name of a metadata column of a table, optional
        Rows of one cluster (patient, plate, document) are resampled together.
    curve : sequence of int
        Further numbers of components to try, each with at most 3 restarts and 5 resamples.
    rows : int, "all" or "auto"
        Number of rows used to fit the rotation, as of `ICA`; the rows chosen are those that are resampled.
    tol : as of `ICA`
    max_iter : as of `ICA`
    seed : int
    device : as of `ICA`
    found : Components, optional
        The components to assess, from a fit of X with the same arguments (`ICA.found_`, perhaps the best of several
        starts); by default those of a fit from two random starts.
    progress : callable, optional
        Called as progress(what, done, total) while working.

    Returns
    -------
    ComponentStability
        Correlations are absolute values over all rows: 0 to 1, 1 is a component that is reproduced exactly. `chance`
        is the mean for a random rotation.

    References
    ----------
    Himberg, Hyvärinen & Esposito 2004 (Icasso); Meinecke, Ziehe, Kawanabe & Müller 2002 (resampling).

    Examples
    --------
    >>> import numpy as np
    >>> from congruence import component_stability
    >>> rng = np.random.default_rng(0)
    >>> sources = np.column_stack([rng.laplace(size=(4000, 2)), rng.normal(size=(4000, 2))])
    >>> stability = component_stability(sources @ rng.normal(size=(4, 4)), restarts=3, bootstrap=5)
    >>> stability.stable.tolist()
    [True, True, False, False]
    >>> stability["ica3"]["problem"]
    'gaussian'
    """
    check_integers(0, restarts=restarts, bootstrap=bootstrap, seed=seed)
    check_fit(rows, tol, max_iter)
    if restarts + bootstrap == 0:
        raise InputError("restarts and bootstrap are both 0, so there is nothing to compare the components with")
    table = as_table(X, name="X") if is_table(X) else None
    X = X if table is None else table.values
    readable = is_tensor(X) or isinstance(X, (np.memmap, Iterator)) or hasattr(X, "chunks")
    data = open_rows(ICA(normalize=normalize), X if readable else as_matrix(X, "X"), reset=True)
    labels = cluster_labels(cluster, table, len(data))
    units = units_of(labels, len(data))
    wishes: dict[str, Any] = {"n_components": n_components, "contrast": contrast, "device": device}
    prepared = prepare_rows(data, **wishes, whiten=whiten, standardize=standardize)
    numbers = _check_curve(curve, prepared)
    few = 1 + min(restarts, CURVE_RESTARTS) + min(bootstrap, CURVE_BOOTSTRAP)
    step = Steps(progress, 1 + restarts + bootstrap + len(numbers) * few)

    options: dict[str, Any] = {"tol": tol, "max_iter": max_iter}
    if found is None:
        found = components_of(prepared, n_components, rows, seed, starts=2, **options)
        warn_unless_converged(found.unmixing)
    else:
        one, other = found.whitening.matrix, prepared.whitening.matrix
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-6, atol=1e-9 * np.abs(other).max()):
            raise InputError("found holds components of other rows, or of another number of directions, than X has")
    step("components of all rows")
    plan = _Plan(found.rows, units.within(found.rows), seed, options, step, whitened_space(prepared))
    fits, agreement = plan.refit(prepared, found.unmixing, restarts, bootstrap)
    clusters = cluster_components([directions(fit.unmixing, plan.space) for fit in (found.unmixing, *fits)])
    points = [plan.point(prepared.retain(k), restarts, bootstrap) for k in numbers]
    mixing, scale = found.unmixing.mixing, found.whitening.scale
    if standardize:  # shares of the variance of the scaled columns
        mixing, scale = mixing / np.where(scale > 0, scale, 1.0)[:, None], np.sign(scale)
    return ComponentStability(
        components=found,
        agreement=agreement,
        clusters=clusters,
        chance=chance_agreement(found.unmixing.k, seed),
        variance_share=np.square(mixing).sum(0) / np.square(scale).sum(),
        curve=tuple(points),
        profile=profile_components(data, found.unmixing),
        ids=None if table is None else table.ids,
        notes=(*(() if table is None else table.notes), *_notes(fits, clusters, plan, labels is not None)),
        settings={"n": len(data), "n_components": found.unmixing.k, "contrast": contrast, "whiten": whiten}
        | {"standardize": standardize, "normalize": normalize, "restarts": restarts, "bootstrap": bootstrap}
        | {"clusters": None if labels is None else plan.units.count, "rows": found.unmixing.n, "seed": seed}
        | {"device": prepared.device},
    )


@dataclass(frozen=True, eq=False)
class _Plan:
    """Which rows are fitted, how they are resampled, and with which random numbers."""

    rows: Array | None  # (m,) or all
    units: Units
    seed: int
    options: dict[str, Any]  # of the solver
    step: Steps
    space: Float  # see `whitened_space`

    def refit(
        self, prepared: PreparedRows, base: Unmixing, restarts: int, bootstrap: int
    ) -> tuple[list[Unmixing], Agreement]:
        """Fits from other starts, then of resampled rows, and their agreement with `base`."""
        fits = []
        same = prepared.subset(self.rows)
        for i in range(restarts):
            fits.append(same.unmix(seed=self._stream(RESTART, i), **self.options))
            self.step("other starts")
        for i in range(bootstrap):
            rng = self._stream(DRAW, i)
            fits.append(prepared.resample(self.units.draw(rng)).unmix(seed=rng, **self.options))
            self.step("resampled rows")
        fits = [first_components(fit, base.k) for fit in fits]
        ours = directions(base.unmixing, self.space)
        matched = np.array([matched_to(ours, directions(fit.unmixing, self.space)) for fit in fits])
        return fits, Agreement(matched[:restarts], matched[restarts:])

    def point(self, prepared: PreparedRows, restarts: int, bootstrap: int) -> StabilityPoint:
        """One point of the curve; every point has the same starts and the same resamples."""
        base = prepared.subset(self.rows).unmix(seed=self.seed, **self.options)
        self.step(f"{base.k} components")
        few = min(restarts, CURVE_RESTARTS), min(bootstrap, CURVE_BOOTSTRAP)
        _, agreement = self.refit(prepared, base, *few)
        variances = prepared.whitening.variances
        return StabilityPoint(
            n_components=base.k,
            variance_share=float(variances[: base.k].sum() / variances.sum()),
            identified=int(base.identified.sum()),
            stable=int((base.identified & agreement.stable).sum()),
            restarts=float(agreement.restarts_mean.mean()),
            bootstrap=float(agreement.median.mean()),
            chance=chance_agreement(base.k, self.seed),
        )

    def _stream(self, purpose: int, i: int) -> np.random.Generator:
        """An independent random generator for each fit, so that more fits do not change the first ones."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose, i)))


def _notes(fits: list[Unmixing], clusters: Clusters | None, plan: _Plan, clustered: bool) -> Iterator[str]:
    capped = sum(fit.reason == "cap" for fit in fits)
    if capped:
        yield f"{capped} of {len(fits)} further fits had not converged when they reached max_iter passes."
    if clusters is None and len(fits) >= 2:
        yield f"The {len(fits) + 1} fits have too many components to be clustered; see the matched correlations."
    elif clusters is not None and clusters.runs <= len(fits):
        yield f"Only {clusters.runs} of {len(fits) + 1} fits were clustered, because memory grows with their square."
    if clustered and plan.units.count < FEW_CLUSTERS:
        yield f"There are only {plan.units.count} clusters, so the bootstrap has that few independent cases."


def _check_curve(curve: Sequence[int], prepared: PreparedRows) -> list[int]:
    if isinstance(curve, (str, int)):
        raise InputError(f"curve must be a sequence of numbers of components; got {curve!r}")
    if len(curve) and not prepared.whiten:
        raise InputError("a curve chooses how many directions to whiten, so it needs whiten=True")
    return [check_integer(f"curve[{i}]", k, 1, prepared.whitening.rank) for i, k in enumerate(curve)]


def cluster_labels(cluster: Any, table: Table | None, n: int) -> Array | None:
    """Return the label of every row, shape (n,), from labels or from the name of a metadata column of the table."""
    if cluster is None:
        return None
    if isinstance(cluster, str):
        if table is None:
            raise InputError(f"cluster={cluster!r} names a metadata column, but X has none; pass the labels")
        column = next((name for name in (cluster, f"Metadata_{cluster}") if name in table.metadata), None)
        if column is None:
            known = ", ".join(table.metadata) or "none"
            raise InputError(f"{table.name} has no metadata column {cluster!r}; it has {known}")
        cluster = table.metadata[column]
    labels = to_numpy(cluster)
    if labels.shape != (n,):
        raise InputError(f"cluster must have one label per row, shape ({n},), but has shape {labels.shape}")
    missing = np.flatnonzero(missing_labels(labels))
    if missing.size:
        raise InputError(f"cluster has missing labels (row {listing(missing)})")
    return as_labels(labels)


def matched_to(base: Float, other: Float) -> Float:
    """Return the |correlation| of every component of `base` (k, r) with its partner in `other` (m, r), shape (k,).

    Partners are matched one to one so that the sum is largest. From 0 to 1, higher is closer; 0 for components without
    a partner because the other fit has fewer.
    """
    return np.minimum(matched_correlations(base @ other.T), 1.0)


def chance_agreement(k: int, seed: int = 0) -> float:
    """Return the mean matched |correlation| of k components with a random rotation of themselves.

    0.9 for 2 components, 0.5 for 16, 0.2 for 256.
    """
    rng = np.random.default_rng(seed)
    draws = max(3, CHANCE_COMPONENTS // k)
    return float(np.mean([matched_to(np.eye(k), random_rotation(k, rng)).mean() for _ in range(draws)]))
