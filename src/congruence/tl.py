"""Verbs for AnnData, as scanpy's `tl`: keys of obsm in; results into uns, obsm and varm.

import congruence as cg

cg.tl.compare(adata, "X_pca", "X_scVI", color="cell_type").plot()

`adata` is changed in place, and the result is returned. A summary of it, with the whole result as JSON, is in
``adata.uns["congruence"]``, which h5ad and zarr files can hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from congruence.errors import InputError
from congruence.tables.table import is_anndata

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison
    from congruence.batches.deconfounding import Deconfounding
    from congruence.ica.resolution import Resolution
    from congruence.result import Result

__all__ = ["compare", "deconfound", "resolve"]
R = TypeVar("R", bound="Result")


def __dir__() -> list[str]:
    return __all__


def compare(adata: Any, *keys: str, key_added: str = "compare", **options: Any) -> Comparison:
    """Compare two or more embeddings of the same cells: is the difference only a rotation?

    Parameters
    ----------
    adata : AnnData
        obs_names are the ids, and columns of obs may be named by ``cluster=`` and ``color=``.
    *keys : str
        Keys of obsm, "X", or names of layers.
    key_added : str, default "compare"
        Where the result is stored.
    **options
        Options of `congruence.compare`.

    Returns
    -------
    Comparison
        Also written: ``uns["congruence"][key_added]``; ``obs[f"{key_added}_moved"]``, the held-out error of each cell
        relative to chance; and with ``consensus=True`` ``obsm["X_consensus"]``.
    """
    from congruence.align._compare import compare as compare_runs
    from congruence.tables import as_table

    _check(adata, *keys)
    if len(set(keys)) < 2:
        raise InputError(f"compare takes at least 2 keys of obsm; got {', '.join(keys) or 'none'}")
    result = compare_runs({key: as_table(adata, key=key, name=key) for key in keys}, **options)
    place = adata.obs_names.get_indexer(np.asarray(result.ids, dtype=object))
    if any(set(pair.groups) != {"ica"} for pair in result.pairs):  # which has no errors of single rows
        adata.obs[f"{key_added}_moved"] = _spread(result.moved().disagreement, place, adata.n_obs)
    if result.consensus is not None:
        adata.obsm["X_consensus"] = _spread(result.consensus.values, place, adata.n_obs)
    return _store(adata, key_added, result)


def resolve(adata: Any, key: str = "X_pca", *, key_added: str = "X_ica", **options: Any) -> Resolution:
    """Find independent components of an embedding, and which of them are identified.

    Parameters
    ----------
    adata : AnnData
        Columns of obs may be named by ``cluster=``.
    key : str, default "X_pca"
        A key of obsm, "X", or the name of a layer.
    key_added : str, default "X_ica"
        The entry of obsm for the components; NaN for cells that ``drop_missing=True`` leaves out.
    **options
        Options of `congruence.resolve`.

    Returns
    -------
    Resolution
        Also written: ``uns["congruence"]["resolve"]``; ``obsm[key_added]``; and, where the source is X or a layer, the
        mixing matrix (n_vars, k) as ``varm[key_added]``: what a component adds to each variable.
    """
    from congruence.ica._resolve import resolve as resolve_rows
    from congruence.tables import as_table

    _check(adata, key)
    result = resolve_rows(adata, key=key, **options)
    some = options.get("features")
    table = as_table(adata, key=key, features=some)
    kept = np.flatnonzero(np.isfinite(table.values).all(1))
    rows = replace(table, values=table.values[kept], ids=None, metadata={})
    of_variables = key not in adata.obsm
    adata.obsm[key_added] = _spread(result.ica.transform(rows), kept, adata.n_obs)
    if of_variables:
        place = np.arange(adata.n_vars) if some is None else adata.var_names.get_indexer(table.feature_names)
        adata.varm[key_added] = _spread(result.ica.mixing_, place, adata.n_vars)
    return _store(adata, "resolve", result)


def deconfound(adata: Any, key: str = "X_pca", *, key_added: str | None = None, **options: Any) -> Deconfounding:
    """Score whether an embedding generalises to unseen batches, before and after whitening, ICA or a correction.

    Parameters
    ----------
    adata : AnnData
        `batch`, `target` and the other labels name columns of obs.
    key : str, default "X_pca"
        A key of obsm, "X", or the name of a layer.
    key_added : str, optional
        The entry of obsm for the embedding; by default "X_" and the condition.
    **options
        Options of `congruence.deconfound`.

    Returns
    -------
    Deconfounding
        Also written: ``uns["congruence"]["deconfound"]``; and with ``embedding="ica"`` (or another condition) the
        embedding under that condition, fitted on all cells, in obsm.
    """
    from congruence.batches._deconfound import deconfound as judge

    _check(adata, key)
    result = judge(adata, key=key, **options)
    if result.embedding is not None:
        adata.obsm[key_added or f"X_{result.embedding.condition}"] = result.embedding.aligned()
    return _store(adata, "deconfound", result)


def _check(adata: Any, *keys: str) -> None:
    if not is_anndata(adata):
        raise InputError(f"adata must be an AnnData object; got {type(adata).__name__}")
    known = [*(["X"] if adata.X is not None else []), *adata.obsm, *adata.layers]
    for key in keys:
        if key not in known:
            raise InputError(f"adata has no {key!r} in obsm or layers; it has {', '.join(known) or 'neither'}")


def _spread(values: Any, place: Any, n: int) -> Any:
    """Values of some rows at their places among n; NaN elsewhere."""
    whole = np.full((n, *np.shape(values)[1:]), np.nan)
    whole[place] = values
    return whole


def _store(adata: Any, name: str, result: R) -> R:
    """Put a summary into uns, as text that every format of AnnData can write."""
    summary = {"status": result.status, "verdict": result.verdict, "json": result.to_json()}
    adata.uns["congruence"] = {**adata.uns.get("congruence", {}), name: summary}
    return result
