"""Verbs for AnnData: keys of obsm in, results into uns, obsm, obs and varm; h5ad files hold all of it."""

import json

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.testing import assert_allclose
from scipy.stats import ortho_group

from congruence import compare, resolve, tl
from congruence.errors import InputError

FAST = {"groups": ["similarity"], "nulls": 5, "bootstrap": 5}


@pytest.fixture
def adata(rng):
    x = rng.laplace(size=(300, 4))
    labels = {"plate": [f"p{i % 10}" for i in range(300)], "compound": rng.choice(["DMSO", "taxol"], 300)}
    made = ad.AnnData(x @ rng.normal(size=(4, 6)), obs=pd.DataFrame(labels, index=[f"cell{i}" for i in range(300)]))
    made.obsm["X_pca"] = x
    made.obsm["X_scVI"] = 2 * x @ ortho_group.rvs(4, random_state=0)
    made.layers["counts"] = made.X + 1
    return made


def written(adata, path):
    adata.write_h5ad(path)
    return ad.read_h5ad(path)


def test_compare_is_that_of_the_arrays_and_is_stored(adata, tmp_path):
    result = tl.compare(adata, "X_pca", "X_scVI", color="compound", **FAST)
    plain = compare({key: adata.obsm[key] for key in ("X_pca", "X_scVI")}, **FAST)
    assert result["X_pca", "X_scVI"].groups["similarity"].of_chance == plain.pairs[0].groups["similarity"].of_chance
    assert result.settings["color"] == "compound"
    assert_allclose(adata.obs["compare_moved"], result.moved().disagreement)
    stored = written(adata, tmp_path / "a.h5ad").uns["congruence"]["compare"]
    assert (stored["status"], stored["verdict"]) == ("holds", result.verdict)
    assert json.loads(stored["json"]) == json.loads(result.to_json())
    axes = result.plot()
    assert isinstance(axes, Axes)
    pyplot.close(axes.figure)


def test_cells_that_were_left_out_are_nan(adata):
    adata.obsm["X_scVI"][[3, 7]] = np.nan
    tl.compare(adata, "X_pca", "X_scVI", drop_missing=True, consensus=True, **FAST)
    missing = adata.obs["compare_moved"].isna().to_numpy()
    assert list(np.flatnonzero(missing)) == [3, 7]
    assert (np.isnan(adata.obsm["X_consensus"]).all(1) == missing).all()
    tl.resolve(adata, "X_scVI", drop_missing=True, starts=1, check=False)
    assert (np.isnan(adata.obsm["X_ica"]).all(1) == missing).all()


def test_layers_and_x_are_keys_too(adata):
    result = tl.compare(adata, "X", "counts", "X_pca", key_added="mine", **FAST)
    assert set(result.parts()) == {("X", "counts"), ("X", "X_pca"), ("counts", "X_pca")}
    assert result["X", "counts"].verdict.status == "holds"
    assert set(adata.uns["congruence"]) == {"mine"}
    assert "mine_moved" in adata.obs


def test_components_and_their_mixing_matrix_are_written(adata, tmp_path):
    result = tl.resolve(adata, "X", components=4, starts=1, check=False)
    same = resolve(adata.X, components=4, starts=1, check=False)
    assert_allclose(adata.obsm["X_ica"], same.ica.transform(adata.X))
    back = adata.obsm["X_ica"] @ adata.varm["X_ica"].T + result.ica.mean_
    assert_allclose(back, adata.X, atol=1e-6)
    read = written(adata, tmp_path / "a.h5ad")
    assert_allclose(read.varm["X_ica"], result.ica.mixing_)
    assert json.loads(read.uns["congruence"]["resolve"]["json"])["kind"] == "Resolution"


def test_only_chosen_variables_have_loadings(adata):
    tl.resolve(adata, "counts", features=["1", "4"], starts=1, check=False, key_added="two")
    assert list(np.flatnonzero(np.isfinite(adata.varm["two"]).all(1))) == [1, 4]


def test_components_of_an_embedding_have_no_variables(adata):
    tl.resolve(adata, "X_pca", starts=1, check=False)
    assert "X_ica" in adata.obsm
    assert "X_ica" not in adata.varm


def test_a_corrected_embedding_is_written_if_asked_for(adata, tmp_path):
    options = {"batch": "plate", "target": "compound", "control": "DMSO", "conditions": ["whitened"], "rounds": 3}
    few = {"folds": 2, "leakage": False, "retrieval": False, "profiles": False, "concentration": ()}
    tl.deconfound(adata, "X_pca", **options, **few)
    assert set(adata.obsm) == {"X_pca", "X_scVI"}
    result = tl.deconfound(adata, "X_pca", embedding="whitened", **options, **few)
    assert_allclose(np.cov(adata.obsm["X_whitened"], rowvar=False), np.eye(4), atol=0.02)
    tl.deconfound(adata, "X_pca", embedding="whitened", key_added="X_white", **options, **few)
    stored = written(adata, tmp_path / "a.h5ad").uns["congruence"]["deconfound"]
    assert stored["verdict"] == result.verdict
    assert "X_white" in adata.obsm


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: tl.compare(a, "X_pca"), "compare takes at least 2 keys of obsm; got X_pca"),
        (
            lambda a: tl.compare(a, "X_pca", "X_umap"),
            "adata has no 'X_umap' in obsm or layers; it has X, X_pca",
        ),
        (lambda a: tl.resolve(a.X), "adata must be an AnnData object; got ndarray"),
        (lambda a: tl.deconfound(a, "X_umap", batch="plate"), "adata has no 'X_umap' in obsm or layers"),
    ],
)
def test_wrong_inputs_are_named(adata, call, message):
    with pytest.raises(InputError, match=message):
        call(adata)


def test_unknown_options_are_named(adata):
    with pytest.raises(TypeError, match="unexpected keyword argument 'null'; did you mean 'nulls'"):
        tl.compare(adata, "X_pca", "X_scVI", null=3)
