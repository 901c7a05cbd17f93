import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

from congruence.errors import TableError
from congruence.tables import Table, as_table, read_table, write_table

with warnings.catch_warnings():  # what the libraries say on import is theirs
    warnings.simplefilter("ignore")
    import anndata

X = np.arange(12, dtype=np.float32).reshape(4, 3)
PCA = np.arange(8.0).reshape(4, 2)


@pytest.fixture(params=[".h5ad", ".zarr"])
def save(request, tmp_path):
    def write(matrix=X, **parts):
        obs = pd.DataFrame(
            {
                "plate": pd.Categorical(["p", "q", None, "p"]),
                "batch": [1, 1, 2, 2],
                "well": ["A1", "A2", "A3", "A4"],
            },
            index=["a", "b", "c", "d"],
        )
        data = anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=["g0", "g1", "h0"]), obsm=parts)
        path = tmp_path / f"cells{request.param}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data.write_h5ad(path) if request.param == ".h5ad" else data.write_zarr(path)
        return path

    return write


def test_obs_names_are_ids_and_obs_columns_metadata(save):
    table = read_table(save())
    assert_array_equal(table.values, X)
    assert table.values.dtype == np.float32
    assert table.ids.tolist() == ["a", "b", "c", "d"]
    assert table.features == ("g0", "g1", "h0")
    assert table.metadata["plate"].tolist() == ["p", "q", None, "p"]
    assert table.metadata["batch"].tolist() == [1, 1, 2, 2]
    assert table.name == "cells"


def test_an_obs_column_may_be_the_ids(save):
    table = read_table(save(), id="well")
    assert table.ids.tolist() == ["A1", "A2", "A3", "A4"]
    assert "well" not in table.metadata
    with pytest.raises(TableError, match=r"has no obs column 'cell' for id \(--id\); it has plate, batch, well"):
        read_table(save(), id="cell")


def test_the_key_chooses_an_entry_of_obsm(save):
    path = save(X_pca=PCA)
    assert_array_equal(read_table(path, key="X_pca").values, PCA)
    assert read_table(path, key="X_pca").features is None
    assert_array_equal(read_table(path, key="X").values, X)
    with pytest.raises(TableError, match=re.escape("has no matrix 'X_umap' (--key); it has X, X_pca")):
        read_table(path, key="X_umap")


def test_a_file_without_x_says_what_it_has(save):
    with pytest.raises(TableError, match=re.escape("has no matrix 'X' (--key); it has X_pca")):
        read_table(save(None, X_pca=PCA))


def test_a_data_frame_in_obsm_brings_its_names(save):
    frame = pd.DataFrame(PCA, columns=["u", "v"], index=["a", "b", "c", "d"])
    table = read_table(save(scores=frame), key="scores", features="v")
    assert table.features == ("v",)
    assert_array_equal(table.values, PCA[:, 1:])


@pytest.mark.parametrize("sparse", [scipy.sparse.csr_matrix, scipy.sparse.csc_matrix])
def test_a_sparse_matrix_is_made_dense(save, sparse):
    values = read_table(save(sparse(X))).values
    assert_array_equal(values, X)


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_a_sparse_matrix_too_large_when_dense_is_refused(tmp_path, suffix, monkeypatch):
    genes = pd.DataFrame(index=[f"g{i}" for i in range(900)])
    cells = anndata.AnnData(scipy.sparse.eye(1000, 900, format="csr", dtype=np.float32), var=genes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells.write_h5ad(tmp_path / "x.h5ad")
        cells.write_zarr(tmp_path / "x.zarr")
    monkeypatch.setenv("CONGRUENCE_MAX_BYTES", "1000000")
    message = "the sparse matrix of shape (1000, 900) when dense would take 0.003353 GB, more than the 0.0009313 GB"
    with pytest.raises(TableError, match=re.escape(message)):
        read_table(tmp_path / f"x{suffix}")
    assert read_table(tmp_path / f"x{suffix}", features="g1*").values.shape == (1000, 111)


def test_features_are_chosen_by_the_names_of_var(save):
    table = read_table(save(), features="g*")
    assert_array_equal(table.values, X[:, :2])
    assert table.features == ("g0", "g1")
    with pytest.raises(TableError, match=r"no column of .* matches features \(--features\) 'k\*'; it has g0, g1, h0"):
        read_table(save(), features="k*")


def test_features_without_names_cannot_be_chosen(save):
    with pytest.raises(TableError, match=r"with features \(--features\): the columns of obsm 'X_pca' have no names"):
        read_table(save(X_pca=PCA), key="X_pca", features="g*")


def test_metadata_need_not_be_named(save):
    with pytest.raises(TableError, match=r"with metadata \(--metadata\): AnnData stores metadata separately, in obs"):
        read_table(save(), metadata="plate")


def test_an_hdf5_file_that_is_no_anndata_is_refused(tmp_path):
    import h5py

    with h5py.File(tmp_path / "x.h5ad", "w") as store:
        store["X"] = X
    with pytest.raises(TableError, match=r"x.h5ad could not be read as .h5ad, it may be damaged: "):
        read_table(tmp_path / "x.h5ad")


def test_rows_renamed_after_writing_keep_their_new_names(tmp_path):
    path = tmp_path / "x.h5ad"
    write_table(Table(X, "x", [1, 2, 3, 4]), path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = anndata.read_h5ad(path)
        data.obs_names = list("wxyz")
        data.write_h5ad(path)
    assert read_table(path).ids.tolist() == list("wxyz")


def test_the_choice_of_x_is_noted_where_there_are_embeddings(tmp_path):
    anndata = pytest.importorskip("anndata")
    data = anndata.AnnData(np.random.default_rng(0).normal(size=(5, 3)))
    assert as_table(data).notes == ()
    data.obsm["X_pca"] = np.zeros((5, 2))
    data.write_h5ad(tmp_path / "run.h5ad")
    for given in (data, tmp_path / "run.h5ad"):
        assert as_table(given).notes == ("The matrix X is used; obsm also has X_pca: choose with key (--key).",)
        assert as_table(given, key="X").notes == ()
