"""Every format is read from a file of its own library, is refused in one sentence when damaged, and is documented."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.io
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import TableError
from congruence.tables import read_parts, read_table, stream_table, write_table
from congruence.tables.formats import FORMATS, SUFFIXES

N, D = 24, 3
X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
IDS = [f"row{i}" for i in range(N)]
PLATE = ["p", "q", "r"] * (N // 3)
TENSORS = pa.table({"id": IDS, "emb": pa.FixedShapeTensorArray.from_numpy_ndarray(X), "plate": PLATE})
LISTS = pa.table({"id": IDS, "emb": pa.FixedSizeListArray.from_arrays(X.ravel(), D), "plate": PLATE})


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def lines(delimiter, *, comma=False, first=(), ids=False):
    cells = [[f"{x}".replace(".", ",") if comma else f"{x}" for x in row] for row in X.tolist()]
    rows = [delimiter.join([*([id] if ids else []), *row]) for id, row in zip(IDS, cells, strict=True)]
    return "\n".join([*([delimiter.join(first)] if first else []), *rows]) + "\n"


def save_objects(path, make):
    objects = [{"id": id, "plate": p, **make(row)} for id, p, row in zip(IDS, PLATE, X.tolist(), strict=True)]
    text = "\n".join(map(json.dumps, objects)).encode()
    Path(path).write_bytes(gzip.compress(text) if path.endswith(".gz") else text)


def save_lance(path):
    pytest.importorskip("lance", reason="pylance is not installed").write_dataset(LISTS, path, max_rows_per_file=10)


def save_h5(path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as store:
        store.create_dataset("train", data=X, chunks=(5, 2), compression="gzip")
        store["test"], store["ids"], store["plate"], store["group/other"] = X[:4], IDS, PLATE, X + 1


def save_mat(path, **options):
    arrays = {"codes": X, "ids": np.array(IDS), "dose": np.arange(N), "cells": np.array(PLATE, dtype=object)}
    scipy.io.savemat(path, arrays, **options)


def save_bin(path, dtype):
    Path(path).write_bytes(np.array(X.shape, "<u4").tobytes() + X.astype(dtype).tobytes())


def save_vecs(path, dtype):
    Path(path).write_bytes(b"".join(np.array([D], "<i4").tobytes() + row.astype(dtype).tobytes() for row in X))


def save_faiss(path, wrap):
    faiss = pytest.importorskip("faiss", reason="faiss is not installed")
    faiss.write_index(wrap(faiss), path)


def flat(faiss):
    index = faiss.IndexFlatIP(D)
    index.add(X)
    return index


def inverted_lists(faiss, direct_map=None, ids=None):
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(D), D, 3)
    index.cp.min_points_per_centroid = 1
    index.train(X)
    index.add(X) if ids is None else index.add_with_ids(X, ids)
    if direct_map is not None:
        index.set_direct_map_type(getattr(faiss.DirectMap, direct_map))
    return index


def id_map(faiss):
    index = faiss.IndexIDMap2(faiss.IndexFlatL2(D))
    index.add_with_ids(X, np.arange(N) + 100)
    return index


def save_dataset(folder, length=-1, shards=2):
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")
    text, number = datasets.Value("string"), datasets.Value("float32")
    features = datasets.Features({"id": text, "emb": datasets.Sequence(number, length=length), "plate": text})
    datasets.disable_progress_bars()
    dataset = datasets.Dataset.from_dict({"id": IDS, "emb": X.tolist(), "plate": PLATE}, features=features)
    dataset.save_to_disk(folder, num_shards=shards)


# How each kind of file is written, and what is read: options, ids, metadata.
NAMED = {"ids": IDS, "metadata": {"plate": PLATE}}
KINDS = {
    "tabs.tsv": (lambda p: Path(p).write_text(lines("\t", first=["id", "x", "y", "z"], ids=True)), {"ids": IDS}),
    "headless.csv": (lambda p: Path(p).write_text(lines(",")), {}),
    "words.csv": (lambda p: Path(p).write_text(lines(",", ids=True)), {"ids": IDS}),
    "semicolons.csv": (lambda p: Path(p).write_text(lines(";", first=["id", "x", "y", "z"], ids=True)), {"ids": IDS}),
    "decimal_comma.csv": (lambda p: Path(p).write_text(lines(";", comma=True)), {}),
    "bars.csv": (lambda p: Path(p).write_text(lines("|", first="xyz")), {}),
    "lists.jsonl": (lambda p: save_objects(p, lambda row: {"emb": row, "more": {"a": 1}}), NAMED),
    "lists.jsonl.gz": (lambda p: save_objects(p, lambda row: {"emb": row}), NAMED),
    "fields.ndjson": (
        lambda p: save_objects(p, lambda row: dict(zip("xyz", row, strict=True))),
        {**NAMED, "options": {"metadata": "plate"}},
    ),
    "tensors.parquet": (lambda p: pq.write_table(TENSORS, p), NAMED),
    "tensors.arrow": (lambda p: pyarrow.feather.write_feather(TENSORS, p), NAMED),
    "lists.lance": (save_lance, NAMED),
    "arrays.h5": (save_h5, {**NAMED, "options": {"key": "train"}}),
    "plain.mat": (save_mat, {"ids": IDS, "metadata": {"dose": list(range(N))}}),
    "deflated.mat": (lambda p: save_mat(p, do_compression=True), {"ids": IDS}),
    "version4.mat": (lambda p: scipy.io.savemat(p, {"codes": X}, format="4"), {}),
    "plain.fbin": (lambda p: save_bin(p, "<f4"), {}),
    "plain.fvecs": (lambda p: save_vecs(p, "<f4"), {}),
    "flat.faiss": (lambda p: save_faiss(p, flat), {}),
    "lists.faiss": (lambda p: save_faiss(p, inverted_lists), {}),
    "direct.faiss": (lambda p: save_faiss(p, lambda faiss: inverted_lists(faiss, "Array")), {}),
    "hashed.faiss": (lambda p: save_faiss(p, lambda faiss: inverted_lists(faiss, "Hashtable")), {}),
    "map.index": (lambda p: save_faiss(p, id_map), {"ids": list(range(100, 100 + N))}),
    "numbered.index": (
        lambda p: save_faiss(p, lambda faiss: inverted_lists(faiss, ids=3 * np.arange(N) + 7)),
        {"ids": list(range(7, 7 + 3 * N, 3))},
    ),
    "dataset": (save_dataset, NAMED),
    "dataset_of_arrays": (lambda p: save_dataset(p, length=D, shards=1), NAMED),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_its_own_library_is_read(name):
    save, expected = KINDS[name]
    save(name)
    table = read_table(name, **expected.get("options", {}))
    assert_allclose(table.values, X, rtol=0)
    assert (None if table.ids is None else table.ids.tolist()) == expected.get("ids")
    for column, entries in expected.get("metadata", {}).items():
        assert table.metadata[column].tolist() == entries
    chunks = (
        list(stream_table(name, **expected.get("options", {})).chunks)
        if not Path(name).is_dir() or name.endswith(".lance")
        else [table]
    )
    assert_array_equal(np.concatenate([chunk.values for chunk in chunks]), table.values)


@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith("dataset")])
@pytest.mark.parametrize("damage", ["truncated", "noise"])
def test_a_damaged_file_is_refused_in_one_sentence_or_read(name, damage, refused):
    save, expected = KINDS[name]
    save(name)
    files = [Path(name)] if Path(name).is_file() else sorted(Path(name).rglob("*.lance"))
    for file in files:
        data = file.read_bytes()
        noise = np.random.default_rng(1).bytes(len(data))
        file.write_bytes(data[: len(data) // 2 + 1] if damage == "truncated" else noise)
    if damage == "truncated" and name.endswith((".csv", ".tsv")):  # text can end anywhere
        return
    with pytest.raises(TableError) as caught:
        read_table(name, **expected.get("options", {}))
    assert str(caught.value).isprintable()
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "dtype"), [("a.ibin", "<i4"), ("a.u8bin", "u1"), ("a.i8bin", "i1"), ("a.ivecs", "<i4"), ("a.bvecs", "u1")]
)
def test_integers_stay_mapped(name, dtype):
    whole = np.arange(12).reshape(4, 3).astype(dtype)
    sizes = np.array(whole.shape, "<u4").tobytes()
    row = np.array([3], "<i4").tobytes()
    Path(name).write_bytes(
        b"".join(row + one.tobytes() for one in whole) if "vecs" in name else sizes + whole.tobytes()
    )
    table = read_table(name)
    assert table.values.dtype == dtype
    assert isinstance(table.values, np.memmap)
    assert_array_equal(table.values, whole)


def test_flat_indexes_and_vectors_are_mapped_into_memory():
    save_vecs("a.fvecs", "<f4")
    save_faiss("a.faiss", flat)
    assert isinstance(read_table("a.fvecs").values, np.memmap)
    assert isinstance(read_table("a.faiss").values, np.memmap)


def test_an_index_without_plain_vectors_is_refused(refused):
    save_faiss("a.faiss", lambda faiss: faiss.IndexPQ(4, 2, 4))
    refused("a.faiss", "flat and IVF,Flat indexes can be read")


def test_no_room_is_reserved_for_vectors_that_an_index_does_not_hold(refused, monkeypatch):
    header = struct.pack("<iqqq?i", 1024, 2**21, 0, 0, True, 1)
    centroids = b"IxF2" + struct.pack("<iqqq?iq", 1024, 0, 0, 0, True, 1, 0)
    lists = b"\0" + struct.pack("<q4sqq4sqq", 0, b"ilar", 1, 4096, b"full", 1, 2**21)
    Path("a.faiss").write_bytes(b"IwFl" + header + struct.pack("<qq", 1, 1) + centroids + lists)
    monkeypatch.setattr("congruence.tables._vectors.room_for", lambda *asked: pytest.fail(f"room for {asked}"))
    refused("a.faiss", "8606711808 bytes are expected, but 0 follow")


def test_an_index_that_keeps_its_lists_in_another_file_is_refused(refused):
    faiss = pytest.importorskip("faiss", reason="faiss is not installed")
    index = inverted_lists(faiss)
    lists = faiss.OnDiskInvertedLists(index.nlist, index.code_size, "elsewhere.ivfdata")
    index.replace_invlists(lists)
    faiss.write_index(index, "a.faiss")
    refused("a.faiss", "keeps its vectors in another file")


def test_links_in_hdf5_are_not_followed():
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    save_h5("other.h5")
    with h5py.File("a.h5", "w") as store:
        store["plain"] = X
        store["soft"] = h5py.SoftLink("/plain")
        store["away"] = h5py.ExternalLink("other.h5", "/train")
        store["group"] = h5py.ExternalLink("other.h5", "/group")
    assert_array_equal(read_table("a.h5").values, X)  # the only matrix that is not a link
    for key, what in {"soft": "a link to /plain", "away": "in another file", "group/other": "in another file"}.items():
        with pytest.raises(TableError, match=f"a.h5: .* is .*{what}, which is not followed"):
            read_table("a.h5", key=key)
    with pytest.raises(TableError, match=r"a.h5 holds no array 'none' \(--key\); it holds plain"):
        read_table("a.h5", key="none")


def test_a_matrix_inside_a_group_is_named_by_its_path():
    save_h5("a.h5")
    assert_array_equal(read_table("a.h5", key="group/other").values, X + 1)
    with pytest.raises(TableError, match="a.h5 holds several matrices"):
        read_table("a.h5")


def test_a_matlab_file_of_version_7_3_is_refused_with_a_way_out(refused):
    Path("a.mat").write_bytes(b"MATLAB 7.3 MAT-file, Platform: GLNXA64" + bytes(1000))
    refused("a.mat", "save it with -v7")


def test_a_matlab_file_that_declares_too_much_is_refused(refused, small_memory):
    scipy.io.savemat("a.mat", {"codes": np.zeros((1000, 1000))}, do_compression=True)
    refused("a.mat", "does not fit in memory")


def test_the_options_of_csv_overrule_what_is_detected():
    Path("years.csv").write_text("2019,2020\n1,2\n3,4\n5,6\n")
    assert read_table("years.csv").n == 4
    table = read_table("years.csv", header=True, features="*")
    assert table.features == ("2019", "2020")
    assert table.n == 3
    Path("colons.csv").write_text("x:y\n1:2\n3:4\n")
    assert_array_equal(read_table("colons.csv", delimiter=":", features="*").values, [[1, 2], [3, 4]])
    Path("tabs.csv").write_text("a\t1\t2\n")
    assert read_table("tabs.csv", delimiter="tab", header=False, id="column0").values.tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="delimiter must be one character"):
        read_table("years.csv", delimiter="::")
    np.save("a.npy", X)
    with pytest.raises(TableError, match=r"a.npy cannot be read with delimiter \(--delimiter\): it is not a csv file"):
        read_table("a.npy", delimiter=";")


def test_a_missing_header_is_noted():
    Path("a.csv").write_text(lines(","))
    assert "a.csv has no header: its first line holds numbers" in read_table("a.csv").notes[0]


def test_text_with_a_delimiter_in_quotes_is_one_cell():
    Path("a.csv").write_text('id,x,y\n"a;b",1,2\n"c;d",3,4\n')
    assert read_table("a.csv").ids.tolist() == ["a;b", "c;d"]


def test_fields_of_json_that_are_no_columns_are_left_out():
    rows = [{"id": i, "v": [i, 1.5], "tags": ["a"], "b": True, "maybe": None if i % 2 else "x"} for i in range(6)]
    Path("a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = read_table("a.jsonl")
    assert set(table.metadata) == {"b", "maybe"}
    assert table.ids.tolist() == list(range(6))


def test_integers_of_json_become_floats_when_a_fraction_follows_late():
    rows = [{"x": i % 3, "y": 1} for i in range(1200)] + [{"x": 0.5, "y": 2}]
    Path("a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read_table("a.jsonl").values[-1].tolist() == [0.5, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]\n[3, 4]\n", "must hold one JSON object in each line"),
        ('{"v": [1, 2]}\n{"v": [3]}\n', "is ragged"),
        ('{"v": [1, 2]}\n{"v": "x"}\n', "a.jsonl"),
        ('{"v": ' + "[" * 10**5 + "\n", "a.jsonl"),
        ("{}\n{}\n", "it has no fields of numbers or text"),
    ],
)
def test_other_json_is_refused(text, words, refused):
    Path("a.jsonl").write_text(text)
    refused("a.jsonl", words)


def test_many_different_fields_of_json_do_not_take_memory(refused, small_memory):
    Path("a.jsonl").write_text("\n".join(f'{{"k{i}": 1}}' for i in range(10**4)))
    refused("a.jsonl", "a.jsonl")


def test_parts_of_tensors_and_lines_are_one_table():
    for i, rows in enumerate((slice(0, 10), slice(10, N))):
        pq.write_table(TENSORS.slice(rows.start, rows.stop - rows.start), f"part{i}.parquet")
    assert_array_equal(read_parts(["part*.parquet"]).values, X)


def test_a_dataset_of_several_splits_is_refused_with_their_names(refused):
    save_dataset("all/train")
    save_dataset("all/test")
    Path("all/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert "(test, train)" in refused("all", "is a dataset of several splits")
    assert read_table("all/train").n == N


@pytest.mark.parametrize("name", ["../other.arrow", "/etc/passwd", "absent.arrow"])
def test_a_dataset_that_names_files_elsewhere_is_refused(name, refused):
    save_dataset("data")
    Path("data/state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    refused("data")


def test_a_store_with_a_link_is_refused(refused):
    save_lance("a.lance")
    file = next(Path("a.lance/data").iterdir())
    file.rename("outside")
    file.symlink_to(Path("outside").resolve())
    refused("a.lance", "is a link out of a.lance, to")


def test_every_format_has_its_line_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `.")]
    for (name, *described, written), one in zip(rows, FORMATS, strict=True):
        needs = ", ".join([*([f"extra `{one.extra}`"] if one.extra else []), *(["folder"] if one.folder else [])])
        assert name == " ".join(f"`{suffix}`" for suffix in one.suffixes) + (f" ({needs})" if needs else "")
        assert written == ("yes" if one.writable else "no")
        assert len(described) == 3  # values, ids and metadata
        assert all(described)
        assert one.columnar or ("`--key`" in described[0]) == ("key" in one.options)


def test_an_unknown_suffix_is_refused_with_all_that_are_known(refused):
    Path("a.xlsx").write_text("x")
    message = refused("a.xlsx", "unknown suffix '.xlsx'")
    assert all(suffix in message for suffix in SUFFIXES)


@pytest.mark.parametrize("one", [one for one in FORMATS if one.writable], ids=lambda one: one.suffixes[0])
def test_a_format_that_can_be_written_is_read_back(one):
    pytest.importorskip({"h5ad": "anndata"}.get(one.extra, one.extra or "numpy"), reason="a library is not installed")
    np.save("a.npy", X.astype(np.float64))
    for suffix in one.suffixes:
        table = read_table("a.npy")
        write_table(table, f"b{suffix}")
        assert_array_equal(read_table(f"b{suffix}").values, X)


@pytest.mark.parametrize("one", [one for one in FORMATS if not one.writable], ids=lambda one: one.suffixes[0])
def test_a_format_that_cannot_be_written_is_refused(one):
    np.save("a.npy", X)
    with pytest.raises(TableError, match="cannot be written: the suffix"):
        write_table(read_table("a.npy"), f"b{one.suffixes[0]}")
