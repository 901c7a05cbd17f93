"""Trainings of models of images, and the run folders that they leave."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence.errors import InputError
from congruence.experiments.runs import open_run, start_run
from congruence.parts import RECORD

torch = pytest.importorskip("torch")

from congruence.experiments.data import sprites  # noqa: E402
from congruence.experiments.models import QLAE, VAE, VQVAE, AutoEncoder  # noqa: E402
from congruence.experiments.models.catalogue import build_model  # noqa: E402
from congruence.experiments.models.reconstructions import evaluated_rows, mean_psnr  # noqa: E402
from congruence.experiments.training import Training, load_model, train_model  # noqa: E402

SHORT = {"steps": 12, "batch": 16, "device": "cpu", "deterministic": True}


@pytest.fixture(scope="module")
def images():
    return sprites(40, side=16, device="cpu")


def small(kind=AutoEncoder, **options):
    return kind(3, net="small", shape=(1, 16, 16), **options)


def weights(run):
    return run.weights() if hasattr(run, "weights") else open_run(run).weights()


def same(one, other):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    for name in one:
        assert_array_equal(one[name], other[name], err_msg=name)


def numbers(run):
    return [{k: v for k, v in line.items() if "second" not in k} for line in run.metrics()]


def test_a_training_leaves_weights_codes_factors_log_and_examples(images, tmp_path):
    seen = []
    model = small()
    run = train_model(model, images, **SHORT, weight_decay=0.1, out=tmp_path / "run", progress=seen.append)
    assert run.folder == tmp_path / "run"
    assert run.finished
    assert run.outcome.ended == "steps"
    assert [(moment.step, moment.steps) for moment in seen] == [(step, 12) for step in range(1, 13)]
    assert np.isfinite(seen[-1].psnr)
    latents = run.latents()
    assert_array_equal(latents.metadata["shape"], images.factors[:, 0])
    assert_allclose(latents.values, model.encode(images.images).detach().numpy(), atol=1e-6)
    assert [line["step"] for line in run.metrics()] == [1, 12, 12]
    assert run.metrics()[1]["psnr"] == pytest.approx(mean_psnr(model, images.images), abs=1e-4)
    assert run.examples().shape == (8, 1, 16, 16)
    assert run.config["data"]["kinds"] == list(images.kinds)
    assert run.config["training"]["clip_value"] == 1.0
    files = sorted(path.name for path in run.folder.iterdir())
    assert files == [
        "_record.jsonl", "checkpoint.safetensors", "config.json", "environment.json", "examples.safetensors",
        "latents.parquet", "metrics.jsonl", "weights.safetensors",
    ]  # fmt: skip


def test_a_finished_training_whose_files_were_changed_is_refused(images, tmp_path):
    run = train_model(small(), images, **SHORT, out=tmp_path / "run")
    record = (run.folder / RECORD).read_text()
    (run.folder / RECORD).unlink()  # as after a kill at the very end
    train_model(small(), images, **SHORT, out=tmp_path / "run")
    assert (run.folder / RECORD).read_text() == record
    run.write_latents(run.latents().values + 1)
    with pytest.raises(InputError, match=r"latents.parquet is not as it was written; remove weights.safetensors to"):
        train_model(small(), images, **SHORT, out=tmp_path / "run")
    (run.folder / "weights.safetensors").unlink()
    train_model(small(), images, **SHORT, out=tmp_path / "run")
    assert (run.folder / RECORD).read_text() == record
    (run.folder / RECORD).write_text(record.replace("latents.parquet", "../latents.parquet"))
    with pytest.raises(InputError, match=r"_record.jsonl is damaged, or of another version"):
        train_model(small(), images, **SHORT, out=tmp_path / "run")


def test_the_published_settings_are_what_is_trained_with(images):
    how = train_model(small(), images, **SHORT).config["training"]
    assert how["optimiser"] == "adamw"
    assert how["learning_rate"] == 1e-3
    assert (how["clip"], how["clip_value"], how["weight_decay"]) == (None, 1.0, 0.0)
    assert train_model(small(), images, steps=1, device="cpu").config["training"]["batch"] == 128


def test_a_run_that_is_there_is_not_trained_again_and_others_are_refused(images, tmp_path):
    first = train_model(small(VAE), images, **SHORT, out=tmp_path)
    again, seen = small(VAE), []
    second = train_model(again, images, **SHORT, out=tmp_path, progress=seen.append)
    assert seen == []
    assert second.outcome == first.outcome
    same(first, second)
    assert_array_equal(again.encode(images.images).detach(), first.model.encode(images.images).detach())
    for changes, word in (({"seed": 1}, "training"), ({"batch": 8}, "training")):
        with pytest.raises(InputError, match=f"has a run with another config .{word}"):
            train_model(small(VAE), images, **SHORT | changes, out=tmp_path)
    with pytest.raises(InputError, match=r"another config .data: n is 40, not 39"):
        train_model(small(VAE), images.take(range(39)), **SHORT, out=tmp_path)
    with pytest.raises(InputError, match=r"another config .model"):
        train_model(small(VAE, beta=1.0), images, **SHORT, out=tmp_path)
    with pytest.raises(InputError, match=r"another config .model: model is \"vae\", not \"qlae\""):
        train_model(small(QLAE), images, **SHORT, out=tmp_path)


def test_two_trainings_at_once_in_one_folder_are_not_mixed(images, tmp_path):
    refused = []

    def start_another(moment):
        if moment.step == 5:
            with pytest.raises(InputError, match="another process is using .*run; wait until it has finished"):
                train_model(small(), images, **SHORT, out=tmp_path / "run")
            refused.append(moment.step)

    run = train_model(small(), images, **SHORT, out=tmp_path / "run", progress=start_another)
    assert refused == [5]
    assert [line["step"] for line in run.metrics()] == [1, 12, 12]
    assert train_model(small(), images, **SHORT, out=tmp_path / "run").outcome == run.outcome


@pytest.mark.parametrize("kept", [0, 1])
def test_a_log_that_does_not_say_how_a_finished_training_ended_is_refused(kept, images, tmp_path):
    first = train_model(small(), images, **SHORT, out=tmp_path)
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:kept]))
    with pytest.raises(
        InputError, match=r"metrics.jsonl has no outcome of the training.*; remove weights.saf.* and checkpoint"
    ):
        train_model(small(), images, **SHORT, out=tmp_path)
    (tmp_path / "weights.safetensors").unlink()
    (tmp_path / "checkpoint.safetensors").unlink()
    again = train_model(small(), images, **SHORT, out=tmp_path)
    same(first, again)
    assert [line["step"] for line in again.metrics()] == [1, 12, 12]


def test_what_was_stopped_is_taken_up(images, tmp_path):
    whole = train_model(small(VAE), images, **SHORT, out=tmp_path / "whole")
    asked = iter(range(1000))
    with pytest.raises(KeyboardInterrupt):
        train_model(small(VAE), images, **SHORT, out=tmp_path / "cut", stop=lambda: next(asked) == 20)
    cut = open_run(tmp_path / "cut")
    assert not cut.finished
    assert (cut.folder / "checkpoint.safetensors").exists()
    with pytest.raises(InputError, match=r"there is no .*weights.safetensors; the training may not be finished"):
        load_model(cut)
    same(whole, train_model(small(VAE), images, **SHORT, out=tmp_path / "cut"))
    assert numbers(whole) == numbers(cut)


def test_a_training_that_died_before_its_first_checkpoint_is_logged_once(images, tmp_path):
    def die(moment):
        if moment.step == 3:
            raise MemoryError

    with pytest.raises(MemoryError):
        train_model(small(), images, **SHORT, out=tmp_path / "run", progress=die)
    assert [line["step"] for line in open_run(tmp_path / "run").metrics()] == [1]
    run = train_model(small(), images, **SHORT, out=tmp_path / "run")
    assert [line["step"] for line in run.metrics()] == [1, 12, 12]


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (
            torch.linspace(0, 255, 256).expand(3, 1, 16, 256)[..., ::16],
            "must lie in .*; got .0, 240.; rescale",
        ),
        (torch.full((3, 1, 16, 16), -0.1), "must lie in .*; got .-0.1, -0.1."),
        (torch.full((3, 1, 16, 16), float("nan")), "images must be finite; some values are NaN or infinite"),
        (torch.zeros(0, 1, 16, 16), "data must have at least one of its images; got none"),
        (torch.zeros(3, 1, 16, 16, dtype=torch.int64), "images must be uint8, or floats in .*; got int64"),
        (np.zeros((3, 1, 16, 16), dtype=complex), "images must be uint8, or floats in .*; got complex128"),
        (np.zeros((3, 1, 16, 16), dtype=object), "images must be numbers: "),
        (np.zeros((0, 4)), "data must have at least one of its rows; got none"),
        (np.full((5, 4), np.inf), "rows must be finite; some values are NaN or infinite"),
    ],
)
def test_pixels_that_are_none_are_refused_before_anything_is_written(pixels, message, tmp_path):
    with pytest.raises(InputError, match=message):
        train_model(small(), pixels, **SHORT, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_images_that_are_turned_round_or_may_only_be_read_are_taken_as_they_are(images, tmp_path):
    turned = images.images.flip(0).numpy()[::-1]
    fixed = images.images.numpy().copy()
    fixed.flags.writeable = False
    first = train_model(small(), images.images, **SHORT)
    same(first, train_model(small(), turned, **SHORT))
    same(first, train_model(small(), fixed, **SHORT))
    assert not fixed.flags.writeable


def test_kill_minus_nine_in_the_middle_changes_nothing(images, tmp_path):
    how = {"steps": 30, "batch": 16, "device": "cpu", "seed": 2}
    settings = Training(
        steps=30, optimiser="adamw", clip_value=1.0, log_every=500, checkpoint_seconds=0, deterministic=True
    )
    script = f"""
        import os, signal
        from congruence.experiments.data import sprites
        from congruence.experiments.models import VAE
        from congruence.experiments.training import Training, train_model
        def kill(moment):
            if moment.step == 19:
                os.kill(os.getpid(), signal.SIGKILL)
        train_model(VAE(3, net="small", shape=(1, 16, 16)), sprites(40, side=16, device="cpu"), {settings!r}, **{how!r},
              out={str(tmp_path / "killed")!r}, progress=kill)
    """
    environment = os.environ | {"OMP_NUM_THREADS": "2"}  # deterministic takes one, whatever is said
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    seen = []
    whole = train_model(small(VAE), images, settings, **how, out=tmp_path / "whole")
    resumed = train_model(small(VAE), images, settings, **how, out=tmp_path / "killed", progress=seen.append)
    assert seen[0].step == 19  # after the last checkpoint
    same(whole, resumed)
    assert numbers(whole) == numbers(resumed)
    assert_array_equal(whole.latents().values, resumed.latents().values)


def test_without_a_folder_it_is_a_temporary_one_that_goes_with_the_result(images):
    run = train_model(small(), images, **SHORT)
    folder = run.folder
    assert run.latents().n == 40
    del run
    gc.collect()
    assert not folder.exists()


def test_a_temporary_folder_does_not_outlast_a_training_that_fails(images, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        train_model(small(), images, **SHORT, stop=lambda: True)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [AutoEncoder, VQVAE, QLAE])
def test_a_model_comes_back_from_its_folder(kind, images, tmp_path):
    run = train_model(small(kind, seed=4), images, **SHORT, out=tmp_path)
    model = load_model(tmp_path)
    assert type(model) is kind
    assert not model.training
    assert run.config["discrete_codes"] is (kind is not AutoEncoder)
    with torch.no_grad():
        codes = model.evaluated(images.images).numpy()
        assert_array_equal(model.decode(model.encode(images.images)), run.model.decode(run.model.encode(images.images)))
    assert_allclose(run.latents().values, codes, atol=1e-6)


def test_images_alone_can_be_trained_on(images, tmp_path):
    run = train_model(small(), images.images, **SHORT, out=tmp_path)
    assert run.latents().metadata == {}
    floats = images.images.float() / 255
    same(run, train_model(small(), [floats.numpy()], **SHORT))


def test_the_seed_decides_and_other_trainings_in_the_process_do_not(images):
    first = train_model(small(VAE), images, **SHORT, seed=1)
    train_model(small(VAE), images, **SHORT, seed=2)
    same(first, train_model(small(VAE), images, **SHORT, seed=1))
    with pytest.raises(AssertionError):
        same(first, train_model(small(VAE), images, **SHORT, seed=2))


def test_a_training_that_diverges_says_so_and_has_the_last_good_model(images, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = train_model(small(), images, **SHORT, learning_rate=1e30, out=tmp_path)
    assert "the loss or its gradient was NaN or infinite" in str(caught[0].message)
    assert run.outcome.ended == "diverged"
    assert run.metrics()[-1]["ended"] == "diverged"
    assert all(np.isfinite(array).all() for array in run.weights().values())
    assert train_model(small(), images, **SHORT, learning_rate=1e30, out=tmp_path).outcome.ended == "diverged"


def test_the_rows_that_are_evaluated_are_the_same_for_every_run_and_spread_over_the_data():
    assert_array_equal(evaluated_rows(5), range(5))
    rows = evaluated_rows(480_000)
    assert len(rows) == len(set(rows)) == 10_000
    assert_array_equal(rows, evaluated_rows(480_000))
    assert_allclose(np.histogram(rows, 10, (0, 480_000))[0], 1000, atol=150)


def test_psnr_is_the_mean_over_images_of_minus_ten_log_ten_of_the_error():
    class Given(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def encode(self, x):
            return x

        def decode(self, codes):
            return codes.float() / 255 + torch.tensor([0.1, 0.01])[:, None, None, None]

    images = torch.zeros((2, 1, 4, 4), dtype=torch.uint8)
    assert mean_psnr(Given(), images) == pytest.approx((20 + 40) / 2, abs=1e-4)


def test_what_cannot_be_trained_is_refused(images):
    with pytest.raises(InputError, match="must have the methods loss, encode and decode; Linear has no loss; "):
        train_model(torch.nn.Linear(2, 2), images, steps=1)
    with pytest.raises(InputError, match=r"the model takes inputs of shape \(1, 16, 16\); those of rows have \(2,\)"):
        train_model(small(), np.zeros((3, 2)), steps=1)
    with pytest.raises(InputError, match="data must be FactorImages, FactorRows, images of shape"):
        train_model(small(), np.zeros((3, 2, 2)), steps=1)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        ({"model": "ae", "net": "small", "shape": [1, 64, 64]}, {"latents": 10**9}),
        ({"model": "vqvae", "net": "small", "shape": [1, 64, 64]}, {"values": 10**8}),
        ({"model": "vade", "clusters": 2, "shape": [3]}, {"clusters": 10**8}),
        ({"model": "mfcvae", "clusters": 2, "facets": 2, "shape": [3]}, {"hidden": [10**9, 10]}),
        ({"model": "mixvae", "shape": [3]}, {"latents": 10**5}),
        ({"model": "mixvae", "shape": [3]}, {"shape": [10**8]}),
    ],
)
def test_a_model_far_larger_than_its_weights_is_not_built(model, change, tmp_path):
    made = build_model({"latents": 4, **model})
    run = start_run(tmp_path / "run", {"model": made.config() | change})
    run.write_weights(made.state_dict())
    with pytest.raises(InputError, match="config asks for a model with far more|the covariance of 100000 latents"):
        load_model(run)
