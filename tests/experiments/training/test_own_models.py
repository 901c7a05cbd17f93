"""Models and data of the user's: the contract, run folders, continuing, and what survives a kill."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import CongruenceWarning, InputError
from congruence.experiments.runs import open_run

torch = pytest.importorskip("torch")

from congruence.experiments.training import Trainable, Training, load_model, train, train_model  # noqa: E402
from congruence.experiments.training._options import TrainOptions  # noqa: E402
from congruence.experiments.training._train import _plan_trainings, _train_in_process  # noqa: E402

CODE = """
import os, time
import torch

class Mine(torch.nn.Module):
    def __init__(self, shape=(6,), latents=2):  # no seed: that of torch's generator is set
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(shape[0], latents), torch.nn.Linear(latents, shape[0])
        self.drop = torch.nn.Dropout(0.2)  # draws random numbers in each step

    def loss(self, x):
        time.sleep(float(os.environ.get("SLOW", 0)))
        error = (self.decode(self.drop(self.encode(x))) - x).square().mean()
        return {"loss": error + 1e-3 * self.encode(x).square().mean(), "mse": error}

    def encode(self, x):
        return self.inner(x)

    def decode(self, codes):
        return self.outer(codes)

class Pictures(Mine):
    def __init__(self):
        super().__init__()

    def encode(self, x):
        assert x.dtype == torch.float32 and x.max() <= 1
        return self.inner(x.flatten(1)[:, :6])

    def decode(self, codes):
        return self.outer(codes).mean(1)[:, None, None, None].expand(-1, 3, 8, 8).sigmoid()
"""
namespace = {"__name__": "notebook"}
exec(CODE, namespace)
Mine = namespace["Mine"]  # has no file, like a class of a notebook
SHORT = {"steps": 12, "batch": 16, "device": "cpu"}


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(50, 6))  # float64, as numpy has it


@pytest.fixture
def folder(tmp_path, monkeypatch, rows):
    """A folder with the code and the rows in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(CODE)
    frame = pd.DataFrame(rows, columns=[f"x{i}" for i in range(6)])
    frame.insert(0, "name", [f"r{i}" for i in range(50)])
    frame.assign(Metadata_batch=np.repeat(["a", "b"], 25)).to_parquet("rows.parquet", index=False)
    return tmp_path


def same(one, other):
    one, other = (run.weights() if hasattr(run, "weights") else open_run(run).weights() for run in (one, other))
    assert one.keys() == other.keys()
    for name in one:
        assert_array_equal(one[name], other[name], err_msg=name)


def test_a_module_with_three_methods_leaves_a_complete_run_folder(rows, tmp_path):
    model = Mine()
    assert isinstance(model, Trainable)
    (run,) = train(model, rows, tmp_path, **SHORT)
    assert run.folder == tmp_path / "Mine-0"
    names = {
        "checkpoint.safetensors",
        "config.json",
        "environment.json",
        "latents.parquet",
        "metrics.jsonl",
        "_record.jsonl",
    }
    assert {path.name for path in run.folder.iterdir()} == {*names, "weights.safetensors"}
    with torch.no_grad():
        codes = model.encode(torch.tensor(rows, dtype=torch.float32))
    assert_allclose(run.latents().values, codes, atol=1e-6)
    first, last, end = run.metrics()
    assert (first["step"], last["step"], end["ended"]) == (1, 12, "steps")
    assert last["loss"] < first["loss"]
    assert run.config["model"]["model"] == "Mine"
    with pytest.raises(InputError, match=r"'Mine', is not one of congruence; give code, its class or the name"):
        load_model(run)
    for given in (Mine(), Mine):
        assert_array_equal(load_model(run, given).inner.weight.detach(), model.inner.weight.detach())


def test_a_mixture_prior_alone_does_not_promise_posteriors(rows):
    class Prior(Mine):
        def mixture_prior(self):
            return np.ones(1), np.zeros((1, 2)), np.eye(2)[None]

    assert train_model(Prior(), rows, **SHORT).finished  # AttributeError: posterior


def test_attributes_that_mean_something_else_are_left_alone(rows):
    model = Mine()
    model.shape, model.config, model.name = 6, {"layers": 2}, "mine"
    assert train_model(model, rows, **SHORT).config["model"]["parameters"] == 32


@pytest.mark.parametrize("missing", ["loss", "encode", "decode"])
def test_a_missing_method_is_named_before_there_is_a_folder(missing, rows, tmp_path):
    model = Mine()
    setattr(model, missing, None)
    with pytest.raises(
        InputError, match=f"^model must have the methods loss, encode and decode; Mine has no {missing}; "
    ):
        train(model, rows, tmp_path / "runs", **SHORT)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("method", "answer", "message"),
    [
        ("loss", lambda x: 3.0, 'Mine.loss must return a scalar tensor that .*, or .*"loss"; got a float'),
        ("loss", lambda x: {"mse": x.sum()}, "Mine.loss must return .*; got a NoneType"),
        ("loss", lambda x: x.sum(), "Mine.loss must return a scalar tensor that depends on the weights"),
        ("encode", lambda x: (x[:, :2], x[:, :2]), r"Mine.encode must return codes of shape .2, d.; got a tuple"),
        ("encode", lambda x: x[:, :2, None], r"Mine.encode must .*; got float32 of shape .2, 2, 1."),
        ("encode", lambda x: x @ torch.ones(5, 2), r"Mine.encode fails on float32 of shape .2, 6.: RuntimeError: "),
        (
            "decode",
            lambda z: z,
            r"Mine.decode must return .* of the inputs, .2, 6.; got float32 of shape .2, 2.",
        ),
    ],
)
def test_methods_that_return_something_else_are_refused_with_what_came(method, answer, message, rows, tmp_path):
    model = Mine()
    if method != "loss":  # which calls the others
        model.loss = lambda x: model.inner(x).square().mean()
    setattr(model, method, answer)
    with pytest.raises(InputError, match=message):
        train_model(model, rows, **SHORT, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_no_module_or_has_nothing_to_train_is_refused(rows):
    with pytest.raises(InputError, match="model must be a torch module with loss, encode and decode; got a int"):
        train_model(3, rows, **SHORT)
    with pytest.raises(InputError, match="Mine has none that require a gradient"):
        train_model(Mine().requires_grad_(False), rows, **SHORT)
    with pytest.raises(InputError, match="a module is trained in place, with one seed; give its class for 2 seeds"):
        train(Mine(), rows, seeds="0,1", **SHORT)
    with pytest.raises(InputError, match="jobs and dask need the model by name, such as file.py:Class"):
        train(Mine, rows, seeds="0,1", jobs=2, **SHORT)
    with pytest.raises(InputError, match="beta is not an option of Mine, which has shape, latents"):
        train(Mine, rows, beta=1.0, **SHORT)


def test_a_class_is_built_for_each_seed_and_trying_it_changes_nothing(rows, tmp_path):
    runs = train(Mine, rows, tmp_path, seeds=(0, 1), latents=3, **SHORT)
    assert [run.name for run in runs] == ["Mine-0", "Mine-1"]
    assert runs[0].latents().d == 3
    with pytest.raises(AssertionError):
        same(*runs)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Mine(latents=3)
        before = torch.get_rng_state()
        run = train_model(model, rows, **SHORT, seed=1)
        assert_array_equal(torch.get_rng_state(), before)
    same(run, runs[1])


@pytest.mark.filterwarnings("ignore::congruence.errors.InputWarning")
def test_the_command_trains_a_class_of_a_file_and_other_commands_take_the_folder(call, folder):
    short = ["--steps", "12", "--batch", "16", "--device", "cpu", "--deterministic", "--id", "name"]
    assert call("train", "mine.py:Mine", "--data", "rows.parquet", *short, "--seeds", "0,1")[0] == 0
    run = open_run("runs/Mine-1")
    assert run.config["model"]["model"] == "mine.py:Mine"  # and no folder of this machine
    assert run.latents().ids.tolist()[:2] == ["r0", "r1"]
    assert set(run.latents().metadata["batch"]) == {"a", "b"}
    code, _, _ = call("compare", "runs/Mine-0", "runs/Mine-1", "--nulls", "2", "--bootstrap", "0", "--json", "c.json")
    assert code in (0, 1)
    with open("c.json") as file:
        assert json.load(file)["numbers"]["runs"][0] == {"name": "Mine-0", "n": 50, "d": 2}
    for command in (["decoder", "runs/Mine-0"], ["mechanism", "runs/Mine-0", "--blocks", "0,1"]):
        code, _, err = call(*command)
        assert (code, "give code, its class or the name of it such as file.py:Class" in err) == (2, True)
        code, _, err = call(*command, "--code", "mine.py:Mine")
        assert code in (0, 1), err
    assert call("evaluate", "runs/Mine-0", "--metrics", "mig", "--resamples", "0", "--nulls", "2")[0] in (0, 1)
    (folder / "mine.py").write_text(CODE + "\n")
    with pytest.warns(CongruenceWarning, match="mine.py has changed since runs/Mine-0 was trained"):
        load_model("runs/Mine-0", "mine.py:Mine")
    code, _, err = call("train", "mine.py:Mine", "--data", "rows.parquet", *short)
    assert (code, "another config (model: code is " in err) == (2, True)


def test_a_plan_by_name_can_be_carried_out_in_another_process(folder):
    options = TrainOptions(steps=12, batch=16, device="cpu", id="name", jobs=2, deterministic=True)
    (plan,) = _plan_trainings("mine.py:Mine", "rows.parquet", folder / "runs", options, alone=False)
    assert plan.data["data"] == folder / "rows.parquet"  # each process reads it for itself
    assert _train_in_process(pickle.loads(pickle.dumps(plan))) == []
    same("runs/Mine-0", train("mine.py:Mine", "rows.parquet", "here", id="name", deterministic=True, **SHORT)[0])


def test_a_run_folder_alone_runs_no_code(folder, rows):
    (run,) = train("mine.py:Mine", rows, **SHORT)
    for place in (folder, run.folder):
        (place / "evil.py").write_text("raise SystemExit('it was run')\n")
    config = json.loads((run.folder / "config.json").read_text())
    for name in ("evil.py:Mine", str(folder / "evil.py:Mine"), "evil:Mine", "os:abort"):
        config["config"]["model"]["model"] = name
        (run.folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match="is not one of congruence; give code"):
            load_model(run.folder)


def test_data_comes_from_arrays_tables_frames_anndata_and_their_files(folder, rows):
    anndata = pytest.importorskip("anndata")
    frame = pd.DataFrame(rows.astype(np.float32), index=[f"c{i}" for i in range(50)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = anndata.AnnData(np.ones((50, 2), np.float32), obs=pd.DataFrame({"day": range(50)}, index=frame.index))
        adata.obsm["X_own"] = rows.astype(np.float32)
        adata.write_h5ad("cells.h5ad")
    np.save("rows.npy", rows.astype(np.float32))
    known = train(Mine, rows, "array", **SHORT)[0]
    given = {
        "frame": ({"data": frame}, "c0"),
        "adata": ({"data": adata, "key": "X_own"}, "c0"),
        "h5ad": ({"data": "cells.h5ad", "key": "X_own"}, "c0"),
        "npy": ({"data": "rows.npy"}, 0),
        "parquet": ({"data": "rows.parquet", "id": "name", "features": "x*"}, "r0"),
    }
    for name, (options, first) in given.items():
        (run,) = train(Mine, out=name, **options, **SHORT)
        same(known, run)
        assert run.latents().ids[0] == first, name
    assert open_run("h5ad/Mine-0").latents().metadata["day"].tolist() == list(range(50))
    (few,) = train(Mine, "rows.npy", "few", n=20, **SHORT)
    assert len(set(few.latents().ids)) == 20


def test_images_come_from_folders_and_from_files_of_data_make(call, folder):
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(12):
        (folder / f"photos/{'cats' if number % 2 else 'dogs'}").mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (9 + number % 3, 11, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"photos/{'cats' if number % 2 else 'dogs'}/{number}.png")
    (run,) = train("mine.py:Pictures", "photos", size=8, **SHORT)
    assert run.latents().ids.tolist()[0] == "cats/1.png"
    assert run.latents().metadata["folder"].tolist() == [0] * 6 + [1] * 6
    assert run.config["data"]["note"] == "folders: 0 is cats, 1 is dogs"
    assert run.examples().shape == (8, 3, 8, 8)
    assert run.metrics()[1]["psnr"] > 0
    quick = ["--metrics", "mig", "--resamples", "0", "--nulls", "2", "--report", "r.html"]
    assert "no pictures of codes: the model of runs/Pictures-0 is" in call("evaluate", "runs/Pictures-0", *quick)[2]
    before = (folder / "r.html").read_text().count("data:image/png")
    code, _, err = call("evaluate", "runs/Pictures-0", *quick, "--code", "mine.py:Pictures")
    assert (code in (0, 1), "no pictures" in err) == (True, False)
    assert (folder / "r.html").read_text().count("data:image/png") > before
    (net,) = train("ae", "photos", size=16, net="small", **SHORT)
    assert net.config["model"]["shape"] == [3, 16, 16]
    with pytest.raises(InputError, match="pixels, but .* is .*; give a size to make them equal"):
        train("ae", "photos", net="small", **SHORT)
    assert call("data", "make", "pinwheel", "--n", "60", "--out", "points.npz")[0] == 0
    (vade,) = train("vade", "points.npz", pretraining=1, **SHORT)
    assert (vade.config["model"]["clusters"], vade.config["data"]["factors"]) == (3, ["arm", "along", "across"])
    assert call("data", "make", "sprites", "--n", "20", "--out", "sprites.npz", "--device", "cpu")[0] == 0
    assert call("train", "vae", "--data", "sprites.npz", "--steps", "2", "--device", "cpu")[0] == 0
    assert open_run("runs/vae-0").config["data"]["kinds"][0] == "categorical"


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("nowhere.parquet", {}, "nowhere.parquet"),
        ("nowhere", {}, "unknown data set 'nowhere'"),
        ("rows.parquet", {"size": 3}, "size is an option of folders of images; got 3 for rows.parquet"),
        ("pinwheel", {"key": "a"}, "key is an option of your own data; got 'a' for the data set pinwheel"),
        ("rows.parquet", {"continuous": True}, "continuous is an option of rooms and sprites, not of your own data"),
        ("rows.parquet", {"n": 51}, "n must be at most 50"),
    ],
)
def test_data_that_cannot_be_meant_is_refused(data, options, message, folder):
    with pytest.raises(InputError, match=message):
        train("mine.py:Mine", data, **SHORT, **options)


def test_clusters_of_rows_of_the_user_must_be_given(rows):
    with pytest.raises(InputError, match="clusters must be given for vade, since the data does not say how many"):
        train("vade", rows, **SHORT)


def test_more_steps_continue_a_finished_training_as_if_it_had_not_ended(rows, tmp_path):
    torch.manual_seed(3)
    model = Mine()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    train_model(model, rows, **SHORT, out=tmp_path / "run")
    steps = []
    longer = train_model(
        Mine(), rows, **SHORT | {"steps": 40}, out=tmp_path / "run", progress=lambda state: steps.append(state.step)
    )
    assert steps == list(range(13, 41))
    again = Mine()
    again.load_state_dict(start)
    same(longer, train_model(again, rows, **SHORT | {"steps": 40}))
    assert longer.outcome.steps == 40
    assert [line["step"] for line in longer.metrics()] == [1, 12, 40, 40]  # 12 was the end, once
    assert [line.get("ended") for line in longer.metrics()] == [None, None, None, "steps"]
    with pytest.raises(InputError, match="another config .training: steps is 40, not 12."):
        train_model(Mine(), rows, **SHORT, out=tmp_path / "run")


def test_a_rate_that_depends_on_the_steps_cannot_be_continued(rows, tmp_path):
    how = Training(steps=12, batch=16, cosine=True)
    train_model(Mine(), rows, how, out=tmp_path / "run", device="cpu")
    with pytest.raises(
        InputError, match="the learning rate in .*run depends on the number of steps, 12, so that 20 are"
    ):
        train_model(Mine(), rows, how, steps=20, out=tmp_path / "run", device="cpu")
    assert open_run(tmp_path / "run").finished
    train_model(Mine(), rows, **SHORT, out=tmp_path / "old")
    (tmp_path / "old/checkpoint.safetensors").unlink()
    with pytest.raises(InputError, match="old has no checkpoint.safetensors, from which it could be continued"):
        train_model(Mine(), rows, **SHORT | {"steps": 20}, out=tmp_path / "old")
    assert open_run(tmp_path / "old").finished


def test_checkpoints_are_written_by_time(rows, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    written = []
    from congruence.experiments.training import loop

    store = loop.write_checkpoint
    monkeypatch.setattr(
        loop, "write_checkpoint", lambda run, point: [written.append(point.counts["step"]), store(run, point)]
    )

    def pass_time(state):
        now[0] += 25.0

    train_model(Mine(), rows, **SHORT, out=tmp_path / "run", progress=pass_time)
    assert written == [4, 8, 12, 12]  # in the step that starts 60 seconds later, of 25 seconds each, and at the end


KILLED = """
import numpy as np
import torch
from congruence.experiments.training import Training, train_model
from mine import Mine

torch.manual_seed(0)
how = Training(steps=60, batch=16, optimiser="adamw", checkpoint_seconds=0, deterministic=True)
train_model(Mine(), np.load("rows.npy"), how, device="cpu", out=OUT)
"""


def kill(arguments, number, path):
    """Start a slow training, send it a signal once there is a file, and return its exit code and stderr."""
    environment = os.environ | {"SLOW": "0.1"}
    process = subprocess.Popen([sys.executable, *arguments], env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and not os.path.exists(path):
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_checkpoint_and_the_same_command_continues_with_the_same_weights(folder, sent):
    command = ["-m", "congruence", "train", "mine.py:Mine", "--data", "rows.parquet", "--id", "name"]
    command += ["--steps", "60", "--batch", "16", "--device", "cpu", "--deterministic"]
    code, err = kill(command, sent, "runs/Mine-0/metrics.jsonl")
    assert code == 128 + sent
    assert "interrupted; finished steps are kept in runs, and the same command resumes" in err
    assert not open_run("runs/Mine-0").finished
    options = {"data": "rows.parquet", "id": "name", "steps": 60, "batch": 16, "device": "cpu", "deterministic": True}
    steps = []
    train("mine.py:Mine", **options, progress=lambda what, done, total: steps.append(done))
    assert 1 < steps[0] < 60
    same("runs/Mine-0", train("mine.py:Mine", out="whole", **options)[0])


def test_kill_minus_nine_loses_the_steps_since_the_last_checkpoint_only(folder, rows, monkeypatch):
    np.save("rows.npy", rows)
    code, err = kill(["-c", KILLED.replace("OUT", "'run'")], signal.SIGKILL, "run/checkpoint.safetensors")
    assert code == -signal.SIGKILL, err
    assert not open_run("run").finished
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    for out in ("run", "whole"):
        with torch.random.fork_rng():
            exec(KILLED.replace("OUT", repr(out)), {})
    same("run", "whole")
    assert [line["step"] for line in open_run("run").metrics()] == [
        line["step"] for line in open_run("whole").metrics()
    ]


def test_a_training_that_is_killed_while_it_is_continued_goes_on(rows, tmp_path):
    def die(state):
        if state.step == 20:
            raise MemoryError

    torch.manual_seed(0)
    train_model(Mine(), rows, **SHORT, out=tmp_path / "run")
    with pytest.raises(MemoryError):
        train_model(Mine(), rows, **SHORT | {"steps": 40}, out=tmp_path / "run", progress=die)
    assert not open_run(tmp_path / "run").finished
    longer = train_model(Mine(), rows, **SHORT | {"steps": 40}, out=tmp_path / "run")
    torch.manual_seed(0)
    same(longer, train_model(Mine(), rows, **SHORT | {"steps": 40}))
