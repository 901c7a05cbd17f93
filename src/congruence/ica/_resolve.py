"""`resolve`: can the rotation of an embedding be undone without labels?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from congruence.arrays import Array, finite_rows, is_dask
from congruence.checks import check_integer, check_seed
from congruence.errors import InputError, naming
from congruence.files import describe_file
from congruence.ica._options import RESAMPLES, ResolveOptions
from congruence.ica._whitening import check_share
from congruence.ica.estimator import ICA
from congruence.ica.profiles import column_correlations, first_profiles, top_loadings
from congruence.ica.resolution import Resolution
from congruence.ica.stability import cluster_labels, component_stability
from congruence.options import reading, takes
from congruence.progress import Progress
from congruence.result import recorded
from congruence.tables import Table, as_table, finite_table, read_parts
from congruence.tables.inputs import paths_of

FITTED = ("components", "contrast", "whiten", "standardize", "normalize")


@takes(ResolveOptions)
def resolve(x: Any, *, options: ResolveOptions, progress: Progress | None = None) -> Resolution:
    """Find independent components of an embedding, and measure which of them are identified.

    Whitens the rows and rotates them until every axis is as far from Gaussian as possible, from several random starts.
    A component is identified if it is distinguishable from Gaussian noise, found from every start and, with `check`,
    found again on two disjoint halves of the rows. With `stability`, it is also compared with fits on bootstrap
    resamples.

    Parameters
    ----------
    x : array, tensor, dask array, sparse matrix, frame, AnnData, table, path or list of paths
        The rows, shape (n, d): anything that `congruence.tables.as_table` takes. A path may be a pattern such as
        ``export/*.parquet`` or a folder; the files of these, and those of a list, are read as one table.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    cluster : array of shape (n,), or name of a metadata column, optional
        Rows of one cluster (patient, plate, document) stay in one half of the check, and are resampled together.
    components : int, float or None, default None
        Number of components, or the share (below 1) of the variance to keep; by default all directions that vary.
    rows : int, "all" or "auto", default "all"
        Number of rows used to fit the rotation, as of `ICA`.

    Returns
    -------
    Resolution
        ``result.ica`` is the fitted estimator: ``result.ica.transform(x)`` returns the components.

    References
    ----------
    Nelson et al. 2026, Theorem 2.

    Examples
    --------
    >>> import numpy as np
    >>> from congruence.ica import resolve
    >>> rng = np.random.default_rng(0)
    >>> sources = np.column_stack([rng.laplace(size=(4000, 2)), rng.normal(size=(4000, 2))])
    >>> result = resolve(sources @ rng.normal(size=(4, 4)))
    >>> result.status, result.identified
    ('ambiguous', 2)
    >>> result["ica3"]["problem"]
    'gaussian'
    """
    resamples = _check(options)
    table, labels, notes = _read(x, options)
    fit = {name: getattr(options, name) for name in (*FITTED[1:], "rows", "tol", "max_iter", "device")}
    fit["n_components"] = options.components
    if progress is not None:
        progress("finding components", 0, 1)
    ica = ICA(**fit, starts=options.starts, check=options.check, random_state=options.seed)
    with naming(table.name):
        ica.fit(table.values, cluster=labels)
    if table.features is not None:
        ica.feature_names_in_ = np.array(table.features, dtype=object)
    stability = None
    if resamples:  # agreement across starts is that of the fit itself
        drawn: dict[str, Any] = {"restarts": 0, "bootstrap": resamples, "cluster": labels, "curve": options.curve}
        stability = component_stability(
            table.values, **fit, **drawn, seed=options.seed, found=ica.found_, progress=progress
        )
    scaled = {"scale_rows": options.normalize is not None}
    correlations = column_correlations(table.values, ica.found_, whiten=options.whiten, **scaled)
    return Resolution(
        name=table.name,
        n=table.n,
        d=table.d,
        ica=ica,
        profiles=first_profiles(table, ica.found_, **scaled),
        loadings=top_loadings(correlations, table.feature_names),
        stability=stability,
        settings=_settings(options, resamples, table),
        input_notes=notes,
    )


def _check(options: ResolveOptions) -> int:
    """Check the options before any work, and return the number of resamples."""
    curve, runs = options.curve, options.stability
    if options.components is not None:
        check_share("components", options.components)
    if runs is not None and (runs < 0 or runs == 1):
        raise InputError(f"stability must be 0 or an integer of at least 2; got {runs}")
    if not isinstance(curve, Sequence):
        raise InputError(f"curve must be a sequence of numbers of components; got {curve!r}")
    for i, k in enumerate(curve):
        check_integer(f"curve[{i}]", k)
    if curve and runs == 0:
        raise InputError("curve needs resamples to refit on, but stability is 0")
    check_seed(options.seed)
    resamples = (RESAMPLES if curve else 0) if runs is None else runs
    if options.cluster is not None and not resamples and not options.check:
        raise InputError("cluster keeps rows together in halves and resamples, but there are none; set check=True")
    return resamples


def _read(x: Any, options: ResolveOptions) -> tuple[Table, Array | None, tuple[str, ...]]:
    """The table without missing values, the cluster of each row, and how columns and rows were chosen."""
    table = _as_table(x, options)
    labels = cluster_labels(options.cluster, table, table.n)
    notes = table.notes
    if is_dask(table.values):  # workers find what is not finite, in the first pass
        if options.drop_missing:
            raise InputError("drop_missing cannot be used with a dask array: its rows are counted before they are read")
        return table, labels, notes
    whole = table.n
    if labels is not None and options.drop_missing:
        labels = labels[finite_rows(table.values)]
    table = finite_table(table, drop_missing=options.drop_missing)
    if table.n < whole:
        notes = (*notes, f"{whole - table.n} of {whole} rows have NaN or infinite values and were left out.")
    if table.n < 2:
        raise InputError(f"{table.name} has 1 row, but components need at least 2")
    return table, labels, notes


def _as_table(x: Any, options: ResolveOptions) -> Table:
    wishes = {name: value for name, value in reading(options).items() if value is not None}
    if isinstance(x, list | tuple) and x and all(isinstance(path, str | os.PathLike) for path in x):
        return read_parts(x, **wishes)
    return as_table(x, **wishes)


def _settings(options: ResolveOptions, resamples: int, table: Table) -> dict[str, Any]:
    """The options as shown on the page and in JSON, with the input files; reading options only where they are set."""
    names = (*FITTED, "starts", "check", "rows", "tol", "max_iter", "seed", "device")
    reads = reading(options) | {"drop_missing": options.drop_missing}
    cluster = options.cluster if options.cluster is None or isinstance(options.cluster, str) else "labels"
    chosen: dict[str, Any] = {name: getattr(options, name) for name in names}
    chosen |= {"stability": resamples, "curve": list(options.curve), "cluster": cluster}
    chosen |= {name: value for name, value in reads.items() if value}
    return chosen | recorded(map(describe_file, paths_of([table])))
