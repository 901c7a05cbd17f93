"""Trainings on a GPU: the same again, the same when resumed, the same as a graph, and at home on a CPU."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


from congruence.experiments.data import rooms  # noqa: E402
from congruence.experiments.models import VAE, AutoEncoder  # noqa: E402
from congruence.experiments.training import Training, load_model, train_model  # noqa: E402
from congruence.experiments.training._step import (  # noqa: E402
    _clip_and_step,
    _compile_update,
    make_optimiser,
    set_rate,
)
from congruence.experiments.training.ensemble import Member, train_ensemble  # noqa: E402

BASE = {"optimiser": "adamw", "clip_value": 1.0, "weight_decay": 0.1, "log_every": 20, "check_every": 10}


@pytest.fixture(scope="module")
def images():
    return rooms(1000, device="cuda")


def trained(images, kind=VAE, out=None, stop=None, **settings):
    how = Training(**BASE | {"steps": 40, "deterministic": True, "engine": "graph", "precision": "bfloat16"} | settings)
    return train_model(kind(6), images, how, out=out, stop=stop, device="cuda")


def same(one, other):
    one, other = one.weights(), other.weights()
    for name in one:
        assert_array_equal(one[name], other[name], err_msg=name)


def test_the_same_seed_gives_the_same_weights_and_what_was_stopped_goes_on_exactly(images, tmp_path):
    whole = trained(images)
    same(whole, trained(images))
    asked = iter(range(10**6))
    with pytest.raises(KeyboardInterrupt):
        trained(images, out=tmp_path / "cut", stop=lambda: next(asked) == 40)  # in the middle of an epoch
    same(whole, trained(images, out=tmp_path / "cut"))


def test_a_graph_does_what_eager_steps_do_also_where_the_last_batch_is_smaller(images):
    assert len(images) % 128
    same(*(trained(images, engine=engine, precision="float32") for engine in ("eager", "graph")))


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")  # of torch 2.11, which compiling it calls itself
def test_a_compiled_graph_learns_the_same(images):
    plain = trained(images, AutoEncoder, engine="eager", precision="float32", deterministic=False)
    fast = trained(images, AutoEncoder, engine="compiled graph", deterministic=False)
    assert_allclose(fast.outcome.loss, plain.outcome.loss, rtol=0.02)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")
def test_a_compiled_loss_has_the_gradients_of_a_plain_one(images):
    # In float64: at first the gradients of early layers are so fine a balance that float32 has two to three digits.
    model = AutoEncoder(6, seed=0).to("cuda", torch.float64)
    found = []
    for loss in (model.loss, torch.compile(model.loss)):
        model.zero_grad()
        loss(images.images[:8])["loss"].backward()
        found.append({name: weight.grad.clone() for name, weight in model.named_parameters()})
    for name, plain in found[0].items():
        assert (found[1][name] - plain).norm() <= 1e-8 * plain.norm(), name


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")
@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_a_compiled_move_is_the_plain_one(optimiser):
    ends = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(64, 64).to("cuda")
        how = Training(optimiser=optimiser, weight_decay=0.1, clip_value=0.01, steps=1)
        made = make_optimiser(model, how, on_device=True, compiled=compiled)
        plain = partial(_clip_and_step, made, list(model.parameters()), how.clip_value)
        moves = [plain, *[_compile_update(made, list(model.parameters()), how.clip_value) if compiled else plain] * 5]
        for k, one in enumerate(moves):
            made.zero_grad()
            set_rate(made, 1e-3 * (k + 1))
            model(torch.ones(8, 64, device="cuda") * (k + 1)).square().mean().backward()
            one()
        ends.append([weight.detach().clone() for weight in model.parameters()])
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_model_trained_on_a_gpu_is_the_same_on_a_cpu(images, tmp_path):
    run = trained(images, out=tmp_path)
    model = load_model(tmp_path)
    with torch.no_grad():
        codes = model.encode(images.images[:64].cpu()).numpy()
    assert_allclose(codes, run.latents().values[:64], atol=1e-4)


def test_an_ensemble_ends_where_it_does_on_a_cpu():
    x = np.random.default_rng(0).normal(size=(400, 20)).astype(np.float32)
    members = [Member(leak, seed) for leak in (0.2, 1.0) for seed in (0, 1, 2)]
    how = {"widths": (20, 12, 8, 3), "epochs": 10, "batch": 100, "patience": None}
    here, there = (train_ensemble(x, members, device=device, **how) for device in ("cpu", "cuda"))
    assert_allclose(there.losses, here.losses, rtol=1e-4)
    for weight, other in zip(there.weights, here.weights, strict=True):
        assert_allclose(weight, other, atol=2e-3)
        square = weight.transpose(0, 2, 1) @ weight
        square = square if weight.shape[1] >= weight.shape[2] else weight @ weight.transpose(0, 2, 1)
        assert_allclose(square, np.broadcast_to(np.eye(square.shape[-1]), square.shape), atol=1e-5)
    assert_allclose(there.metric(0, there.encode(x)[0]), here.metric(0, there.encode(x)[0]), atol=1e-2)
