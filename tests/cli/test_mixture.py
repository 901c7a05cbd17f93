"""`congruence mixture` takes run folders, checks, compares, writes, and says what it cannot use."""

import csv
import json
import sys

import jsonschema
import numpy as np
import pytest

from congruence.cli import main
from congruence.errors import InputError
from congruence.experiments.data import pinwheel
from congruence.experiments.models.catalogue import build_model
from congruence.experiments.training import train_model
from congruence.experiments.training.settings import Training
from congruence.mixture import MixtureExamination
from congruence.schema import result_schema

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::congruence.errors.CollapsedWarning")
HOW = Training(steps=30, batch=100, learning_rate=3e-3, deterministic=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run folders: two VaDEs, two models of facets, one on other data, and an autoencoder."""
    folder = tmp_path_factory.mktemp("runs")
    data = pinwheel(150, seed=0)
    for seed in (0, 1):
        config = {"model": "vade", "hidden": [20], "clusters": 3, "pretraining": 30, "seed": seed}
        train_model(build_model(config), data, HOW, out=folder / f"vade-{seed}", device="cpu")
    facets = {"model": "mfcvae", "latents": 2, "hidden": [4, 4], "facets": 2, "pretraining": 1}
    for name, clusters in (("few", 2), ("many", 33)):
        train_model(build_model(facets | {"clusters": clusters}), data, HOW, out=folder / name, device="cpu", steps=1)
    other = {"model": "mixvae", "hidden": [5]}
    train_model(build_model(other), pinwheel(80, seed=5), HOW, out=folder / "other", device="cpu", steps=2)
    plain = {"model": "ae", "net": "small", "latents": 2, "shape": [1, 64, 64]}
    images = np.zeros((4, 1, 64, 64), dtype=np.uint8)
    train_model(build_model(plain), images, HOW, out=folder / "ae", device="cpu", steps=1, batch=2)
    return folder


@pytest.fixture
def call(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["congruence", "mixture", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, printed.out, printed.err

    return run


def test_runs_are_checked_compared_and_everything_is_written(runs, call, tmp_path):
    outputs = [tmp_path / name for name in ("a.html", "a.json", "a.csv")]
    options = [
        word for name, path in zip(("report", "json", "csv"), outputs, strict=True) for word in (f"--{name}", path)
    ]
    code, out, _ = call(runs / "vade-*", "--rows", 100, *options)
    assert code == 0
    assert "Over 2 ordered pairs of 2 runs" in out
    written = json.loads(outputs[1].read_text())
    jsonschema.validate(written, result_schema(MixtureExamination))
    found = written["numbers"]
    assert [run["name"] for run in found["runs"]] == ["vade-0", "vade-1"]
    statuses = {one["name"]: one["status"] for one in found["runs"][0]["assumptions"]["conditions"]}
    assert statuses["F1"] == "holds"
    assert found["agreement"]["runs"][0]["n"] == 100
    with outputs[2].open() as handle:
        rows = list(csv.DictReader(handle))
    assert [(row["source"], row["target"]) for row in rows] == [("vade-0", "vade-1"), ("vade-1", "vade-0")]
    assert float(rows[0]["distance"]) <= float(rows[0]["before"])
    page = outputs[0].read_text()
    assert "Which row of the hierarchy is reached?" in page
    assert "marked by arm" in page
    assert "congruence mixture " in page


def test_one_run_is_compared_with_none(runs, call, tmp_path):
    code, out, _ = call(runs / "vade-0", "--rows", 100, "--report", tmp_path / "a.html", "--csv", tmp_path / "a.csv")
    assert code == 0
    assert "ordered pairs" not in out
    assert "Do the runs agree?" not in (tmp_path / "a.html").read_text()
    with (tmp_path / "a.csv").open() as handle:
        rows = {row["name"]: row for row in csv.DictReader(handle)}
    assert (rows["F1"]["run"], rows["F1"]["status"], rows["F1"]["basis"]) == ("vade-0", "holds", "certified")


def test_p1_is_tested_on_draws_where_the_run_folder_has_posteriors(runs, call, tmp_path):
    import shutil

    shutil.copytree(runs / "vade-0", tmp_path / "old")
    (tmp_path / "old" / "posterior.safetensors").unlink()
    for folder, said in (
        (runs / "vade-0", "draws from the posteriors of the encoder"),
        (tmp_path / "old", "which vary less than the prior in an exact model; they are not compared with it"),
    ):
        code, _, _ = call(folder, "--rows", 100, "--json", tmp_path / "a.json")
        conditions = json.loads((tmp_path / "a.json").read_text())["numbers"]["runs"][0]["assumptions"]["conditions"]
        assert (code, conditions[0]["name"], said in conditions[0]["evidence"]) == (0, "P1", True)


def test_codes_that_do_not_vary_have_no_mcc_and_that_is_said(runs, call, tmp_path):
    import shutil

    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, still in (("all", ("emb_0", "emb_1")), ("one", ("emb_1",))):
        shutil.copytree(runs / "vade-1", tmp_path / name)
        table = pq.read_table(tmp_path / name / "latents.parquet")
        for column in still:
            place = table.schema.names.index(column)
            table = table.set_column(place, column, pa.array(np.full(len(table), 0.25, dtype=np.float32)))
        pq.write_table(table, tmp_path / name / "latents.parquet")
    code, out, _ = call(tmp_path / "all", tmp_path / "one", "--no-check")
    assert code == 0
    assert "The codes do not vary, so they have no MCC." in out
    assert "all: 2 of 2 latents are constant" in out
    assert "one: 1 of 2 latents are constant" in out
    assert "high by chance" not in out


def test_a_training_that_diverged_is_noted(runs, call, tmp_path):
    import shutil

    shutil.copytree(runs / "vade-0", tmp_path / "wild")
    with (tmp_path / "wild" / "metrics.jsonl").open("a") as handle:
        handle.write('{"step": 7, "ended": "diverged"}\n')
    _, out, _ = call(tmp_path / "wild", "--no-check")
    assert "wild: the training diverged, and the weights are those of step 7." in out


def test_run_folders_of_one_name_are_told_apart_by_their_parents(runs, call, tmp_path):
    import shutil

    for parent, run in (("first", "vade-0"), ("second", "vade-1")):
        shutil.copytree(runs / run, tmp_path / parent / "vade-0")
    written = tmp_path / "a.json"
    code, _, _ = call(tmp_path / "first/vade-0", tmp_path / "second/vade-0", "--no-check", "--json", written)
    assert code == 0
    assert {one["name"] for one in json.loads(written.read_text())["numbers"]["runs"]} == {
        "first/vade-0",
        "second/vade-0",
    }


def test_without_a_check_runs_are_only_compared(runs, call, tmp_path):
    code, out, _ = call(runs / "vade-0", runs / "vade-1", "--no-check", "--json", "-")
    assert code == 0
    assert [run["assumptions"] for run in json.loads(out)["numbers"]["runs"]] == [None, None]


def test_facets_are_examined_and_a_prior_that_is_too_large_is_not(runs, call):
    code, out, _ = call(runs / "few", runs / "many", "--rows", 60, "--json", "-")
    assert code == 0
    read = json.loads(out)
    found = read["numbers"]
    assert [run["components"] for run in found["runs"]] == [4, 1089]
    conditions = {one["name"]: one["status"] for one in found["runs"][0]["assumptions"]["conditions"]}
    assert conditions["F1"] == "holds"  # a ladder is a chain of layers
    assert found["runs"][1]["assumptions"] is None
    said = "many: the assumptions were not checked, since the prior has 1089 components (at most 64 are checked)."
    assert said in read["notes"]
    assert found["agreement"]["pairs"][0]["distance"] is None


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["vade-0", "other"], "were trained on different data"),
        (["vade-0", "vade-0/../vade-0"], "is listed twice"),
        (["nothing-*"], "no folder matches"),
        (["nothing"], "there is no run folder"),
        (["ae"], "holds a model 'ae' without a mixture prior"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(names, said, runs, call):
    code, _, err = call(*(runs / name if ".." not in name else f"{runs}/{name}" for name in names))
    assert code == 2
    assert said in err


def test_an_unfinished_training_is_refused(runs, call, tmp_path):
    from congruence.experiments.runs import start_run

    start_run(tmp_path / "begun", {"model": {}, "data": {}})
    code, _, err = call(tmp_path / "begun")
    assert code == 2
    assert "is not finished" in err


def test_no_output_is_written_over_the_files_of_a_run(runs, call):
    before = (runs / "vade-0" / "config.json").read_bytes()
    code, _, err = call(runs / "vade-0", "--json", runs / "vade-0" / "config.json")
    assert code == 2
    assert "would overwrite the input" in err
    assert (runs / "vade-0" / "config.json").read_bytes() == before


def test_few_rows_are_noted(runs, call):
    code, out, _ = call(runs / "vade-0", runs / "vade-1", "--rows", 3, "--no-check", "--json", "-")
    assert code == 0
    note = "With 3 rows the MCC is high by chance, and there are too few rows for a held-out MCC."
    assert note in json.loads(out)["notes"]


def test_another_factor_can_mark_the_rows(runs, call):
    code, out, _ = call(runs / "vade-0", "--no-check", "--labels", "arm", "--json", "-")
    assert (code, json.loads(out)["numbers"]["labels"]) == (0, "arm")
    code, _, err = call(runs / "vade-0", "--no-check", "--labels", "leg")
    assert code == 2
    assert "has no metadata column 'leg' to take labels from; it has arm" in err


def test_a_prior_that_is_not_finite_is_refused_by_name(runs, call, tmp_path):
    import shutil

    from congruence.experiments.runs import open_run

    shutil.copytree(runs / "vade-0", tmp_path / "broken")
    run = open_run(tmp_path / "broken")
    run.write_weights({name: x * np.nan if name == "prior.means" else x for name, x in run.weights().items()})
    code, _, err = call(tmp_path / "broken")
    assert code == 2
    assert "the prior of broken cannot be used: means must be finite" in err


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a prior, a decoder and draws of the latents."""
    from congruence.mixture import GaussianMixture

    prior = {"weights": [0.4, 0.6], "means": [[0.0, 0.0], [6.0, 1.0]], "covariances": [[1.0, 0.5], [0.3, 2.0]]}
    np.savez(tmp_path / "prior.npz", **prior)
    np.save(tmp_path / "draws.npy", GaussianMixture.from_arrays(**prior).sample(800, seed=1))
    (tmp_path / "own_model_of_mixture.py").write_text(
        "import torch\n\ndef load():\n    torch.manual_seed(0)\n    return torch.nn.Sequential("
        "torch.nn.Linear(2, 6), torch.nn.LeakyReLU(0.2), torch.nn.Linear(6, 7))\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_of_ones_own_is_examined(own, call):
    code, _, _ = call(
        "--prior", "prior.npz", "--decoder", "own_model_of_mixture:load", "--codes", "draws.npy", "--codes-are",
        "draws", "--report", "own.html", "--json", "own.json",
    )  # fmt: skip
    assert code == 0
    written = json.loads((own / "own.json").read_text())
    jsonschema.validate(written, result_schema(MixtureExamination))
    numbers = written["numbers"]
    assert (written["status"], numbers["row"], numbers["runs"][0]["name"]) == ("holds", 4, "prior")
    assert (written["settings"]["prior"], written["settings"]["codes are"]) == ("prior.npz", "draws")
    assert "800 draws do not refute it" in (own / "own.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs run folders, or --prior"),
        (["--codes", "draws.npy"], "which needs --prior"),
        (["runs", "--prior", "prior.npz"], "leave out the run folders, or --prior"),
        (["--prior", "draws.npy"], "cannot read a prior (.npz) from draws.npy"),
        (["--prior", "prior.npz", "--decoder", "nothing:load"], "no module 'nothing'"),
        (["--prior", "prior.npz", "--json", "prior.npz"], "--json prior.npz must end in .json"),
        (["--prior", "prior.npz", "--codes-are", "modes"], "codes_are must be one of"),
    ],
)
def test_a_model_of_ones_own_that_is_incomplete_is_refused(arguments, said, own, call):
    code, _, err = call(*arguments)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("data", [1.5, [], {"factors": 3}, {"factors": [[]], "kinds": ["categorical"]}])
def test_a_run_whose_config_has_damaged_factors_is_named(tmp_path, data):
    from congruence.cli.mixture import _first_factor
    from congruence.experiments.runs import Run

    run = Run(tmp_path, {"data": data})
    run.write_latents(np.eye(3))
    with pytest.raises(InputError, match=r"cannot read the factors from .*config\.json"):
        _first_factor(run)
