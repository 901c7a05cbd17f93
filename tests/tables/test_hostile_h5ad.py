"""Hostile .h5ad files: absurd sizes, bombs, links that lead elsewhere, and what HDF5 does not survive."""

import pickle
import re
import subprocess
import sys
import warnings

import h5py
import numcodecs
import numpy as np
import pytest
import scipy.sparse
import zarr

from congruence.errors import TableError
from congruence.tables import Table, _anndata, _hdf5, read_table, write_table

with warnings.catch_warnings():  # what the libraries say on import is theirs
    warnings.simplefilter("ignore")
    import anndata

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
ABSURD = 10**12  # rows


def save_h5ad(path):
    write_table(Table(X, "x", [f"r{i}" for i in range(40)], {"p": ["q"] * 40}), path)
    return h5py.File(path, "r+")


@pytest.fixture
def refused_h5ad(refused):
    def refuse(path, words):
        refused(path, words)
        with pytest.raises(TableError, match=re.escape(words)):  # in the child, and here where coverage is measured
            _hdf5.inspect(path, _anndata.parts_of(None))

    return refuse


def test_an_h5ad_of_absurd_size_is_refused(tmp_path, refused_h5ad):
    with save_h5ad(tmp_path / "x.h5ad") as store:
        attributes = dict(store["X"].attrs)
        del store["X"]
        store.create_dataset("X", shape=(ABSURD, 3), chunks=(2**20, 3), dtype="f4").attrs.update(attributes)
    refused_h5ad(tmp_path / "x.h5ad", "does not fit in memory: /X would take 2.235e+04 GB")


def test_an_h5ad_does_not_lead_to_other_files(tmp_path, refused_h5ad):
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = X
    for name in ("linked", "virtual", "external"):
        with save_h5ad(tmp_path / f"{name}.h5ad") as store:
            del store["X"]
            if name == "linked":
                store["X"] = h5py.ExternalLink("other.h5", "secret")
            elif name == "virtual":
                layout = h5py.VirtualLayout(X.shape, X.dtype)
                layout[:] = h5py.VirtualSource("other.h5", "secret", X.shape)
                store.create_virtual_dataset("X", layout)
            else:
                store.create_dataset("X", X.shape, X.dtype, external=[("other.h5", 0, X.nbytes)])
        refused_h5ad(tmp_path / f"{name}.h5ad", "is stored in another file, which is not followed")


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
@pytest.mark.parametrize("part", ["indptr", "indices"])
@pytest.mark.parametrize("wrong", [[0, 2**30, 0, 2, 0], [2**30, 0, 0, 0, 0], [0, 1, 2, 3, -(2**30)]])
def test_a_sparse_matrix_that_points_outside_is_refused(tmp_path, refused, suffix, part, wrong):
    cells = anndata.AnnData(scipy.sparse.csr_matrix(np.tri(4, 6)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells.write_h5ad(tmp_path / "x.h5ad")
        cells.write_zarr(tmp_path / "x.zarr")
    if suffix == ".h5ad":
        with h5py.File(tmp_path / "x.h5ad", "r+") as store:
            store[f"X/{part}"][:5] = wrong
    else:
        zarr.open_group(tmp_path / "x.zarr")[f"X/{part}"][:5] = wrong
    refused(tmp_path / f"x{suffix}", "could not be read as", "damaged")


def test_an_h5ad_of_groups_within_groups_is_refused(tmp_path, refused_h5ad):
    with save_h5ad(tmp_path / "x.h5ad") as store:
        store["obs"].create_group("a/b").attrs["encoding-type"] = "dict"
        store["obs/a/b/c"] = store["obs/a"]  # in a circle
    refused_h5ad(tmp_path / "x.h5ad", "is not an AnnData file: /obs/a/b has groups within groups")


@pytest.mark.usefixtures("small_memory")
def test_an_h5ad_chunk_that_is_a_bomb_is_refused(tmp_path, refused_h5ad):
    with save_h5ad(tmp_path / "x.h5ad") as store:
        attributes = dict(store["X"].attrs)
        del store["X"]
        data = store.create_dataset("X", X.shape, "f4", chunks=X.shape, compression="gzip")
        data.id.write_direct_chunk((0, 0), numcodecs.Zlib().encode(bytes(2**22)))
        data.attrs.update(attributes)
    refused_h5ad(tmp_path / "x.h5ad", "is damaged: a chunk of /X unpacks to more than 480 bytes")


@pytest.mark.usefixtures("small_memory")
def test_h5ad_text_counts_by_its_length(tmp_path, refused_h5ad):
    with save_h5ad(tmp_path / "x.h5ad") as store:
        attributes = dict(store["obs/p"].attrs)
        del store["obs/p"]
        store.create_dataset("obs/p", data=["x" * 2**16] * 40).attrs.update(attributes)
    refused_h5ad(tmp_path / "x.h5ad", "does not fit in memory: /obs/p would take")


def test_an_h5ad_that_sends_hdf5_in_circles_is_refused(tmp_path, refused, monkeypatch):
    """A zeroed entry in a global heap, which keeps HDF5 2.0 busy for ever."""
    monkeypatch.setattr("congruence.tables._hdf5.CPU_SECONDS", 1)
    save_h5ad(tmp_path / "x.h5ad").close()
    data = bytearray((tmp_path / "x.h5ad").read_bytes())
    heap = data.index(b"GCOL")
    data[heap + 16 : heap + 64] = bytes(48)
    (tmp_path / "x.h5ad").write_bytes(data)
    refused(tmp_path / "x.h5ad", "damaged")


@pytest.mark.parametrize(
    ("child", "complaint"),
    [
        ("import congruence.tables._hdf5 as i; i._limit(1)\nwhile True: pass", "HDF5 does not finish reading it"),
        ("import os; os.abort()", "HDF5 crashes on it (signal 6)"),
    ],
)
def test_what_hdf5_does_not_survive_in_a_child_is_refused(tmp_path, refused, monkeypatch, child, complaint):
    save_h5ad(tmp_path / "x.h5ad").close()
    monkeypatch.setattr("congruence.tables._hdf5.CHILD", child)
    refused(tmp_path / "x.h5ad", f"is damaged: {complaint}")


@pytest.mark.parametrize("executable", [None, "/nowhere/python", "/bin/false"])
def test_where_no_child_can_be_started_nothing_is_read(tmp_path, refused, monkeypatch, executable):
    save_h5ad(tmp_path / "x.h5ad").close()
    monkeypatch.setattr("congruence.tables._hdf5.sys.executable", executable)
    refused(tmp_path / "x.h5ad", "is not read, because it has to be inspected by a process of its own first")


def test_a_limit_of_the_system_below_our_own_does_not_stop_the_inspection(tmp_path):
    path = tmp_path / "x.h5ad"
    with save_h5ad(path) as store:
        del store["X"]
        store["X"] = h5py.SoftLink("/obs")
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\n"
        f"from congruence.tables import read_table; read_table({str(path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "X is a link to /obs, which is not followed" in done.stderr


def test_the_inspection_reads_what_the_reader_will(tmp_path, capsys, monkeypatch):
    with save_h5ad(tmp_path / "x.h5ad") as store:
        store.create_group("deep/a/b/c")
    _hdf5.inspect(tmp_path / "x.h5ad", ["X", "var", "obs", "uns/congruence_ids", "obsm/none"])
    monkeypatch.setattr("sys.argv", ["-c", str(tmp_path / "x.h5ad"), "1000000", "deep"])
    monkeypatch.setattr(_hdf5.os, "_exit", lambda code: None)
    monkeypatch.setattr(_hdf5, "_limit", lambda seconds: None)
    _hdf5.main()
    assert "is not an AnnData file: /deep/a/b has groups within groups" in capsys.readouterr().out


def test_pickles_in_an_h5ad_are_not_run(tmp_path, refused, payload):
    pickled = np.void(pickle.dumps(payload))
    with save_h5ad(tmp_path / "x.h5ad") as store:
        store["obs"].attrs["pickle"] = pickled
        store["uns/pickle"] = pickled
    np.testing.assert_array_equal(read_table(tmp_path / "x.h5ad").values, X)
    with h5py.File(tmp_path / "x.h5ad", "r+") as store:
        store["obs/q"] = np.array([pickled] * 40)
        store["obs"].attrs["column-order"] = ["p", "q"]
    refused(tmp_path / "x.h5ad", "could not be read as .h5ad")


@pytest.mark.parametrize("change", [{"_index": "/uns/names"}, {"column-order": ["/uns/names"]}])
def test_names_of_columns_do_not_lead_out_of_the_frame(tmp_path, refused, change):
    with save_h5ad(tmp_path / "x.h5ad") as store:
        store["obs"].attrs.update({name: np.array(value, dtype=object) for name, value in change.items()})
    refused(tmp_path / "x.h5ad", "the columns /uns/names are not in obs itself")


def test_a_data_set_that_is_compressed_twice_is_refused(tmp_path, refused):
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((4, 2))
    settings.set_shuffle()
    settings.set_deflate(9)
    settings.set_deflate(9)  # a chunk of a kilobyte would become a gigabyte
    with h5py.File(tmp_path / "x.h5", "w") as store:
        h5py.h5d.create(store.id, b"x", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((4, 2)), settings)
        store["x"][...] = 1
    refused(tmp_path / "x.h5", "/x is compressed more than once")


def test_packed_integers_may_be_compressed_as_well(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as store:
        values = np.arange(40).reshape(20, 2)
        store.create_dataset("x", data=values, chunks=(4, 2), scaleoffset=8, compression="gzip")
    np.testing.assert_array_equal(read_table(tmp_path / "x.h5").values, values)


def test_a_type_among_the_members_of_an_hdf5_file_is_left_out(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as store:
        store["type"] = np.dtype("f8")
        store["x"] = np.eye(3)
    assert read_table(tmp_path / "x.h5").values.tolist() == np.eye(3).tolist()
