"""Trainings that were interrupted, in any way, end where those end that were not."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence._saved import read_tensors, write_tensors
from congruence.errors import InputError, NotConvergedWarning
from congruence.experiments.runs import open_run, start_run
from congruence.experiments.training.loop import optimise
from congruence.experiments.training.settings import Training, row_order

torch = pytest.importorskip("torch")


class Noisy(torch.nn.Module):
    """A small autoencoder that draws noise, drops units and counts its steps: all that a checkpoint has to keep."""

    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers = [torch.nn.Linear(5, 8), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(8, 5)]
            self.layers = torch.nn.Sequential(*layers)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def loss(self, x):
        error = (self.layers(x + 0.1 * torch.randn_like(x)) - x).square().mean()
        return {"loss": error, "twice": 2 * error}

    def after_step(self):
        self.steps += 1


class Line(torch.nn.Module):
    """Least squares, whose answer is known."""

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def loss(self, x, y):
        return (x @ self.slope - y).square().mean()


@pytest.fixture
def rows(rng):
    return torch.from_numpy(rng.normal(size=(50, 5)).astype(np.float32))


HOW = Training(steps=60, batch=8, clip=0.5, warmup=5, cosine=True, checkpoint_seconds=0, seed=3)


def same(one, other):
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert_array_equal(a.numpy(), b.numpy(), err_msg=name)


class StoppedError(Exception):
    pass


def stop_at(last):
    def progress(step, steps, loss):
        if step == last:
            raise StoppedError

    return progress


def test_least_squares_is_found(rng):
    x = rng.normal(size=(64, 2))
    y = x @ [1.0, -2.0]
    model = Line()
    done = optimise(model, [x, y], Training(epochs=200, batch=64, learning_rate=0.1, cosine=True), device="cpu")
    assert (done.ended, done.steps, done.epochs) == ("steps", 200, 200)
    assert_allclose(model.slope.detach(), [1, -2], atol=1e-3)


def test_the_order_of_rows_follows_from_the_seed_and_the_epoch():
    assert sorted(row_order(9, 0, 0)) == list(range(9))
    assert row_order(9, 0, 0).tolist() == row_order(9, 0, 0).tolist()
    assert row_order(50, 0, 0).tolist() != row_order(50, 0, 1).tolist()
    assert row_order(50, 0, 0).tolist() != row_order(50, 1, 0).tolist()


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_what_was_interrupted_ends_as_if_it_had_not_been(optimiser, rows, tmp_path):
    how = Training(**(HOW.__dict__ | {"optimiser": optimiser, "weight_decay": 0.01}))
    whole = Noisy()
    first = optimise(whole, [rows], how, run=start_run(tmp_path / "whole", {}), device="cpu")
    run = start_run(tmp_path / "cut", {})
    for last in (13, 37, 38, 60):  # in the middle of an epoch, before its checkpoint is written
        with pytest.raises(StoppedError):
            optimise(Noisy(seed=0 if last == 13 else last), [rows], how, run=run, device="cpu", progress=stop_at(last))
    model = Noisy(seed=99)
    assert optimise(model, [rows], how, run=run, device="cpu") == first
    same(model, whole)
    assert model.steps == 60
    assert run.metrics() == open_run(tmp_path / "whole").metrics()
    assert [line["epoch"] for line in run.metrics()] == list(range(1, 9))
    assert_allclose([line["twice"] for line in run.metrics()], [2 * line["loss"] for line in run.metrics()])


def test_a_process_that_is_killed_leaves_a_training_that_goes_on(rows, tmp_path):
    whole = Noisy()
    optimise(whole, [rows], HOW, device="cpu")
    run = start_run(tmp_path / "killed", {})
    np.save(tmp_path / "rows.npy", rows.numpy())
    script = f"""
        import os, signal, sys
        import numpy as np
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_loop import HOW, Noisy, optimise, open_run
        def kill(step, steps, loss):
            if step == 33:
                os.kill(os.getpid(), signal.SIGKILL)
        rows, run = np.load({str(tmp_path / "rows.npy")!r}), open_run({str(run.folder)!r})
        optimise(Noisy(), [rows], HOW, run=run, device="cpu", progress=kill)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (run.folder / "checkpoint.safetensors").exists()
    model, seen = Noisy(seed=5), []
    optimise(model, [rows], HOW, run=run, device="cpu", progress=lambda step, steps, loss: seen.append(step))
    assert seen == list(range(33, 61))
    same(model, whole)


def test_ctrl_c_waits_for_the_step_keeps_it_and_stops(rows, tmp_path):
    whole = Noisy()
    optimise(whole, [rows], HOW, device="cpu")
    run = start_run(tmp_path / "run", {})

    def press(step, steps, loss):
        if step == 17:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        optimise(Noisy(), [rows], HOW, run=run, device="cpu", progress=press)
    assert signal.getsignal(signal.SIGINT) is before
    model, seen = Noisy(seed=5), []
    optimise(model, [rows], HOW, run=run, device="cpu", progress=lambda step, steps, loss: seen.append(step))
    assert seen[0] == 18
    same(model, whole)


def test_a_second_ctrl_c_does_not_wait(rows):
    def press(step, steps, loss):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        seen.append(step)

    seen = []
    with pytest.raises(KeyboardInterrupt):
        optimise(Noisy(), [rows], HOW, device="cpu", progress=press)
    assert seen == []


def test_a_training_in_another_thread_is_the_same(rows):
    one, other = Noisy(), Noisy()
    optimise(one, [rows], HOW, device="cpu")
    thread = threading.Thread(target=lambda: optimise(other, [rows], HOW, device="cpu"))
    thread.start()
    thread.join()
    same(one, other)


def test_training_leaves_the_generator_of_others_alone_and_the_seed_decides(rows):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    models = [Noisy(), Noisy(), Noisy()]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        optimise(model, [rows], Training(steps=5, seed=seed), device="cpu")
    assert_array_equal(before.numpy(), torch.get_rng_state().numpy())
    same(models[0], models[1])
    assert not torch.equal(models[0].layers[0].weight, models[2].layers[0].weight)


def test_a_finished_training_is_not_done_again_and_may_be_made_longer(rows, tmp_path):
    run = start_run(tmp_path / "run", {})
    how = Training(epochs=3, batch=8)
    first, seen = optimise(Noisy(), [rows], how, run=run, device="cpu"), []
    again = optimise(Noisy(), [rows], how, run=run, device="cpu", progress=lambda *told: seen.append(told))
    assert again == first
    assert seen == []
    whole, longer = Noisy(), Noisy()
    optimise(whole, [rows], Training(epochs=5, batch=8), device="cpu")
    done = optimise(longer, [rows], Training(epochs=5, batch=8), run=run, device="cpu")
    assert done.epochs == 5
    same(whole, longer)


class Bursting(Line):
    """A loss that is not finite after some steps; or its gradient is not."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.calls = kind, 0

    def loss(self, x, y):
        self.calls += 1
        loss = super().loss(x, y)
        if self.calls <= 25:
            return loss
        if self.kind == "gradient":
            return loss + (self.slope - self.slope.detach()).abs().sqrt().sum()  # 0, with an infinite slope
        return loss * float(self.kind)


@pytest.mark.parametrize("kind", ["nan", "inf", "gradient"])
def test_a_loss_that_is_not_finite_gives_back_the_last_good_model(kind, rng, tmp_path):
    x = rng.normal(size=(64, 2))
    data = [x, x @ [1.0, -2.0]]
    run = start_run(tmp_path / "run", {})
    model, good = Bursting(kind), Line()
    with pytest.warns(NotConvergedWarning, match=r"at step 26, so training stopped; the model is that of step 20"):
        done = optimise(model, data, Training(steps=60, batch=16, checkpoint_every=10), run=run, device="cpu")
    assert (done.ended, done.steps) == ("diverged", 20)
    optimise(good, data, Training(steps=20, batch=16), device="cpu")
    same(model, good)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either epochs or steps; got None and None"),
        ({"epochs": 1, "steps": 1}, "give either epochs or steps; got 1 and 1"),
        ({"epochs": 0}, "epochs must be an integer of at least 1; got 0"),
        ({"steps": 2.5}, "steps must be an integer of at least 1; got 2.5"),
        ({"steps": 1, "seed": -1}, "seed must be an integer from 0 to .*; got -1"),
        ({"steps": 1, "optimiser": "lion"}, "optimiser must be one of 'adam', 'adamw'; got 'lion'"),
        ({"steps": 1, "learning_rate": float("nan")}, "learning_rate must be a finite number above 0; got nan"),
        ({"steps": 1, "clip": 0.0}, "clip must be a finite number above 0; got 0.0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Training(**options)


def test_data_and_losses_that_cannot_be_used_are_refused(rows):
    with pytest.raises(InputError, match=r"data must be tensors with the same number of rows; got \[50, 3\]"):
        optimise(Line(), [rows, rows[:3]], HOW, device="cpu")
    with pytest.raises(InputError, match=r"must be tensors .* \[\]"):
        optimise(Line(), [], HOW, device="cpu")
    model = Noisy()
    model.loss = lambda x: {"error": x.sum()}
    with pytest.raises(InputError, match="must have one named 'loss'; got error"):
        optimise(model, [rows], HOW, device="cpu")


def forge(arrays, counts, change):
    """Change a checkpoint in one way."""
    first = next(name for name in arrays if name.startswith("model."))
    averages = next(name for name in arrays if name.endswith(".exp_avg"))
    step = averages.removesuffix("exp_avg") + "step"
    arrays |= {
        "generator of another size": {"random.cpu": arrays["random.cpu"][:9]},
        "generator of numbers": {"random.cpu": np.zeros(9)},
        "averages of no weight": {"optimiser.999.step": np.zeros(())},
        "averages of no number": {"optimiser.x.step": np.zeros(())},
        "averages of another shape": {averages: np.zeros((1, 1), np.float32)},
        "averages of another optimiser": {averages + "_of_another": arrays[averages]},
        "averages of negative steps": {step: np.float32(-1)},
        "weights that are NaN": {first: arrays[first] * np.nan},
    }.get(change, {})
    counts |= {
        "another count": {"model": 1},
        "a line after the step": {"line": counts["step"] + 1},
        "a number too large": {"seconds": 10**400},
        "sums without a loss": {"sums": {"x": 1.0}},
        "sums too large": {"sums": {"loss": 10**400}},
        "an unknown end": {"ended": "soon"},
    }.get(change, {})


@pytest.mark.parametrize(
    "change",
    [
        "generator of another size",
        "generator of numbers",
        "averages of no weight",
        "averages of no number",
        "averages of another shape",
        "averages of another optimiser",
        "averages of negative steps",
        "weights that are NaN",
        "another count",
        "a line after the step",
        "a number too large",
        "sums without a loss",
        "sums too large",
        "an unknown end",
    ],
)
def test_a_forged_checkpoint_is_refused_in_a_sentence(change, rows, tmp_path):
    run = start_run(tmp_path / "run", {})
    optimise(Noisy(), [rows], HOW, run=run, device="cpu")
    path = run.folder / "checkpoint.safetensors"
    arrays, header = read_tensors(path, "a checkpoint")
    forge(arrays, header["counts"], change)
    write_tensors(path, arrays, header)
    with pytest.raises(InputError, match=r"checkpoint\.safetensors"):
        optimise(Noisy(), [rows], HOW, run=run, device="cpu")


def test_a_checkpoint_of_another_training_is_refused(rows, tmp_path):
    run = start_run(tmp_path / "run", {})
    optimise(Noisy(), [rows], HOW, run=run, device="cpu")
    for other, data, word in ((Training(steps=60), rows, "batch"), (HOW, rows + 1, "data")):
        with pytest.raises(InputError, match=f"is of a training with another {word}; remove it to start again"):
            optimise(Noisy(), [data], other, run=run, device="cpu")
    wide = Noisy()
    wide.layers[0] = torch.nn.Linear(5, 9)
    with pytest.raises(InputError, match="the checkpoint does not fit the model: size mismatch"):
        optimise(wide, [rows], HOW, run=run, device="cpu")
    (run.folder / "checkpoint.safetensors").write_bytes(b"half")
    with pytest.raises(InputError, match=r"cannot read a checkpoint from .*checkpoint.*; remove it to start again"):
        optimise(Noisy(), [rows], HOW, run=run, device="cpu")
    for told in ({}, {"counts": {}, "about": {}}):
        write_tensors(run.folder / "checkpoint.safetensors", {"a": np.zeros(1)}, told)
        with pytest.raises(InputError, match="is not a checkpoint of congruence; remove it to start again"):
            optimise(Noisy(), [rows], HOW, run=run, device="cpu")


def test_batches_can_be_drawn_at_each_step():
    class Line(torch.nn.Module):
        def __init__(self, slope):
            super().__init__()
            self.slope = torch.nn.Parameter(torch.tensor(slope))

        def loss(self, x):
            return (self.slope * x - 2 * x).square().mean()

    steps, rng, model = [], np.random.default_rng(0), Line(0.0)

    def draw(step):
        steps.append(step)
        return [rng.normal(size=(8, 1)).astype(np.float32)]

    how = Training(steps=60, batch=8, learning_rate=0.1, check_every=20)
    outcome = optimise(model, draw, how, device="cpu")
    assert steps == list(range(60))
    assert (outcome.ended, outcome.steps) == ("steps", 60)
    assert float(model.slope.detach()) == pytest.approx(2, abs=0.3)
    with pytest.warns(NotConvergedWarning, match="NaN or infinite"):
        assert optimise(Line(float("nan")), draw, how, device="cpu").ended == "diverged"
