import json
import multiprocessing
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from congruence.errors import CollapsedWarning, InputError
from congruence.experiments.processes import run_tasks
from congruence.experiments.runs import open_run
from congruence.experiments.training import train
from congruence.experiments.training._train import Plan, _train_in_process, train_here, train_on_cluster

pytest.importorskip("torch")

SMALL = ["--data", "sprites", "--n", "40", "--steps", "3", "--batch", "16", "--device", "cpu", "--deterministic"]


def same(one, other):
    one, other = open_run(one).weights(), open_run(other).weights()
    for name in one:
        assert_array_equal(one[name], other[name], err_msg=name)


def test_python_trains_as_the_command_does_and_gets_the_run_folders(call):
    assert call("train", "ae", *SMALL, "--seeds", "0,1", "--out", "shell")[0] == 0
    seen = []
    options = {"data": "sprites", "n": 40, "steps": 3, "batch": 16, "device": "cpu", "deterministic": True}
    runs = train("ae", out="python", seeds=(1, 0), progress=lambda *now: seen.append(now), **options)
    assert [str(run.folder) for run in runs] == [os.path.join("python", name) for name in ("ae-1", "ae-0")]
    assert all(run.finished for run in runs)
    assert seen[-1][0].startswith("ae-0: loss 0.")
    assert seen[-1][1:] == (6, 6)
    for name in ("ae-0", "ae-1"):
        same(f"shell/{name}", f"python/{name}")
    with pytest.raises(TypeError, match="did you mean 'steps'"):
        train("ae", step=3)


def test_warnings_of_a_training_name_its_run(tmp_path, monkeypatch):
    monkeypatch.setattr("congruence.experiments.training._train_model._is_mixture", lambda model: True)
    dead = type("Dead", (), {"sentence": "all latents are dead", "numbers": lambda self: {}})
    monkeypatch.setattr("congruence.experiments.training._train_model.posterior_collapse", lambda *given: dead())
    moments = (None, np.ones((40, 2)))  # an autoencoder has no posterior of its own
    monkeypatch.setattr("congruence.experiments.training._train_model.posterior_moments", lambda *given: moments)
    options = {"data": "sprites", "n": 40, "steps": 1, "batch": 16, "device": "cpu"}
    with pytest.warns(CollapsedWarning, match="^ae-0: all latents are dead"):
        train("ae", out=tmp_path, **options)


def test_a_refused_training_is_an_error_in_python(tmp_path):
    options = {"data": "sprites", "n": 40, "batch": 16, "device": "cpu"}
    train("ae", out=tmp_path, steps=2, **options)
    with pytest.raises(InputError, match="has a run with another config .training: steps is 2, not 1."):
        train("ae", out=tmp_path, steps=1, **options)


def test_seeds_end_as_they_would_alone_in_processes_or_one_after_the_other(call):
    code, out, err = call("train", "vae", *SMALL, "--seeds", "0-1", "--out", "runs")
    assert (code, err) == (0, "")
    assert [line.split()[:3] for line in out.splitlines() if "vae" in line] == [
        ["runs/vae-0", "done", "3"],
        ["runs/vae-1", "done", "3"],
    ]
    assert call("train", "vae", *SMALL, "--seeds", "1", "--out", "alone")[0] == 0
    assert call("train", "vae", *SMALL, "--seeds", "0,1", "--jobs", "2", "--out", "both", "--quiet") == (0, "", "")
    same("runs/vae-1", "alone/vae-1")
    same("runs/vae-0", "both/vae-0")
    same("runs/vae-1", "both/vae-1")
    with pytest.raises(AssertionError):
        same("runs/vae-0", "runs/vae-1")


def plans(folder, **settings):
    model = {"model": "ae", "latents": 3, "net": "small", "shape": [1, 64, 64]}
    settings = {"steps": 2, "batch": 8, "device": "cpu", "deterministic": True} | settings
    data = {"data": "sprites", "n": 16, "device": "cpu"}
    return [
        Plan(Path(folder).absolute() / f"ae-{seed}", model | {"seed": seed}, data, settings | {"seed": seed})
        for seed in (0, 1)
    ]


def test_seeds_can_be_trained_on_a_cluster(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        done = train_on_cluster(plans("cluster"), client)
        refused = train_on_cluster(plans("cluster", batch=4), client)
    assert done == [[], []]
    assert len(refused) == 2
    assert all("has a run with another config" in error for error in refused)
    train_here(plans("here"), lambda name, state: None)
    for name in ("ae-0", "ae-1"):
        same(f"cluster/{name}", f"here/{name}")


def test_a_lost_scheduler_is_reported_as_what_it_is(monkeypatch):
    distributed = pytest.importorskip("distributed")

    def lost(*of):
        raise distributed.CancelledError

    def unreachable():
        raise OSError("timed out")

    event, client = SimpleNamespace(name="event", set=unreachable), SimpleNamespace(submit=lambda *of, key: None)
    monkeypatch.setattr(distributed, "Event", lambda name, client: event)
    monkeypatch.setattr(distributed, "as_completed", lost)
    with pytest.raises(distributed.CancelledError):
        train_on_cluster(plans("cluster"), client)


def test_ctrl_c_keeps_a_checkpoint_and_the_same_command_goes_on(call, monkeypatch):
    from congruence.experiments.training import _train_model as training

    measure = training.mean_psnr

    def press(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return measure(*arguments)

    monkeypatch.setattr(training, "mean_psnr", press)
    code, _, err = call("train", "vae", *SMALL, "--seeds", "0,1")
    assert code == 130
    assert err == "interrupted; finished steps are kept in runs, and the same command resumes\n"
    assert os.listdir("runs") == ["vae-0"]
    assert os.path.exists("runs/vae-0/checkpoint.safetensors")
    monkeypatch.setattr(training, "mean_psnr", measure)
    assert call("train", "vae", *SMALL, "--seeds", "0,1")[0] == 0
    assert call("train", "vae", *SMALL, "--out", "whole")[0] == 0
    same("runs/vae-0", "whole/vae-0")


def test_ctrl_c_reaches_every_process_and_each_keeps_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = set()

    def press(message):
        seen.add(message[0])
        if len(seen) == 2:
            for process in multiprocessing.active_children():  # as a terminal does, which signals the whole group
                os.kill(process.pid, signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_tasks(_train_in_process, [(plan,) for plan in plans("runs", steps=10**6)], 2, receive=press)
    assert all(Path("runs", name, "checkpoint.safetensors").exists() for name in ("ae-0", "ae-1"))


def test_a_folder_of_another_training_is_refused(call):
    assert call("train", "ae", *SMALL)[0] == 0
    code, _, err = call("train", "ae", *SMALL, "--weight-decay", "0.5")
    assert code == 2
    assert "has a run with another config (training: weight_decay is 0.001, not 0.5); give" in err
    code, _, err = call("train", "ae", *SMALL, "--latents", "4")
    assert code == 2
    assert "another config (model: latents is 10, not 4)" in err
    code, out, _ = call("train", "ae", *SMALL)
    assert code == 0
    assert "done" in out


@pytest.mark.parametrize(
    ("model", "options", "found"),
    [
        ("ae", [], {"latents": 10}),
        ("vae", ["--beta", "0.5", "--latents", "4"], {"beta": 0.5, "latents": 4}),
        ("tcvae", ["--tc", "2"], {"tc": 2.0, "dataset_size": 40}),
        ("bioae", ["--activity", "0.5"], {"activity": 0.5, "nonnegativity": 1.0}),
        ("vqvae", ["--values", "32"], {"values": 32, "commitment": 0.25}),
        ("qlae", ["--values", "4", "--commitment", "0.1"], {"values": 4, "commitment": 0.1}),
    ],
)
def test_every_model_is_trained_with_its_own_options(model, options, found, call):
    code, _, err = call("train", model, *SMALL, "--steps", "1", *options)
    assert (code, err) == (0, "")
    config = open_run(f"runs/{model}-0").config
    assert found.items() <= config["model"].items()
    assert config["model"]["net"] == "small"
    assert open_run(f"runs/{model}-0").latents().values.shape == (40, config["model"]["latents"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gan"], "model must be one of ae, vae, tcvae, bioae, vqvae, qlae, vade, mfcvae, mixvae, ivae, or file.py"),
        (["ae", "--data", "room"], "unknown data set 'room'; did you mean rooms"),
        (["ae", "--beta", "3"], "beta is not an option of ae, which has none"),
        (["bioae", "--beta", "3"], "beta is not an option of bioae, which has nonnegativity, activity"),
        (["ae", "--seeds", "0,a"], "seeds must be integers such as 0,1,2 or 0-4; got 'a'"),
        (["ae", "--seeds", "1,1"], "seeds must contain each seed once; got 1,1"),
        (["ae", "--seeds", "0-99999"], "a range of seeds must have at most 10000; got 0-99999"),
        (["ae", "--seeds", "0-" + "9" * 30], "seeds must be below 2**63; got 0-999"),
        (["ae", "--seeds", "4-2"], "a range of seeds must not end before it starts, use 2-4; got 4-2"),
        (["ae", "--jobs", "2", "--dask", "local"], "jobs must be 1 with dask"),
        (["ae", "--jobs", "0"], "jobs must be an integer of at least 1; got 0"),
        (["ae", "--precision", "half"], "precision must be one of 'auto', 'float32', 'bfloat16'; got 'half'"),
        (["ae", "--net", "large"], "net must be one of 'published', 'small'; got 'large'"),
    ],
)
def test_what_means_nothing_is_refused(arguments, message, call):
    code, _, err = call("train", arguments[0], *SMALL, *arguments[1:])
    assert code == 2
    assert message in err


def test_a_run_folder_can_be_evaluated_and_its_report_shows_the_model(call):
    quick = ["--metrics", "mig", "--resamples", "0", "--nulls", "2", "--no-structural"]
    assert call("train", "qlae", *SMALL)[0] == 0
    code, out, err = call("evaluate", "runs/qlae-0", *quick, "--report", "r.html", "--json", "r.json")
    assert (code, err) == (0, "")
    assert "10 codes, 5 factors, 40 rows" in out
    with open("r.html") as file:
        page = file.read()
    assert page.count("data:image/png;base64,") == 2 + 10
    assert "<h1>qlae-0: are the axes the true factors?</h1>" in page
    with open("r.json") as file:
        found = json.load(file)
    assert found["settings"]["discrete_codes"] is True
    kinds = {row["factor"]: row["kind"] for row in found["numbers"]["per_factor"]}
    assert (kinds["shape"], kinds["rotation"]) == ("categorical", "circular")
    chosen = ["--factor-columns", "x,y", "--kinds", "x=continuous", "--json", "x.json"]
    code, out, _ = call("evaluate", "runs/qlae-0", *quick, *chosen)
    assert "10 codes, 2 factors" in out
    with open("x.json") as file:
        assert json.load(file)["numbers"]["per_factor"][0]["kind"] == "continuous"


def test_run_folders_that_cannot_be_evaluated_say_why(call, tmp_path):
    assert call("train", "ae", *SMALL)[0] == 0
    np.save("factors.npy", np.zeros((40, 2)))
    code, _, err = call("evaluate", "runs/ae-0", "factors.npy")
    assert (code, "is a run folder, which has its own factors; leave factors.npy out" in err) == (2, True)
    code, _, err = call("evaluate", "runs/ae-0", "--id", "image")
    assert (code, "--id means nothing for a run folder" in err) == (2, True)
    (tmp_path / "runs/ae-0/latents.parquet").unlink()
    code, _, err = call("evaluate", "runs/ae-0")
    assert (code, "latents.parquet; the training may not be finished" in err) == (2, True)
    code, _, err = call("evaluate", "runs")
    assert (code, "runs is a folder without embedding files; it holds the folders ae-0" in err) == (2, True)


def test_a_damaged_run_folder_is_refused_before_anything_is_measured(call, tmp_path, monkeypatch):
    assert call("train", "ae", *SMALL)[0] == 0
    monkeypatch.setattr("congruence.metrics._evaluate.evaluate", lambda *a, **k: pytest.fail("it was measured"))
    weights, config = tmp_path / "runs/ae-0/weights.safetensors", tmp_path / "runs/ae-0/config.json"
    weights.write_bytes(weights.read_bytes()[:500])
    code, _, err = call("evaluate", "runs/ae-0", "--report", "r.html")
    assert (code, "cannot read weights from runs/ae-0/weights.safetensors" in err) == (2, True)
    for data, words in (
        ("3", "has no factors"),
        ('{"factors": [3]}', "factors must be a list of names; got [3]"),
        ('{"factors": ["x", "y"], "kinds": ["ordinal"]}', "kinds must be a list, one per factor; got ['ordinal']"),
        ('{"factors": ["x", "y"], "kinds": null}', "kinds must be a list, one per factor; got None"),
    ):
        config.write_text(f'{{"kind": "congruence run", "version": 1, "config": {{"data": {data}}}}}')
        code, _, err = call("evaluate", "runs/ae-0")
        assert (code, words in err) == (2, True)
