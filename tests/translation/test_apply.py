"""`translate apply` on files, patterns and folders: restarts, far rows, columns that stay as they are."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError, TableError
from congruence.files import PART, _beside
from congruence.parts import RECORD, Manifest
from congruence.tables import Table, read_table, write_table
from congruence.translation import load_translator
from congruence.translation._apply import apply_files
from congruence.translation._options import ApplyOptions

PLAIN, FLAGGED = ApplyOptions(), ApplyOptions(flag_far=True)


def part(number, rows=40, d=4, **further):
    rng = np.random.default_rng(number)
    ids = pa.array(range(number * rows, number * rows + rows), pa.int32())
    columns = {f"emb_{i}": rng.normal(5, 2, size=rows).astype(np.float32) for i in range(d)}
    return pa.table({"doc_id": ids, **columns, **further})


@pytest.fixture
def world(tmp_path, monkeypatch, make_translator):
    """A map and a folder of five parts."""
    monkeypatch.chdir(tmp_path)
    make_translator().save("up.safetensors")
    Path("in").mkdir()
    for number in range(5):
        pq.write_table(part(number), f"in/part{number}.parquet")
    return tmp_path


def translated(path):
    """The ids and values of a part, and what its values should be."""
    got = pq.read_table(path)
    given = pq.read_table(Path("in") / Path(path).name)
    matrix = np.column_stack([given[f"emb_{i}"] for i in range(4)])
    assert got["doc_id"].equals(given["doc_id"])
    assert_allclose(
        np.column_stack([got[f"emb_{i}"] for i in range(4)]), load_translator("up.safetensors")(matrix), atol=1e-5
    )


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file())


@pytest.mark.parametrize("source", ["in", "in/*.parquet", "in/part?.parquet"])
def test_parts_become_parts_of_the_same_names(world, source):
    done = apply_files("up.safetensors", source, "out", options=PLAIN)
    assert (done.rows, done.parts, done.before) == (200, 5, 0)
    assert files("out") == [RECORD, *(f"part{i}.parquet" for i in range(5))]
    for number in range(5):
        translated(f"out/part{number}.parquet")
    assert read_table("out/part0.parquet").id_name == "doc_id"


def test_a_second_call_translates_only_what_is_missing_or_changed(world):
    apply_files("up.safetensors", "in", "out", options=PLAIN)
    times = {name: os.stat(f"out/{name}").st_mtime_ns for name in files("out")}
    Path("out/part1.parquet").unlink()
    Path("out/part2.parquet").write_bytes(b"truncated")
    pq.write_table(part(33), "in/part3.parquet")
    done = apply_files("up.safetensors", "in", "out", options=PLAIN)
    assert (done.rows, done.parts, done.before) == (200, 5, 2)
    for number in range(5):
        translated(f"out/part{number}.parquet")
    again = {name: os.stat(f"out/{name}").st_mtime_ns for name in files("out")}
    assert [name for name in times if times[name] == again[name]] == ["part0.parquet", "part4.parquet"]


def test_a_part_of_the_same_size_and_time_but_other_rows_is_translated_again(world):
    apply_files("up.safetensors", "in", "out", options=PLAIN)
    path = "in/part1.parquet"
    before = os.stat(path)
    pq.write_table(part(7).set_column(0, "doc_id", pq.read_table(path)["doc_id"]), path)
    assert os.stat(path).st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert apply_files("up.safetensors", "in", "out", options=PLAIN).before == 4
    translated("out/part1.parquet")


def test_a_part_whose_input_is_gone_is_named(world):
    apply_files("up.safetensors", "in", "out", options=PLAIN)
    Path("in/part0.parquet").unlink()
    assert apply_files("up.safetensors", "in", "out", options=PLAIN).left == ("part0.parquet",)


def test_folders_below_a_pattern_stay_folders(world):
    for day in ("a", "b"):
        Path(f"days/{day}").mkdir(parents=True)
        pq.write_table(part(ord(day)), f"days/{day}/part.parquet")
    apply_files("up.safetensors", "days/*/*.parquet", "out", options=PLAIN)
    assert files("out") == [RECORD, "a/part.parquet", "b/part.parquet"]


def test_another_map_or_other_options_do_not_mix(world, make_translator):
    apply_files("up.safetensors", "in", "out", options=PLAIN)
    before = {name: Path(f"out/{name}").read_bytes() for name in files("out")}
    with pytest.raises(InputError, match="out holds parts of another map or of other options"):
        apply_files("up.safetensors", "in", "out", options=FLAGGED)
    make_translator(group="rigid").save("other.safetensors")
    with pytest.raises(InputError, match="out holds parts of another map"):
        apply_files("other.safetensors", "in", "out", options=PLAIN)
    assert {name: Path(f"out/{name}").read_bytes() for name in files("out")} == before


WORKER = """
from congruence.translation import apply_files
print("ready", flush=True)
apply_files("up.safetensors", "in", "out")
"""


def test_kill_9_at_any_moment_loses_and_doubles_no_row(tmp_path, monkeypatch, make_translator):
    monkeypatch.chdir(tmp_path)
    make_translator().save("up.safetensors")
    Path("in").mkdir()
    for number in range(40):
        pq.write_table(part(number, rows=200), f"in/part{number}.parquet")
    chance, killed = random.Random(0), 0
    for visible in range(0, 32, 7):  # each process gets a few parts further than the one before
        process = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None and len(list(Path("out").glob("*.parquet"))) < visible:
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, 0.004))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process.stdout.close()
        for path in Path("out").glob("*.parquet"):
            translated(path)  # whatever is visible is complete
    assert killed >= 4
    done = apply_files("up.safetensors", "in", "out", options=PLAIN)
    assert (done.rows, done.parts) == (8000, 40)
    assert 20 <= done.before < 40
    assert files("out") == sorted([RECORD, *(f"part{i}.parquet" for i in range(40))])
    ids = np.concatenate([pq.read_table(f"out/part{i}.parquet")["doc_id"] for i in range(40)])
    assert np.array_equal(ids, np.arange(8000))
    for number in range(40):
        translated(f"out/part{number}.parquet")


@pytest.mark.parametrize("moment", ["before the rename", "before the record", "in the record"])
def test_every_moment_of_a_crash_is_repaired(world, monkeypatch, moment):
    class Crash(BaseException):
        pass

    def crash(*arguments, **options):
        raise Crash

    if moment == "before the rename":
        Path("out").mkdir()
        Path("out/.part0.parquet.abc.congruence.part").write_bytes(b"half")
        Path("out/.part0.parquet.abc.congruence.lock").touch()
        Path("out/.congruence.lock").touch()
    elif moment == "before the record":
        with monkeypatch.context() as patch:
            patch.setattr(Manifest, "add", crash)
            with pytest.raises(Crash):
                apply_files("up.safetensors", "in", "out", options=PLAIN)
        assert files("out") == [RECORD, "part0.parquet"]
    else:
        apply_files("up.safetensors", "in", "out", options=PLAIN)
        text = Path("out", RECORD).read_text()
        Path("out", RECORD).write_text(text[: text.rindex('"rows"')])
    done = apply_files("up.safetensors", "in", "out", options=PLAIN)
    assert (done.rows, done.before) == (200, 4 if moment == "in the record" else 0)
    assert files("out") == [RECORD, *(f"part{i}.parquet" for i in range(5))]
    assert [json.loads(line)["rows"] for line in Path("out", RECORD).read_text().splitlines()[1:]] == [40] * 5


def test_a_single_file_leaves_no_temporary_file_of_a_killed_run(world):
    mine, other = (_beside(Path(name), f"-abc{PART}") for name in ("one.parquet", "two.parquet"))
    mine.write_bytes(b"half")
    other.write_bytes(b"of another output")
    apply_files("up.safetensors", "in/part0.parquet", "one.parquet", options=PLAIN)
    assert not mine.exists()
    assert other.exists()


def test_a_damaged_part_is_named_and_the_others_are_kept(world):
    whole = Path("in/part3.parquet").read_bytes()
    Path("in/part3.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TableError, match=r"part3.parquet .*damaged.*; 3 of 5 parts are finished, and the same command"):
        apply_files("up.safetensors", "in", "out", options=PLAIN)
    Path("in/part3.parquet").write_bytes(whole)
    assert apply_files("up.safetensors", "in", "out", options=PLAIN).before == 3


def test_other_metadata_in_a_part_is_carried_along(world):
    pq.write_table(part(2, topic=["é"] * 40), "in/part2.parquet")
    apply_files("up.safetensors", "in", "out", options=ApplyOptions(features="emb_*"))
    assert pq.read_table("out/part2.parquet")["topic"].to_pylist() == ["é"] * 40
    translated("out/part2.parquet")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (part(1, d=3), "part1.parquet does not have the columns of the first part: it lacks emb_3"),
        (
            part(1).set_column(1, "emb_0", pa.array(["a"] * 40)),
            "part1.parquet does not have the columns of the first part: it has other contents in emb_0",
        ),
        (part(1).set_column(1, "emb_0", pa.array([None] * 40, pa.float32())), "part1.parquet has NaN .*row 0, 1"),
    ],
)
def test_parts_with_other_values_are_refused(world, columns, message):
    pq.write_table(columns, "in/part1.parquet")
    with pytest.raises(InputError, match=message):
        apply_files("up.safetensors", "in", "out", options=PLAIN)
    assert files("out") == [RECORD, "part0.parquet"]


def test_empty_parts_stay_empty_parts(world):
    pq.write_table(part(1).slice(0, 0), "in/part1.parquet")
    assert apply_files("up.safetensors", "in", "out", options=FLAGGED).rows == 160
    assert pq.read_table("out/part1.parquet").num_rows == 0
    assert pq.read_schema("out/part1.parquet") == pq.read_schema("out/part0.parquet")


@pytest.mark.parametrize(
    ("source", "out", "message"),
    [
        ("empty", "out", "empty is a folder without embedding files"),
        ("nothing/*.parquet", "out", "no file matches"),
        ("in", "out.parquet", "must be a folder"),
        ("in", "up.safetensors", "must be a folder"),
        ("in", "in", "would overwrite the input"),
        ("in/*.parquet", "in", "would overwrite the input"),
        ("in/*.parquet", "in/../in", "would overwrite the input"),
        ("in", "full", "full is not empty, but was not written by translate apply"),
        ("in", "full/thesis.tex", "must be a folder"),
        ("in", "full/thesis.tex/out", "cannot make the folder"),
        ("in/part0.parquet", "nowhere/one.parquet", "does not exist"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(world, source, out, message):
    Path("empty").mkdir()
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("...")
    before = files(".")
    with pytest.raises(InputError, match=message):
        apply_files("up.safetensors", source, out, options=PLAIN)
    assert files(".") == before


def test_a_folder_inside_the_input_and_a_map_inside_it_are_no_parts(world):
    shutil.copy("up.safetensors", "in/up.safetensors")
    for before in (0, 5):
        done = apply_files("in/up.safetensors", "in", "in/translated", options=PLAIN)
        assert (done.parts, done.before) == (5, before)


def test_a_full_disk_is_reported_and_leaves_complete_parts(world, monkeypatch):
    writes = []

    def full(number):
        writes.append(number)
        if len(writes) > 4:  # of the record and of a part, and of the folder after each
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("congruence.files.os.fsync", full)
    with pytest.raises(InputError, match=r"No space left on device; 1 of 5 parts are finished"):
        apply_files("up.safetensors", "in", "out", options=PLAIN)
    assert files("out") == [RECORD, "part0.parquet"]
    monkeypatch.undo()
    os.chdir(world)
    assert apply_files("up.safetensors", "in", "out", options=PLAIN).before == 1


def test_an_output_in_use_is_refused(world, held_elsewhere):
    with held_elsewhere("out", folder=True), pytest.raises(InputError, match="another process is using out"):
        apply_files("up.safetensors", "in", "out", options=PLAIN)
    with held_elsewhere("one.parquet"), pytest.raises(InputError, match="another process is using one.parquet"):
        apply_files("up.safetensors", "in/part0.parquet", "one.parquet", options=PLAIN)


def test_far_rows_are_flagged_and_counted(world):
    table = part(7)
    values = table["emb_0"].to_numpy().copy()
    values[[3, 8]] = 1e6
    pq.write_table(table.set_column(1, "emb_0", pa.array(values)), "in/part2.parquet")
    done = apply_files("up.safetensors", "in", "out", options=FLAGGED)
    assert (done.flag, done.far >= 2) == ("far", True)
    flags = pq.read_table("out/part2.parquet")["far"].to_numpy()
    assert flags.dtype == bool
    assert flags[[3, 8]].all()
    assert done.far == sum(pq.read_table(f"out/part{i}.parquet")["far"].to_numpy().sum() for i in range(5))
    assert "far" in read_table("out/part2.parquet").metadata
    assert apply_files("up.safetensors", "in", "out", options=FLAGGED).far == done.far


def test_the_flag_takes_a_name_that_is_free(world):
    pq.write_table(part(0, far=["no"] * 40, far_2=["no"] * 40), "one.parquet")
    done = apply_files("up.safetensors", "one.parquet", "out.parquet", flag_far=True, features="emb_*")
    assert done.flag == "far_3"
    assert pq.read_table("out.parquet")["far"].to_pylist() == ["no"] * 40


def test_the_flag_needs_a_map_that_knows_its_rows(world):
    old = Path(__file__).parents[1] / "saved_by_0_1_0" / "translator.safetensors"
    with pytest.raises(
        InputError, match=r"flag_far \(--flag-far\): .*translator.safetensors does not know the rows of its fit"
    ):
        apply_files(old, "in", "out", options=FLAGGED)
    with pytest.raises(InputError, match=r"cannot be used with inverse \(--inverse\)"):
        apply_files("up.safetensors", "in", "out", options=ApplyOptions(flag_far=True, inverse=True))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".zarr", ".h5ad", ".npy"])
def test_parts_of_arrays(world, suffix):
    Path("arrays").mkdir()
    x = np.random.default_rng(0).normal(5, 2, size=(30, 4))
    bare = suffix == ".npy"
    for number in range(2):
        labels = {} if bare else {"ids": [f"d{i}" for i in range(30)], "metadata": {"topic": ["a"] * 30}}
        write_table(Table(x + number, "t", **labels), f"arrays/{number}{suffix}")
    done = apply_files("up.safetensors", "arrays", "out", options=PLAIN if bare else FLAGGED)
    assert (done.rows, done.parts) == (60, 2)
    back = read_table(f"out/1{suffix}")
    assert_allclose(back.values, load_translator("up.safetensors")(x + 1), atol=1e-6)
    if not bare:
        assert set(back.metadata) == {"topic", "far"}
        assert back.ids.tolist() == [f"d{i}" for i in range(30)]
    assert apply_files("up.safetensors", "arrays", "out", options=PLAIN if bare else FLAGGED).before == 2


RICH = {
    "doc id": pa.array([7, 2**40, 3], pa.uint64()),
    "kind": pa.array(["u", None, "u"]).dictionary_encode(),
    "day": pa.array([0, 1, None], pa.date32()),
    "when": pa.array([0, 1, None], pa.timestamp("us", "Europe/Berlin")),
    "price": pa.array([None, "1.50", "2.25"]).cast(pa.decimal128(5, 2)),
    "count": pa.array([2**60 + 1, None, 3], pa.int64()),
    "small": pa.array([1, 2, 3], pa.int8()),
    "tags": pa.array([["a"], [], None], pa.list_(pa.string())),
    "where": pa.array([{"x": 1}, {"x": 2}, None]),
    "Metadata_plate": pa.array(["p", "q", ""]),
    "x 1": pa.array([True, None, False]),
}
VECTORS = {
    "list": pa.array([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 1, 2, 3]], pa.list_(pa.float32())),
    "large": pa.array([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 1, 2, 3]], pa.large_list(pa.float64())),
    "fixed": pa.array([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 1, 2, 3]], pa.list_(pa.float32(), 4)),
}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("kind", [*VECTORS, "columns"])
def test_every_other_column_keeps_its_name_type_place_and_contents(world, make_translator, suffix, kind):
    make_translator(4, 6).save("wider.safetensors")
    names = list(RICH)
    if kind == "columns":
        matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
        values = {f"dim {j + 1:02d}": matrix[:, j] for j in range(4)}
    else:
        matrix = np.array(VECTORS[kind].to_pylist())
        values = {"vector": VECTORS[kind]}
    table = pa.table({**{name: RICH[name] for name in names[:3]}, **values, **{name: RICH[name] for name in names[3:]}})
    (pq.write_table if suffix == ".parquet" else pyarrow.feather.write_feather)(table, f"rich{suffix}")
    options = ApplyOptions(id="doc id", features="dim *" if kind == "columns" else "vector")
    apply_files("wider.safetensors", f"rich{suffix}", f"out{suffix}", options=options)
    got = pq.read_table(f"out{suffix}") if suffix == ".parquet" else pyarrow.feather.read_table(f"out{suffix}")
    new = [f"dim {j + 1:02d}" for j in range(6)] if kind == "columns" else ["vector"]
    assert got.column_names == [*names[:3], *new, *names[3:]]
    given = pq.read_table(f"rich{suffix}") if suffix == ".parquet" else table
    for name in names:
        assert got.schema.field(name).type == given.schema.field(name).type
        assert got[name].to_pylist() == given[name].to_pylist()
    expected = load_translator("wider.safetensors")(matrix)
    found = np.column_stack([got[n] for n in new]) if kind == "columns" else np.array(got["vector"].to_pylist())
    assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    if kind == "fixed":
        assert got.schema.field("vector").type == pa.list_(pa.float32(), 6)


def test_names_that_meant_the_old_values_are_not_given_to_new_ones(world):
    table = pa.table({"doc_id": ["a", "b"], **{name: [1.0, 2.0] for name in ("red", "green", "blue", "grey")}})
    pq.write_table(table, "named.parquet")
    apply_files("up.safetensors", "named.parquet", "out.parquet", options=PLAIN)
    assert pq.read_schema("out.parquet").names == ["doc_id", "emb_0", "emb_1", "emb_2", "emb_3"]


COLOURS, SIZES = ("red", "green", "blue", "grey"), ("tall", "wide", "deep", "long")


@pytest.fixture
def named(world, make_translator):
    """A map whose fit had named columns, and a table with these in another order."""
    replace(make_translator(), columns_new=COLOURS, columns_old=SIZES).save("named.safetensors")
    rows = np.random.default_rng(0).normal(5, 2, size=(6, 4))
    columns = {name: rows[:, COLOURS.index(name)] for name in ("grey", "red", "blue", "green")}
    pq.write_table(pa.table({"doc_id": list("abcdef"), **columns}), "other_order.parquet")
    return load_translator("named.safetensors"), rows


@pytest.mark.parametrize("out", ["out.parquet", "out.csv", "out.npz"])
def test_columns_are_matched_by_name_with_those_of_the_fit(named, out):
    translator, rows = named
    assert translator.columns() == COLOURS
    apply_files("named.safetensors", "other_order.parquet", out, options=PLAIN)
    got = read_table(out)
    assert got.features == SIZES  # those of the old space, so that the way back works
    assert_allclose(got.values, translator(rows), atol=1e-9)
    apply_files("named.safetensors", out, "back.parquet", options=ApplyOptions(inverse=True))
    back = read_table("back.parquet")
    assert back.features == COLOURS
    assert_allclose(back.values, rows, atol=1e-9)


def test_parts_may_have_their_columns_in_different_orders(named):
    translator, rows = named
    Path("parts").mkdir()
    shutil.copy("other_order.parquet", "parts/a.parquet")
    columns = {name: rows[:, j] for j, name in enumerate(COLOURS)}
    pq.write_table(pa.table({**columns, "doc_id": list("ghijkl")}), "parts/b.parquet")
    apply_files("named.safetensors", "parts", "out", options=PLAIN)
    for name in "ab":
        assert_allclose(read_table(f"out/{name}.parquet").values, translator(rows), atol=1e-9)


def test_a_data_frame_is_matched_by_name_and_numbers_are_an_order(named):
    pandas = pytest.importorskip("pandas")
    translator, rows = named
    frame = pandas.read_parquet("other_order.parquet").drop(columns="doc_id")
    assert_allclose(translator(frame), translator(rows))
    assert (translator.far(frame) == translator.far(rows)).all()
    numbered = replace(translator, columns_new=tuple(f"emb_{i}" for i in range(4)))
    assert_allclose(numbered(pandas.DataFrame(rows, columns=[f"x{i}" for i in range(1, 5)])), translator(rows))
    sorted_names = pandas.DataFrame(rows, columns=numbered.columns_new)[["emb_0", "emb_2", "emb_1", "emb_3"]]
    assert_allclose(numbered(sorted_names), translator(rows))


def test_other_columns_than_those_of_the_fit_are_refused(named):
    table = pq.read_table("other_order.parquet")
    pq.write_table(table.rename_columns([*table.column_names[:-1], "black"]), "black.parquet")
    for out in ("out.parquet", "out.npz"):
        with pytest.raises(TableError, match=r"black.parquet does not have .* lacks green and has black in addition"):
            apply_files("named.safetensors", "black.parquet", out, options=PLAIN)
        assert not Path(out).exists()
    with pytest.raises(TableError, match="lacks tall, wide, deep, long"):
        apply_files("named.safetensors", "other_order.parquet", "out.parquet", options=ApplyOptions(inverse=True))


def test_new_columns_do_not_clash_with_others(world, make_translator):
    make_translator(4, 6).save("wider.safetensors")
    pq.write_table(part(0, emb_5=["x"] * 40), "clash.parquet")
    options = ApplyOptions(features="emb_0,emb_1,emb_2,emb_3")
    with pytest.raises(TableError, match="several columns would be called emb_5"):
        apply_files("wider.safetensors", "clash.parquet", "out.parquet", options=options)
    assert not Path("out.parquet").exists()


def test_from_one_format_to_another(world):
    table = part(0, kind=pa.array(["u", "v"] * 20).dictionary_encode())
    pq.write_table(table, "one.parquet")
    expected = load_translator("up.safetensors")(np.column_stack([table[f"emb_{i}"] for i in range(4)]))
    for out in ("one.csv", "one.arrow", "one.npz", "one.feather", "one.csv.gz"):
        apply_files("up.safetensors", "one.parquet", out, options=ApplyOptions(features="emb_*"))
        back = read_table(out) if out == "one.npz" else read_table(out, features="emb_*", id="doc_id")
        assert back.ids.astype(int).tolist() == list(range(40))
        assert back.metadata["kind"].tolist() == ["u", "v"] * 20
        assert_allclose(back.values, expected, rtol=1e-5)


def test_dask_arrays_are_translated_lazily(world):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    translator = load_translator("up.safetensors")
    x = np.random.default_rng(0).normal(5, 2, size=(100, 4)).astype(np.float32)
    x[5] = 1e6
    lazy = da.from_array(x, chunks=(30, 2))
    for work in (translator, translator.inverse):
        assert isinstance(work(lazy), da.Array)
        assert work(lazy).dtype == np.float32
        assert work(lazy).shape == (100, 4)
        assert_allclose(work(lazy).compute(), work(x), rtol=1e-5)
    assert np.array_equal(translator.far(lazy).compute(), translator.far(x))
    assert translator(lazy.astype(int)).dtype == np.float64


def test_dask_need_not_be_installed(world, monkeypatch):
    monkeypatch.delitem(sys.modules, "distributed", raising=False)
    monkeypatch.setitem(sys.modules, "dask", None)  # an import raises
    assert apply_files("up.safetensors", "in", "out", options=PLAIN).parts == 5
    assert apply_files("up.safetensors", "in/part0.parquet", "one.parquet", options=PLAIN).rows == 40


def test_dask_workers_translate_parts(world, local_cluster):
    workers = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
    with local_cluster(**workers) as cluster, cluster.get_client():
        done = apply_files("up.safetensors", "in", "out", options=FLAGGED)
        assert apply_files("up.safetensors", "in", "out", options=FLAGGED).before == 5
        apply_files("up.safetensors", "in/part0.parquet", "one.parquet", options=FLAGGED)
        Path("in/part1.parquet").write_bytes(b"PAR1 damaged")
        with pytest.raises(TableError, match=r"part1.parquet .*; 4 of 5 parts are finished"):
            apply_files("up.safetensors", "in", "out", options=FLAGGED)
    assert (done.rows, done.parts) == (200, 5)
    apply_files("up.safetensors", "in/part0.parquet", "here.parquet", options=FLAGGED)
    assert pq.read_table("one.parquet").equals(pq.read_table("here.parquet"))
    for number in (0, 2, 3, 4):
        translated(f"out/part{number}.parquet")
