import numpy as np
import pytest

from congruence.errors import TableError
from congruence.tables.write import check_obsm_path, write_obsm

anndata = pytest.importorskip("anndata")


def test_a_matrix_is_put_beside_what_is_there_and_replaces_its_own_kind(tmp_path):
    path = tmp_path / "a.h5ad"
    anndata.AnnData(np.ones((3, 2), np.float32), obsm={"X_old": np.zeros((3, 2))}).write_h5ad(path)
    write_obsm(path, "X_ica", np.full((3, 4), 2.0))
    write_obsm(path, "X_ica", np.full((3, 1), 3.0))
    data = anndata.read_h5ad(path)
    assert set(data.obsm) == {"X_old", "X_ica"}
    np.testing.assert_array_equal(data.obsm["X_ica"], np.full((3, 1), 3.0))
    np.testing.assert_array_equal(data.X, np.ones((3, 2)))
    assert [file.name for file in tmp_path.iterdir()] == ["a.h5ad"]


def test_other_files_are_refused_and_damaged_ones_left_alone(tmp_path):
    with pytest.raises(TableError, match=r"is not AnnData \(\.h5ad\), so no embedding can be written back"):
        check_obsm_path("a.parquet")
    (tmp_path / "a.h5ad").write_bytes(b"nothing of the kind")
    with pytest.raises(TableError):
        write_obsm(tmp_path / "a.h5ad", "X_ica", np.ones((3, 1)))
    assert (tmp_path / "a.h5ad").read_bytes() == b"nothing of the kind"
