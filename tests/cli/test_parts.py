"""Every command that takes rows takes a folder of parts, a pattern and standard input in the place of a file."""

import io
import json
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from congruence.cli import main
from congruence.tables import address, read_table

N, D = 240, 4
CUTS = (0, 100, 160, N)
DECODER = "import torch\n\ndef decode():\n    return lambda z: torch.cat([z * 2, z.sin()], 1)\n"


def tables():
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(N, D))
    ids, plate = [f"r{i}" for i in range(N)], [f"p{i % 6}" for i in range(N)]
    names = [f"emb_{i}" for i in range(D)]
    y = x @ np.linalg.qr(rng.normal(size=(D, D)))[0] + 0.01 * rng.normal(size=(N, D))
    for name, values in {"x": x, "y": y}.items():
        columns = {"id": ids, "Metadata_plate": plate, "Metadata_gene": ["a", "b"] * (N // 2)}
        yield name, pa.table(columns | dict(zip(names, values.T, strict=True)))
    yield "factors", pa.table({"id": ids, "f0": x[:, 0], "f1": np.round(x[:, 1])})


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(address, "_copies", {})
    for name, table in tables():
        pq.write_table(table, f"{name}.parquet")
        Path(name).mkdir()
        for i, (a, b) in enumerate(pairwise(CUTS)):
            pq.write_table(table.slice(a, b - a), f"{name}/part{i}.parquet")
    Path("model.py").write_text(DECODER)
    return tmp_path


COMMANDS = {
    "compare": "compare X y.parquet --nulls 1 --bootstrap 0",
    "layers": "layers X y.parquet --nulls 1",
    "features": "features X y.parquet",
    "translate": "translate fit X y.parquet",
    "resolve": "resolve X --components 3",
    "evaluate": "evaluate X factors.parquet --metrics mcc --nulls 0",
    "factors": "evaluate x.parquet FACTORS --metrics mcc --nulls 0",
    "deconfound": "deconfound X --batch plate --target gene --control a --conditions base",
    "decoder": "decoder model.py:decode X",
    "mechanism": "mechanism model.py:decode X --blocks 0,1,2,3 --points 16",
}


def run(capsys, command):
    sys.argv = ["congruence", *command.split(), "--json", "-", "-q"]
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    assert stopped.value.code in (0, None), printed.err
    result = json.loads(printed.out)
    return {name: result.get(name) for name in ("status", "verdict", "findings")}


@pytest.mark.parametrize("command", COMMANDS)
def test_parts_give_what_one_file_gives(command, here, capsys, monkeypatch):
    if command in ("decoder", "mechanism"):
        pytest.importorskip("torch", reason="torch is not installed")
    if command == "deconfound":
        pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    text = COMMANDS[command]
    place, name = ("FACTORS", "factors") if "FACTORS" in text else ("X", "x")
    whole = run(capsys, text.replace(place, f"{name}.parquet"))
    folder = run(capsys, text.replace(place, name))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(Path(f"{name}.parquet").read_bytes())))
    piped = run(capsys, text.replace(place, "-"))
    assert same(folder, whole, name)
    assert same(piped, whole, "stdin") or (command == "layers" and piped["status"] == whole["status"])
    if command not in ("compare", "layers"):  # to these, the files of a pattern are runs or layers of their own
        pattern = run(capsys, text.replace(place, f"{name}/*.parquet"))
        assert same(pattern, whole, "part0 and 2 more")


def same(result, expected, name):
    """Whether two results differ at most in the name of the run."""
    texts = [json.dumps(one).replace(f"<{name}>", name).replace(name, "x") for one in (result, expected)]
    return texts[0].replace("x.parquet", "x") == texts[1].replace("x.parquet", "x")


def test_a_map_is_applied_to_parts(here, capsys):
    run(capsys, "translate fit x.parquet y.parquet --map map.safetensors")
    for given, out in {"y.parquet": "one.parquet", "y": "out"}.items():
        sys.argv = ["congruence", "translate", "apply", "map.safetensors", given, "--out", out, "-q"]
        with pytest.raises(SystemExit):
            main()
    assert np.array_equal(read_table("out").values, read_table("one.parquet").values)


def test_components_are_written_for_parts(here, capsys):
    run(capsys, "resolve x --components 3 --model ica.safetensors --out c.parquet")
    sys.argv = ["congruence", "resolve", "x", "--apply", "ica.safetensors", "--out", "again.parquet", "-q"]
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code in (0, None)
    np.testing.assert_allclose(read_table("again.parquet").values, read_table("c.parquet").values, atol=1e-6)
    assert read_table("again.parquet").ids.tolist() == [f"r{i}" for i in range(N)]


def test_the_layout_of_csv_files_can_be_given(here, capsys):
    for name in "ab":
        lines = [":".join(map(str, row)) for row in read_table(f"{'x' if name == 'a' else 'y'}.parquet").values]
        Path(f"{name}.csv").write_text("\n".join(["1:2:3:4", *lines]))
    result = run(capsys, "compare a.csv b.csv --delimiter : --header --nulls 1 --bootstrap 0")
    assert result["status"] == "holds"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("x --out x/part1.parquet", "--out x/part1.parquet would overwrite the input x/part1.parquet"),
        ("x/*.parquet --out x/part1.parquet", "--out x/part1.parquet would overwrite the input x/part1.parquet"),
        ("x.zarr --json x.zarr/zarr.json", "--json x.zarr/zarr.json would be a part of the input x.zarr"),
    ],
)
def test_no_part_of_the_input_is_overwritten(arguments, why, here, monkeypatch, capsys):
    Path("x.zarr").mkdir()
    monkeypatch.setattr(sys, "argv", ["congruence", "resolve", *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"congruence: {why}\n"
