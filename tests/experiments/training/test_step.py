"""Weights in groups, losses looked at from time to time, and settings of a step."""

import importlib.util
import json
import os
import shutil
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from congruence._saved import read_tensors
from congruence.errors import InputError, NotConvergedWarning
from congruence.experiments.runs import start_run
from congruence.experiments.training import _step
from congruence.experiments.training._checkpoints import Checkpoint, restore
from congruence.experiments.training._step import (
    Stepper,
    _clip_and_step,
    _compile_update,
    choose_engine,
    make_optimiser,
)
from congruence.experiments.training.loop import optimise
from congruence.experiments.training.settings import Training
from congruence.rows import devices
from congruence.rows.devices import kernels

torch = pytest.importorskip("torch")


class Grouped(torch.nn.Module):
    """Two weights whose gradient is given, one of which is decayed."""

    def __init__(self, slopes=(5.0, 5.0)):
        super().__init__()
        self.kept = torch.nn.Parameter(torch.ones(2))
        self.free = torch.nn.Parameter(torch.ones(2))
        self.slopes = slopes

    def loss(self, x):
        return self.slopes[0] * self.kept.sum() + self.slopes[1] * self.free.sum() + 0 * x.sum()

    def decayed_parameters(self):
        return [self.kept]

    def undecayed_parameters(self):
        return [self.free]


class Net(torch.nn.Module):
    """A small autoencoder with dropout, whose loss may burst after so many calls."""

    def __init__(self, seed=0, bursts=None):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 5))
        self.calls, self.bursts = 0, bursts

    def loss(self, x):
        self.calls += 1
        error = (self.layers(x) - x).square().mean()
        return {"loss": error * float("nan") if self.calls == self.bursts else error, "twice": 2 * error}


@pytest.fixture
def rows(rng):
    return torch.from_numpy(rng.normal(size=(50, 5)).astype(np.float32))


def same(one, other):
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert_array_equal(a.numpy(), b.numpy(), err_msg=name)


def one_step(**settings):
    model = Grouped()
    optimise(model, [torch.zeros(4, 1)], Training(steps=1, batch=4, **settings), device="cpu")
    return model.kept.detach().numpy(), model.free.detach().numpy()


def test_only_the_decayed_weights_are_decayed():
    kept, free = one_step(optimiser="adamw", learning_rate=0.1, weight_decay=0.5)
    np.testing.assert_allclose(free, 1 - 0.1, rtol=1e-6)  # the first step of Adam is the learning rate
    np.testing.assert_allclose(kept, 1 - 0.1 - 0.1 * 0.5, rtol=1e-6)  # beside it, the decay, which is decoupled


def test_only_the_gradients_of_decayed_weights_are_clipped_and_element_by_element():
    model = Grouped()
    optimise(model, [torch.zeros(4, 1)], Training(steps=1, batch=4, clip_value=1.0), device="cpu")
    np.testing.assert_allclose(model.kept.grad, 1.0)
    np.testing.assert_allclose(model.free.grad, 5.0)


def test_a_model_without_groups_decays_and_clips_all(rows):
    class Plain(Grouped):
        decayed_parameters = undecayed_parameters = property(lambda self: (_ for _ in ()).throw(AttributeError()))

    model = Plain()
    optimise(model, [torch.zeros(4, 1)], Training(steps=1, batch=4, clip_value=1.0), device="cpu")
    np.testing.assert_allclose(torch.cat([model.kept.grad, model.free.grad]), 1.0)


def test_groups_that_leave_a_weight_out_are_refused():
    model = Grouped()
    model.undecayed_parameters = list
    with pytest.raises(InputError, match="have each of the 2 weights of the model once; got 1 and 0"):
        optimise(model, [torch.zeros(4, 1)], Training(steps=1), device="cpu")


def test_how_often_the_loss_is_looked_at_changes_nothing(rows, tmp_path):
    models, logs, seen = [Net(), Net()], [], []
    for model, every in zip(models, (1, 7), strict=True):
        run = start_run(tmp_path / str(every), {})
        how = Training(steps=40, batch=8, check_every=every, clip_value=0.5, optimiser="adamw", weight_decay=0.1)
        optimise(model, [rows], how, run=run, device="cpu", progress=lambda step, steps, loss: seen.append(step))
        logs.append(run.metrics())
    same(*models)
    assert logs[0] == logs[1]
    assert seen[:40] == list(range(1, 41))
    assert seen[40:] == [7, 14, 21, 28, 35, 40]  # epochs end at 7, 14, ...; the last step is looked at in any case


def test_a_loss_that_was_not_finite_between_two_looks_gives_back_the_last_good_model(rows, tmp_path):
    run = start_run(tmp_path / "run", {})
    how = Training(steps=60, batch=8, check_every=10, checkpoint_every=20, log_every=100)
    model, good = Net(bursts=33), Net()
    with pytest.warns(NotConvergedWarning, match=r"between steps 31 and 40, so training stopped; .* of step 20"):
        done = optimise(model, [rows], how, run=run, device="cpu")
    assert (done.ended, done.steps) == ("diverged", 20)
    optimise(good, [rows], Training(steps=20, batch=8), device="cpu")
    same(model, good)


def test_a_stop_that_comes_after_the_look_at_a_step_keeps_no_loss_that_is_not_finite(rows, tmp_path):
    run = start_run(tmp_path / "run", {})
    how = Training(steps=60, batch=8, check_every=50, checkpoint_every=20, log_every=100)
    asked = iter(range(1000))  # twice at each step; step 33 bursts, and the second time after step 34 is number 67
    with pytest.warns(NotConvergedWarning, match=r"of step 20"), pytest.raises(KeyboardInterrupt):
        optimise(Net(bursts=33), [rows], how, run=run, device="cpu", stop=lambda: next(asked) == 67)
    good = Net()
    optimise(good, [rows], Training(steps=20, batch=8), device="cpu")
    again = Net(seed=3)
    assert optimise(again, [rows], how, run=run, device="cpu").ended == "diverged"
    same(again, good)


@pytest.mark.parametrize("every", [1, 10])
def test_what_was_stopped_between_two_looks_goes_on_as_if_it_had_not_been(every, rows, tmp_path):
    how = Training(steps=60, batch=8, check_every=every, checkpoint_every=1000, log_every=20, precision="bfloat16")
    whole, model = Net(), Net()
    one, other = start_run(tmp_path / "whole", {}), start_run(tmp_path / "cut", {})
    optimise(whole, [rows], how, run=one, device="cpu")
    asked = iter(range(1000))
    with pytest.raises(KeyboardInterrupt):
        optimise(model, [rows], how, run=other, device="cpu", stop=lambda: next(asked) == 50)
    again = Net(seed=3)
    optimise(again, [rows], how, run=other, device="cpu")
    same(again, whole)
    lines = [[{k: v for k, v in line.items() if "second" not in k} for line in run.metrics()] for run in (one, other)]
    assert lines[0] == lines[1]
    assert [line["step"] for line in lines[0]] == [1, 20, 40, 60]


def test_averages_come_back_in_the_order_in_memory_that_their_weights_have(tmp_path):
    class Images(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

        def loss(self, x):
            return self.layer(x).square().mean()

    run = start_run(tmp_path / "run", {})
    x, how = torch.ones(8, 3, 5, 5), Training(steps=4, batch=4, checkpoint_every=2)
    with pytest.raises(KeyboardInterrupt):
        optimise(Images(), [x], how, run=run, device="cpu", stop=lambda: True)
    model = Images()
    optimiser = make_optimiser(model, how)
    restore(Checkpoint(*read_arrays_of(run)), model, optimiser)
    strides = model.layer.weight.stride()
    assert strides != torch.empty(4, 3, 3, 3).stride()
    assert optimiser.state[model.layer.weight]["exp_avg"].stride() == strides
    assert optimiser.state[model.layer.weight]["exp_avg"].abs().sum() > 0


def read_arrays_of(run):
    arrays, _ = read_tensors(run.folder / "checkpoint.safetensors", "a checkpoint")
    return arrays, {}, {}


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")  # of torch, which compiling it calls itself
def test_a_compiled_move_clips_and_steps_as_a_plain_one(monkeypatch):
    # Traced as ever, and not made C++ of, which takes a compiler and half a minute.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    ends = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model, how = torch.nn.Linear(3, 2), Training(steps=1, optimiser="adamw", weight_decay=0.1, clip_value=0.01)
        optimiser, weights = make_optimiser(model, how), list(model.parameters())
        plain = partial(_clip_and_step, optimiser, weights, how.clip_value)
        for one in (plain, *[_compile_update(optimiser, weights, how.clip_value) if compiled else plain] * 3):
            optimiser.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            one()
        assert max(float(weight.grad.abs().max()) for weight in weights) == pytest.approx(0.01)
        ends.append([weight.detach().clone() for weight in weights])
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")
def test_as_many_models_as_are_trained_are_compiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr(Stepper, "_compiler_options", lambda self: None)
    compiled = []

    class Scaled(Grouped):
        def loss(self, x):
            compiled.append(torch.compiler.is_compiling())
            return super().loss(x) * self.scale

    for number in range(10):  # torch on its own stops at eight
        model = Scaled()
        model.scale = 1.0 + number
        optimise(model, [torch.zeros(4, 1)], Training(steps=1, batch=4, engine="compiled"), device="cpu")
    assert compiled == [True] * 10


def test_a_gpu_is_the_current_one_while_it_is_trained_on(monkeypatch):
    seen = []

    class Device:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            seen.append(self.name)

        def __exit__(self, *_):
            seen.append("left")

    monkeypatch.setattr(torch.cuda, "device", Device)
    with kernels("cuda:1", deterministic=False):
        assert seen == ["cuda:1"]
    assert seen == ["cuda:1", "left"]


def test_settings_may_be_numbers_of_numpy():
    given = {"steps": np.int64(5), "batch": 4.0, "seed": np.int32(3), "learning_rate": np.float32(0.5)}
    how = Training(**given, deterministic=np.bool_(True))
    plain = Training(steps=5, batch=4, seed=3, learning_rate=0.5, deterministic=True)
    assert json.dumps(asdict(how)) == json.dumps(asdict(plain))


def test_lines_are_logged_at_the_published_steps():
    how = Training(steps=200_000, log_every=500)
    logged = [step for step in range(1, 20_001) if how.is_logged(step, 200_000)]
    assert logged == [1, *range(500, 5001, 500), 10_000, 15_000, 20_000]
    assert how.is_logged(12_345, 12_345)  # the last


def test_each_line_is_the_mean_over_the_images_since_the_last_one(rows, tmp_path):
    class Rows(Grouped):
        def loss(self, x):
            return x.mean() + 0 * self.kept.sum() + 0 * self.free.sum()

    run = start_run(tmp_path / "run", {})
    x = torch.arange(10.0)[:, None]
    measured = iter(range(9))
    how = Training(steps=6, batch=4, log_every=3)  # three steps are an epoch, whose last batch is smaller
    optimise(Rows(), [x], how, run=run, device="cpu", measure=lambda: {"psnr": next(measured)})
    lines = run.metrics()
    assert [(line["step"], line["epoch"], line["psnr"]) for line in lines] == [(1, 0, 0), (3, 1, 1), (6, 2, 2)]
    np.testing.assert_allclose(lines[2]["loss"], 4.5)
    np.testing.assert_allclose((4 * lines[0]["loss"] + 6 * lines[1]["loss"]) / 10, 4.5)
    assert all(line["images_per_second"] > 0 for line in lines)
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)


def test_bfloat16_is_used_where_it_is_asked_for(rows):
    kinds = []

    class Watching(Net):
        def loss(self, x):
            kinds.append(self.layers(x).dtype)
            return super().loss(x)

    for precision in ("float32", "auto", "bfloat16"):
        optimise(Watching(), [rows], Training(steps=1, precision=precision), device="cpu")
    assert kinds == [torch.float32, torch.float32, torch.bfloat16]


def test_deterministic_takes_one_thread_and_leaves_torch_as_it_was(rows):
    seen = []

    class Watching(Net):
        def loss(self, x):
            seen.append((torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()))
            return super().loss(x)

    torch.set_num_threads(2)
    optimise(Watching(), [rows], Training(steps=1, deterministic=True), device="cpu")
    assert seen == [(1, True)]
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.skipif(os.name != "posix", reason="elsewhere triton brings the headers along")
def test_kernels_are_made_only_where_triton_a_compiler_and_the_headers_are(monkeypatch, tmp_path):
    there = {"triton": True, "cc": True}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: there[name] or None)
    monkeypatch.setattr(shutil, "which", lambda name: there.get(name))
    monkeypatch.setattr(devices, "_header_folders", lambda: [str(tmp_path / "none"), str(tmp_path)])
    assert not devices.can_compile()  # there are no headers yet
    (tmp_path / "Python.h").touch()
    assert devices.can_compile()
    for name in ("triton", "cc"):
        monkeypatch.setitem(there, name, False)
        assert not devices.can_compile()
        monkeypatch.setitem(there, name, True)


def test_engines_are_chosen_by_what_pays(monkeypatch):
    def engine(device, steps, **settings):
        return choose_engine(Training(steps=steps, **{"engine": "auto"} | settings), device, steps)

    assert engine("cpu", 10_000) == "eager"
    assert engine("cuda", 50) == "eager"
    assert engine("cuda", 1000) == engine("cuda", 20_000) == "graph"
    assert engine("cuda:1", 200_000, deterministic=True) == "graph"
    monkeypatch.setattr(_step, "can_compile", lambda: True)
    assert engine("cuda", 200_000) == "compiled graph"
    monkeypatch.setattr(_step, "can_compile", lambda: False)
    assert engine("cuda", 200_000) == "graph"
    assert engine("cuda", 10_000, engine="eager") == "eager"
    with pytest.raises(InputError, match="engine 'graph' needs a CUDA device; got cpu; use 'eager'"):
        engine("cpu", 100, engine="graph")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "float8"}, "precision must be one of 'auto', 'float32', 'bfloat16'; got 'float8'"),
        ({"engine": "steam"}, "engine must be one of 'eager', .*; got 'steam'"),
        ({"clip_value": -1.0}, "clip_value must be a finite number above 0; got -1.0"),
        ({"weight_decay": -0.1}, "weight_decay must be a finite number at least 0; got -0.1"),
        ({"check_every": 0}, "check_every must be an integer of at least 1; got 0"),
        ({"log_every": 0}, "log_every must be an integer of at least 1; got 0"),
        ({"warmup": -3}, "warmup must be an integer of at least 0; got -3"),
        ({"warmup": 2.5}, "warmup must be an integer of at least 0; got 2.5"),
        ({"batch": "4"}, "batch must be an integer of at least 1; got '4'"),
        ({"batch": None}, "batch must be an integer of at least 1; got None"),
        ({"learning_rate": "fast"}, "learning_rate must be a finite number above 0; got 'fast'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Training(steps=1, **options)
