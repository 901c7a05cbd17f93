"""`component_stability`: are components reproduced from other random starts and on resampled rows?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, is_tensor
from congruence.errors import InputError
from congruence.ica._resampling import cluster_labels
from congruence.ica.agreement import chance_agreement, directions, matched_to, whitened_space
from congruence.ica.components import Components, components_of, first_components
from congruence.ica.estimator import ICA
from congruence.ica.icasso import Clusters, cluster_components
from congruence.ica.opening import open_rows
from congruence.ica.profile import profile_components
from congruence.ica.samples import PreparedRows, prepare_rows
from congruence.ica.stabilities import Agreement, ComponentStability, CurvePoint
from congruence.ica.unmix import MAX_ITER, TOLERANCE, Unmixing, warn_unless_converged
from congruence.progress import Progress, Steps
from congruence.stats.resampling import Units, units_of
from congruence.tables import as_table, is_table

CURVE_RESTARTS, CURVE_BOOTSTRAP = 3, 5  # at most, for every number of components on the curve
FEW_CLUSTERS = 10  # below this a bootstrap over clusters draws from too few cases
RESTART, DRAW = 0, 1  # what a stream of random numbers is for


def component_stability(
    X: Any,
    *,
    n_components: int | float | None = None,
    contrast: str = "logcosh",
    whiten: bool = True,
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
    n_components, contrast, whiten, rows, tol, max_iter, device
        As of `ICA`. With ``rows``, the rows chosen for the fit are those that are resampled.
    restarts : int
        Number of fits of the same rows from other random starts.
    bootstrap : int
        Number of fits of resampled rows.
    cluster : array of shape (n,), or name of a metadata column of a table, optional
        Rows of one cluster (patient, plate, document) are resampled together.
    curve : sequence of int
        Further numbers of components to try, each with at most 3 restarts and 5 resamples.
    seed : int
        The same seed gives the same result.
    found : Components, optional
        The components to assess, from a fit of X with the same arguments (`ICA.found_`, perhaps the best of several
        starts); by default those of one fit from one random start.
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
    >>> found = component_stability(sources @ rng.normal(size=(4, 4)), restarts=3, bootstrap=5)
    >>> found.stable.tolist()
    [True, True, False, False]
    >>> found["ica3"]["problem"]
    'gaussian'
    """
    _check_counts(restarts=restarts, bootstrap=bootstrap, seed=seed)
    if restarts + bootstrap == 0:
        raise InputError("restarts and bootstrap are both 0, so there is nothing to compare the components with")
    data, labels, ids, told = _open(X, cluster)
    units = units_of(labels, len(data))
    prepared = prepare_rows(data, n_components=n_components, contrast=contrast, whiten=whiten, device=device)
    numbers = _check_curve(curve, prepared)
    steps = (
        1 + restarts + bootstrap + len(numbers) * (1 + min(restarts, CURVE_RESTARTS) + min(bootstrap, CURVE_BOOTSTRAP))
    )
    tell = Steps(progress, steps)

    if found is None:
        found = components_of(prepared, rows=rows, tol=tol, max_iter=max_iter, seed=seed)
        found = found if whiten else replace(found, unmixing=first_components(found.unmixing, n_components))
        warn_unless_converged(found.unmixing)
    _check_found(found, prepared)
    tell("components of all rows")
    plan = _Plan(found.rows, units.within(found.rows), seed, {"tol": tol, "max_iter": max_iter})
    space = whitened_space(prepared)
    fits = _fits(prepared, plan, found.unmixing.k, restarts, bootstrap, tell)
    base, others = directions(found.unmixing.unmixing, space), [directions(fit.unmixing, space) for fit in fits]
    clusters = cluster_components([base, *others])
    points = [_point(prepared.retaining(k), plan, space, restarts, bootstrap, tell) for k in numbers]
    return ComponentStability(
        components=found,
        agreement=_agreement(base, others, restarts),
        clusters=clusters,
        chance=chance_agreement(found.unmixing.k, seed),
        variance_share=_variance_share(found, prepared),
        curve=tuple(points),
        profile=profile_components(data, found.unmixing),
        ids=ids,
        notes=(*told, *_notes(fits, clusters, plan, labels is not None)),
        settings={
            "n": len(data),
            "n_components": found.unmixing.k,
            "contrast": contrast,
            "whiten": whiten,
            "restarts": restarts,
            "bootstrap": bootstrap,
            "clusters": None if labels is None else plan.units.count,
            "rows": found.unmixing.n,
            "seed": seed,
            "device": prepared.device,
        },
    )


@dataclass(frozen=True, eq=False)
class _Plan:
    """Which rows are fitted, how they are resampled, and with which random numbers."""

    rows: Array | None  # (m,) or all
    units: Units
    seed: int
    options: dict[str, Any]

    def stream(self, purpose: int, i: int) -> np.random.Generator:
        """Random numbers of their own for every fit, so that asking for more fits does not change the first ones."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose, i)))


def _fits(prepared: PreparedRows, plan: _Plan, k: int, restarts: int, bootstrap: int, tell: Steps) -> list[Unmixing]:
    """The fits from other starts, then those of resampled rows."""
    fits = []
    same = prepared.subset(plan.rows)
    for i in range(restarts):
        fits.append(same.unmix(seed=plan.stream(RESTART, i), **plan.options))
        tell("other starts")
    for i in range(bootstrap):
        rng = plan.stream(DRAW, i)
        fits.append(prepared.resampled(plan.units.draw(rng)).unmix(seed=rng, **plan.options))
        tell("resampled rows")
    return [first_components(fit, k) for fit in fits]


def _agreement(base: Float, others: Sequence[Float], restarts: int) -> Agreement:
    matched = np.array([matched_to(base, other) for other in others])
    return Agreement(matched[:restarts], matched[restarts:])


def _point(prepared: PreparedRows, plan: _Plan, space: Float, restarts: int, bootstrap: int, tell: Steps) -> CurvePoint:
    """One point of the curve; every point has the same starts and the same resamples."""
    base = prepared.subset(plan.rows).unmix(seed=plan.seed, **plan.options)
    white, few = prepared.whitening, min(restarts, CURVE_RESTARTS)
    tell(f"{base.k} components")
    fits = _fits(prepared, plan, base.k, few, min(bootstrap, CURVE_BOOTSTRAP), tell)
    others = [directions(fit.unmixing, space) for fit in fits]
    agreement = _agreement(directions(base.unmixing, space), others, few)
    return CurvePoint(
        n_components=base.k,
        variance_share=float(white.variances[: base.k].sum() / white.variances.sum()),
        identified=int(base.identified.sum()),
        stable=int((base.identified & agreement.stable).sum()),
        restarts=float(agreement.restarts_mean.mean()),
        bootstrap=float(agreement.median.mean()),
        chance=chance_agreement(base.k, plan.seed),
    )


def _variance_share(found: Components, prepared: PreparedRows) -> Float:
    share: Float = np.square(found.unmixing.mixing).sum(0) / np.trace(prepared.moments.finish())
    return share


def _notes(fits: list[Unmixing], clusters: Clusters | None, plan: _Plan, clustered: bool) -> Iterator[str]:
    cut = sum(fit.reason == "cap" for fit in fits)
    if cut:
        yield f"{cut} of {len(fits)} further fits had not converged when they reached max_iter passes."
    if clusters is None and len(fits) >= 2:
        yield f"The {len(fits) + 1} fits have too many components to be clustered; see the matched correlations."
    elif clusters is not None and clusters.runs <= len(fits):
        yield f"Only {clusters.runs} of {len(fits) + 1} fits were clustered, because memory grows with their square."
    if clustered and plan.units.count < FEW_CLUSTERS:
        yield f"There are only {plan.units.count} clusters, so the bootstrap has that few independent cases."


def _open(X: Any, cluster: Any) -> tuple[Any, Array | None, Array | None, tuple[str, ...]]:
    """The rows, the cluster of each, their ids, and how columns were chosen."""
    table = as_table(X, name="X") if is_table(X) else None
    X = X if table is None else table.values
    readable = is_tensor(X) or isinstance(X, (np.memmap, Iterator)) or hasattr(X, "chunks")
    data = open_rows(ICA(), X if readable else as_matrix(X, "X"), reset=True)
    labels = cluster_labels(cluster, table, len(data))
    return (data, labels, None, ()) if table is None else (data, labels, table.ids, table.notes)


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise InputError(f"{name} must be a whole number of at least 0, not {value!r}")


def _check_found(found: Components, prepared: PreparedRows) -> None:
    one, other = found.whitening.matrix, prepared.whitening.matrix
    if one.shape != other.shape or not np.allclose(one, other, rtol=1e-6, atol=1e-9 * np.abs(other).max()):
        raise InputError("found holds components of other rows, or of another number of directions, than X has")


def _check_curve(curve: Sequence[int], prepared: PreparedRows) -> list[int]:
    if isinstance(curve, (str, int)):
        raise InputError(f"curve must be a sequence of numbers of components, not {curve!r}")
    if len(curve) and not prepared.whiten:
        raise InputError("a curve chooses how many directions to whiten, so it needs whiten=True")
    for k in curve:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= prepared.whitening.rank:
            raise InputError(
                f"curve must hold whole numbers from 1 to {prepared.whitening.rank}, in which X varies, not {k!r}"
            )
    return [int(k) for k in curve]
