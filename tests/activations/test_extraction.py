"""Tables hold what a bare loop gives, in bounded memory, and an interrupted run goes on."""

import json
import os
import time

import numpy as np
import pytest

from congruence.activations import _extract as module
from congruence.activations import array_inputs, extract, image_inputs, text_inputs
from congruence.activations._parts import PartFolder
from congruence.errors import CongruenceError, CongruenceWarning, InputError
from congruence.parts import RECORD
from congruence.tables import Table, read_table, write_table

torch = pytest.importorskip("torch")


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(23, 3, 8, 8)).astype(np.float32)


def bare(model, x, batch):
    model.eval()
    with torch.no_grad():
        return torch.cat([model(part) for part in torch.tensor(x).split(batch)]).numpy()


@pytest.mark.parametrize("suffix", [".parquet", ".zarr", ".arrow"])
def test_tables_are_those_of_a_bare_loop(suffix, pictures, x, tmp_path):
    np.save(tmp_path / "x.npy", x)
    pictures.train()
    out = tmp_path / f"run.{{layer}}{suffix}"
    found = extract(pictures, array_inputs(tmp_path / "x.npy"), ["head", "encoder"], out, batch=5, device="cpu")
    assert pictures.head[0].training
    assert [(f.layer, f.path.name, f.n, f.d) for f in found.values()] == [
        ("head", f"run.head{suffix}", 23, 5),
        ("encoder", f"run.encoder{suffix}", 23, 144),
    ]
    table = found["head"].table()
    assert np.array_equal(table.values, bare(pictures, x, 5))
    assert table.ids.tolist() == list(range(23))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"run.encoder{suffix}", f"run.head{suffix}", "x.npy"]


def test_an_interrupted_run_goes_on_and_ends_the_same(pictures, x, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART_BYTES", 1)  # every batch is a part
    inputs = array_inputs(x)
    seen = []

    def stop(what, done, n):
        seen.append(done)
        if done == 15:
            raise KeyboardInterrupt

    out = tmp_path / "run.parquet"
    with pytest.raises(KeyboardInterrupt):
        extract(pictures, inputs, "head", out, batch=5, device="cpu", progress=stop)
    assert not out.exists()
    extract(pictures, inputs, "head", out, batch=5, device="cpu", progress=lambda what, done, n: seen.append(done))
    assert seen == [5, 10, 15, 15, 20, 23]
    assert np.array_equal(read_table(out).values, bare(pictures, x, 5))


def test_parts_are_written_by_time_as_well_as_by_size(pictures, x, tmp_path, monkeypatch):
    now, made, seen = [0.0], [], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    put = PartFolder.put
    monkeypatch.setattr(PartFolder, "put", lambda self, end, tables: [made.append(end), put(self, end, tables)])

    def pass_time(what, done, total):
        seen.append(done)
        now[0] += 25.0
        if len(seen) == 6:
            raise KeyboardInterrupt

    out = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt):
        extract(pictures, x, "head.1", out, batch=2, device="cpu", progress=pass_time)
    assert made == [3]  # 75 seconds of 25 a batch; the next part would have had three batches, too
    extract(pictures, x, "head.1", out, batch=2, device="cpu", progress=lambda what, done, total: seen.append(done))
    assert seen[6] == 8  # batches 4 to 6 are lost, and nothing else
    assert np.array_equal(read_table(out).values, extract(pictures, x, "head.1", batch=2, device="cpu").values)


def test_parts_of_other_weights_are_not_gone_on_from(pictures, x, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART_BYTES", 1)

    def stop(what, done, n):
        if done == 15:
            raise KeyboardInterrupt

    out = tmp_path / "run.parquet"
    with pytest.raises(KeyboardInterrupt):
        extract(pictures, array_inputs(x), "head", out, batch=5, device="cpu", progress=stop)
    assert json.loads((tmp_path / ".run.parquet.parts" / RECORD).read_text().splitlines()[0])["settings"]["n"] == 23
    with torch.no_grad():
        pictures.head[1].bias += 1
    extract(pictures, array_inputs(x), "head", out, batch=5, device="cpu")
    assert np.array_equal(read_table(out).values, bare(pictures, x, 5))


@pytest.mark.parametrize("other", ["key", "code", "file", "tokenizer"])
def test_parts_of_other_arrays_code_or_files_are_not_gone_on_from(pictures, x, tmp_path, monkeypatch, other):
    """Whatever changed between an interruption and the next run, all rows are those of the next run."""
    monkeypatch.setattr(module, "PART_BYTES", 1)
    path, out = tmp_path / "x.npz", tmp_path / "run.parquet"
    np.savez(path, a=x, b=x[::-1])
    before = path.stat()

    def stop(what, done, n):
        if done == 15:
            raise KeyboardInterrupt

    options = {"batch": 5, "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        extract(pictures, path, "head", out, key="a", progress=stop, **options)
    expected, more = x, {"key": "a"}
    if other == "key":
        expected, more = x[::-1].copy(), {"key": "b"}
    elif other == "code":
        pictures.head.register_forward_hook(lambda module, given, result: result * 2)
    elif other == "file":
        np.savez(path, a=x * 2, b=x)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        expected = x * 2
    else:
        more["prepare"], expected = lambda rows: torch.tensor(rows).flip(3), x[..., ::-1].copy()
    extract(pictures, path, "head", out, **more, **options)
    assert np.array_equal(read_table(out).values, bare(pictures, expected, 5))


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_an_input_that_is_changed_during_an_extraction_is_refused(x, tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    rows = x.reshape(23, -1)
    write_table(Table(rows, "x"), path)

    def overwrite(what, done, n):
        write_table(Table(rows[:, ::-1].copy(), "x"), path)

    for out in (None, tmp_path / "run.parquet"):
        with pytest.raises(InputError, match="was changed while it was in use"):
            extract(torch.nn.Sequential(torch.nn.Linear(192, 2)), path, "0", out, batch=5, progress=overwrite)
    assert not (tmp_path / "run.parquet").exists()


@pytest.mark.parametrize("damage", [lambda part: part.write_bytes(part.read_bytes()[:100]), lambda part: part.unlink()])
def test_a_part_that_is_damaged_or_gone_is_made_again_and_what_comes_after_it(
    pictures, x, tmp_path, monkeypatch, damage
):
    monkeypatch.setattr(module, "PART_BYTES", 1)
    seen = []

    def stop(what, done, n):
        if done == 20:
            raise KeyboardInterrupt

    inputs, out = array_inputs(x), tmp_path / "run.parquet"
    with pytest.raises(KeyboardInterrupt):
        extract(pictures, inputs, "head", out, batch=5, device="cpu", progress=stop)
    damage(sorted((tmp_path / ".run.parquet.parts").glob("*.parquet"))[1])
    extract(pictures, inputs, "head", out, batch=5, device="cpu", progress=lambda what, done, n: seen.append(done))
    assert seen == [10, 15, 20, 23]
    assert np.array_equal(read_table(out).values, bare(pictures, x, 5))


def test_parts_whose_record_was_removed_by_a_killed_process_are_removed(pictures, x, tmp_path):
    folder, out = tmp_path / ".run.parquet.parts", tmp_path / "run.parquet"
    folder.mkdir()
    (folder / "000000000-000000002-0.parquet").write_text("half removed")
    extract(pictures, array_inputs(x), "head", out, device="cpu")
    assert not folder.exists()
    assert read_table(out).n == len(x)


def test_what_lies_where_parts_would_go_is_left_alone(pictures, x, tmp_path):
    (tmp_path / ".run.parquet.parts").mkdir()
    (tmp_path / ".run.parquet.parts" / "diary.txt").write_text("mine")
    with pytest.raises(InputError, match="but has other contents; move it"):
        extract(pictures, array_inputs(x), "head", tmp_path / "run.parquet", device="cpu")
    (tmp_path / ".b.parquet.parts").symlink_to(tmp_path)
    with pytest.raises(InputError, match="has other contents"):
        extract(pictures, array_inputs(x), "head", tmp_path / "b.parquet", device="cpu")
    assert (tmp_path / ".run.parquet.parts" / "diary.txt").read_text() == "mine"


def test_the_name_of_inputs_tells_them_from_others(x, tmp_path):
    image = pytest.importorskip("PIL.Image")
    assert array_inputs(x).name == array_inputs(x.copy()).name != array_inputs(x + 1).name
    image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    assert image_inputs(tmp_path).name == image_inputs(tmp_path).name != image_inputs(tmp_path, size=2).name


def test_no_more_is_held_than_a_part(pictures, x, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART_BYTES", 4 * 5 * 4 * 2)
    sizes = []
    put = module.PartFolder.put
    monkeypatch.setattr(module.PartFolder, "put", lambda self, end, t: (sizes.append(t[0].n), put(self, end, t)))
    extract(pictures, array_inputs(x), "head", tmp_path / "a.parquet", batch=4, device="cpu")
    assert sizes == [8, 8, 7]


def test_texts_become_a_row_for_every_token(words, tokenize, tmp_path):
    (tmp_path / "corpus.txt").write_text("abc\n\nde\nfghi\n")
    inputs = text_inputs(tmp_path / "corpus.txt")
    how = {"prepare": tokenize, "batch": 2, "device": "cpu"}
    extract(words, inputs, "recur", tmp_path / "t.parquet", **how)
    table = read_table(tmp_path / "t.parquet")
    assert table.ids.tolist() == ["1:0", "1:1", "1:2", "3:0", "3:1", "4:0", "4:1", "4:2", "4:3"]
    assert table.metadata["Metadata_input"].tolist() == [1, 1, 1, 3, 3, 4, 4, 4, 4]
    with torch.no_grad():
        assert np.array_equal(table.values[-4:], words(tokenize(["fghi"])["tokens"])[0].numpy())
    extract(words, inputs, "recur", tmp_path / "t.parquet", pool="last", **how)
    assert np.array_equal(read_table(tmp_path / "t.parquet").values, table.values[[2, 4, 8]])


def test_texts_come_from_columns_of_tables(tmp_path):
    (tmp_path / "t.csv").write_text("id,words,size\na,one two,1\nb,three,2\n")
    inputs = text_inputs(tmp_path / "t.csv")
    assert (inputs.read(0, 2), inputs.ids.tolist()) == (["one two", "three"], ["a", "b"])
    with pytest.raises(InputError, match="no column 'wrods'; it has words, size"):
        text_inputs(tmp_path / "t.csv", column="wrods")
    with pytest.raises(InputError, match="column 'size' of .* has no text in 2 rows"):
        text_inputs(tmp_path / "t.csv", column="size")


def test_images_come_in_the_order_of_their_names(pictures, tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    (tmp_path / "in" / "b").mkdir(parents=True)
    for name, picture in zip(["b/2.png", "a.png", "b/10.png"], pixels, strict=True):
        image.fromarray(picture).save(tmp_path / "in" / name)
    (tmp_path / "in" / "notes.txt").write_text("none of them")
    inputs = image_inputs(tmp_path / "in", mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 0.5))
    assert inputs.ids.tolist() == ["a.png", "b/10.png", "b/2.png"]
    batch = inputs.read(0, 3)
    np.testing.assert_allclose(batch[2, 1], (pixels[0, :, :, 1] / 255 - 0.5) / 0.25, atol=1e-6)
    extract(pictures, inputs, "encoder.0", tmp_path / "i.parquet", pool="mean", device="cpu")
    assert read_table(tmp_path / "i.parquet").ids.tolist() == inputs.ids.tolist()
    assert image_inputs(tmp_path / "in", size=4).read(1, 3).shape == (2, 3, 4, 4)


def test_images_that_cannot_be_used_are_named(tmp_path):
    image = pytest.importorskip("PIL.Image")
    with pytest.raises(InputError, match="holds no images"):
        image_inputs(tmp_path)
    image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    image.new("L", (6, 4)).save(tmp_path / "b.png")
    with pytest.raises(InputError, match="b.png is 6 x 4 pixels, but .*a.png is 4 x 4; give a size"):
        image_inputs(tmp_path).read(0, 2)
    assert image_inputs(tmp_path, size=2).read(0, 2).shape == (2, 3, 2, 2)
    (tmp_path / "c.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    with pytest.raises(InputError, match="cannot read an image from .*c.png, it may be damaged"):
        image_inputs(tmp_path).read(2, 3)
    with pytest.raises(InputError, match="is not a folder"):
        image_inputs(tmp_path / "a.png")
    with pytest.raises(InputError, match="std positive"):
        image_inputs(tmp_path, std=(1, 0, 1))
    with pytest.raises(InputError, match="size must be at least 1"):
        image_inputs(tmp_path, size=0)


def test_arrays_come_with_their_ids(tmp_path):
    x = np.arange(24.0).reshape(3, 2, 4)
    np.savez(tmp_path / "x.npz", x=x, ids=np.array(["a", "b", "c"]))
    inputs = array_inputs(tmp_path / "x.npz")
    assert inputs.ids.tolist() == ["a", "b", "c"]
    assert np.array_equal(inputs.read(1, 3), x[1:])
    np.savez(tmp_path / "two.npz", x=x, y=x)
    with pytest.raises(InputError, match="several arrays"):
        array_inputs(tmp_path / "two.npz")
    with pytest.raises(InputError, match="no array 'z'; it holds x, y"):
        array_inputs(tmp_path / "two.npz", key="z")
    assert array_inputs(tmp_path / "two.npz", key="y").n == 3
    with pytest.raises(InputError, match="have shape"):
        array_inputs(x, ids=[1, 2])
    with pytest.raises(InputError, match="must have rows"):
        array_inputs(x[:0])
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(InputError, match="holds Python objects, which are never unpickled"):
        array_inputs(tmp_path / "objects.npy")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"layers": ["head", "encoder"]}, "out must contain {layer} for 2 layers"),
        ({"out": "x.npy"}, "out must end in one of .parquet"),
        ({"batch": 0}, "batch must be an integer of at least 1; got 0"),
        ({"precision": "int8"}, "precision must be one of"),
        ({"model": len}, "model must be a torch module"),
        ({"layers": "haed"}, "no layer 'haed'; similar names are head"),
    ],
)
def test_calls_that_cannot_end_well_are_refused_before_any_work(how, says, pictures, x, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = {"model": pictures, "inputs": array_inputs(x), "layers": "head", "out": "x.parquet", "device": "cpu"} | how
    with pytest.raises(InputError, match=says):
        extract(**call)
    assert not list(tmp_path.iterdir())


def test_texts_without_a_tokenizer_are_refused(words, tmp_path):
    (tmp_path / "c.txt").write_text("ab\n")
    with pytest.raises(InputError, match="texts must be tokenized, but the model has no tokenizer; give prepare"):
        extract(words, text_inputs(tmp_path / "c.txt"), "embed", tmp_path / "x.parquet")
    (tmp_path / "e.txt").write_text("\n\n")
    with pytest.raises(InputError, match="all lines are empty"):
        text_inputs(tmp_path / "e.txt")
    with pytest.raises(InputError, match="leave out column"):
        text_inputs(tmp_path / "c.txt", column="words")


class Turned(torch.nn.Module):
    """Layers that give no row for each input: positions first, a spectrum, and a name that no file can have."""

    def __init__(self):
        super().__init__()
        self.first, self.spectrum, self.inner = (torch.nn.Identity() for _ in range(3))
        self.named = torch.nn.ModuleDict({"a/b": torch.nn.Identity()})

    def forward(self, x):
        self.spectrum(torch.fft.fft(x))
        self.first(torch.stack([x, x]))  # (2, rows, channels)
        return self.named["a/b"](x)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("pool", ["none", "mean", "last"])
def test_a_layer_whose_first_axis_is_not_the_inputs_is_refused(pool, n, tmp_path):
    inputs = array_inputs(np.ones((n, 4), np.float32))
    with pytest.raises(InputError, match=f"'first' returns 2 rows for {n} inputs"):
        extract(Turned(), inputs, "first", tmp_path / "a.parquet", pool=pool, device="cpu")
    assert not list(tmp_path.iterdir())  # nor parts, of which there are none


def test_complex_numbers_and_names_that_no_file_can_have_are_refused(tmp_path):
    inputs = array_inputs(np.ones((3, 4), np.float32))
    with pytest.raises(InputError, match="'spectrum' returns complex numbers"):
        extract(Turned(), inputs, "spectrum", tmp_path / "a.parquet", device="cpu")
    with pytest.raises(InputError, match="'named.a/b' cannot be part of a file name"):
        extract(Turned(), inputs, "named.a/b", tmp_path / "{layer}.parquet", device="cpu")
    assert extract(Turned(), inputs, "named.a/b", tmp_path / "a.parquet", device="cpu").n == 3


def test_text_without_its_mark_and_in_utf_8_alone(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes("\ufeffone\n\n  \ntwo é\r\n".encode())
    found = text_inputs(path)
    assert (found.ids.tolist(), found.read(0, 2)) == ([1, 4], ["one", "two é"])
    path.write_bytes("one\n\nschön\n".encode("latin-1"))
    with pytest.raises(InputError, match="corpus.txt is not UTF-8 text in line 3; save it as UTF-8"):
        text_inputs(path)


@pytest.mark.parametrize("mean", [0.5, None, [0.5], ["a"] * 3, [float("nan")] * 3])
def test_a_mean_of_colours_that_is_not_three_numbers_is_refused_whatever_it_is(tmp_path, mean):
    with pytest.raises(InputError, match="mean and std must be three numbers each"):
        image_inputs(tmp_path, mean=mean)


def test_images_of_16_bits_are_scaled_and_those_of_32_refused(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.array([[0, 257], [32896, 65535]], np.uint16)).save(tmp_path / "a.png")
    read = image_inputs(tmp_path).read(0, 1)
    np.testing.assert_allclose(read[0, 1] * 255, [[0, 1], [128, 255]], atol=1e-4)
    image.fromarray(np.ones((2, 2), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match="a.tif has 32-bit grey values"):
        image_inputs(tmp_path).read(0, 2)


def test_a_table_without_text_and_a_folder_are_no_texts(tmp_path):
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="numbers.csv has no column of text; it has a, b"):
        text_inputs(tmp_path / "numbers.csv")
    (tmp_path / "corpus").mkdir()
    with pytest.raises(CongruenceError, match="corpus is a folder, but a file is required"):
        text_inputs(tmp_path / "corpus")


def test_without_out_tables_are_returned(pictures, x):
    table = extract(pictures, x, "head", batch=5, device="cpu")
    assert np.array_equal(table.values, bare(pictures, x, 5))
    assert (table.name, table.ids.tolist()) == ("head", list(range(23)))
    both = extract(pictures, torch.tensor(x), ["head", "encoder"], batch=5, device="cpu", about={"model": "toy"})
    assert {name: one.d for name, one in both.items()} == {"head": 5, "encoder": 144}
    assert np.array_equal(both["head"].values, table.values)
    assert set(both["head"].metadata["model"]) == {"toy"}


def test_tables_and_frames_keep_their_ids():
    pandas = pytest.importorskip("pandas")
    model, x = torch.nn.Sequential(torch.nn.Linear(5, 2)), np.ones((3, 5), np.float32)
    assert extract(model, Table(x, "t", np.array([7, 8, 9])), "0", device="cpu").ids.tolist() == [7, 8, 9]
    frame = pandas.DataFrame(x, columns=list("abcde")).assign(name=["u", "v", "w"])
    assert extract(model, frame, "0", id="name", device="cpu").ids.tolist() == ["u", "v", "w"]


def test_texts_are_a_list_a_file_or_a_column(words, tokenize, tmp_path):
    texts = ["abc", "de"]
    (tmp_path / "t.txt").write_text("abc\nde\n")
    (tmp_path / "t.csv").write_text("id,words\nu,abc\nv,de\n")
    how = {"pool": "last", "device": "cpu"}
    listed = extract((words, tokenize), texts, "recur", **how)
    lines = extract(words, tmp_path / "t.txt", "recur", prepare=tokenize, **how)
    column = extract((words, tokenize), str(tmp_path / "t.csv"), "recur", column="words", id="id", **how)
    assert (listed.ids.tolist(), lines.ids.tolist(), column.ids.tolist()) == ([0, 1], [1, 2], ["u", "v"])
    for found in (lines, column):
        assert np.array_equal(found.values, listed.values)


def test_a_folder_is_images(pictures, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (9, 8)).save(tmp_path / "a.png")
    assert extract(pictures, tmp_path, "head", size=8, mean=(0.5, 0.5, 0.5), device="cpu").ids.tolist() == ["a.png"]


def test_repeated_ids_and_rows_that_are_not_finite_are_warned_of(pictures, x):
    with pytest.warns(CongruenceWarning, match=r"ids occur more than once \(7\)"):
        extract(pictures, array_inputs(x, ids=[7, 7, *range(8, 29)]), "head", device="cpu")
    x[3] = np.nan
    with pytest.warns(CongruenceWarning, match="1 of 23 rows of head contain NaN or infinity"):
        extract(pictures, x, "head", device="cpu")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"size": 8}, "size applies to the path of images only, but the inputs are an array"),
        (
            {"inputs": ["a"], "column": "words"},
            "column applies to the path of text only, but the inputs are a list of texts",
        ),
        ({"inputs": []}, "inputs is an empty list of texts"),
        ({"inputs": "x.npy", "kind": "sound"}, "kind must be one of 'array', 'images', 'text'; got 'sound'"),
        ({"revision": "0" * 40}, "revision applies only to models of a hub"),
        ({"model": (len, 3)}, "with a callable prepare; got a int"),
        ({"bach": 3}, "unexpected keyword argument 'bach'; did you mean 'batch'"),
    ],
)
def test_options_without_a_meaning_are_refused(how, says, pictures, x):
    call = {"model": pictures, "inputs": x, "layers": "head", "device": "cpu"} | how
    with pytest.raises((InputError, TypeError), match=says):
        extract(**call)
