import subprocess
import sys

import pytest

import congruence.experiments.models
from congruence.errors import InputError
from congruence.experiments.models import build_model, published_settings, published_weight_decay
from congruence.experiments.models.catalogue import DATA, MODELS

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("model", "values"),
    [
        ("vae", {"shapes3d": 3, "mpi3d": 0.1, "falcor3d": 10, "isaac3d": 0.3}),
        ("tcvae", {"shapes3d": 3, "mpi3d": 0.3, "falcor3d": 3, "isaac3d": 1}),
        ("bioae", {"shapes3d": 0.01, "mpi3d": 0.01, "falcor3d": 0.01, "isaac3d": 0.1}),
    ],
)
def test_the_published_weights_of_penalties(model, values):
    name = {"vae": "beta", "tcvae": "tc", "bioae": "activity"}[model]
    assert {data: published_settings(model, data)[name] for data in values} == values


def test_the_published_numbers_of_latents_are_twice_those_of_factors():
    found = {data: published_settings("ae", data) for data in ("shapes3d", "mpi3d", "falcor3d", "isaac3d")}
    assert found == {name: {"latents": 2 * k} for name, k in zip(found, (6, 7, 7, 9), strict=True)}


def test_the_published_weight_decays():
    assert [published_weight_decay("ae", data) for data in ("shapes3d", "mpi3d", "falcor3d")] == [1e-3, 1e-3, 0]
    assert [published_weight_decay("qlae", data) for data in ("shapes3d", "mpi3d", "isaac3d")] == [0.1, 1e-3, 0.1]
    assert [published_weight_decay(model, "shapes3d") for model in ("vae", "tcvae", "vqvae")] == [0, 0, 0]
    assert published_weight_decay("bioae", "falcor3d") == 1e-4


def test_rooms_are_treated_as_shapes3d_and_sprites_as_dsprites():
    for model in MODELS:
        assert published_settings(model, "rooms") == published_settings(model, "shapes3d")
        assert published_weight_decay(model, "rooms") == published_weight_decay(model, "shapes3d")
        assert published_settings(model, "sprites") == published_settings(model, "dsprites")
    assert published_settings("vae", "sprites") == {"latents": 10, "beta": 1.0}


@pytest.mark.parametrize("model", MODELS)
def test_published_settings_are_arguments_of_the_model(model):
    for data in DATA:
        settings = published_settings(model, data)
        size = {"dataset_size": 100} if model == "tcvae" else {}
        config = build_model({"model": model, "net": "small", "shape": (1, 8, 8)} | settings | size).config()
        assert config.items() >= settings.items()


@pytest.mark.parametrize("model", MODELS)
def test_the_defaults_of_a_model_are_those_published_for_shapes3d(model):
    size = {"dataset_size": 100} if model == "tcvae" else {}
    config = build_model({"model": model, "net": "small"} | size).config()
    assert config.items() >= published_settings(model, "shapes3d").items()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model": "gan"},
            "must be one of ae, vae, tcvae, bioae, vqvae, qlae, vade, mfcvae, mixvae, ivae; got 'gan'",
        ),
        ({"latents": 3}, "ivae; got None"),
        ({"model": "ae", "net": "small", "depth": 3}, "cannot build .* from its config: .*'depth'"),
        ({"model": "ae", "net": "small", "shape": ["a", 16, 16]}, "cannot build .* from its config: .*'a'"),
        ({"model": "tcvae", "net": "small"}, "cannot build .* from its config: .*'dataset_size'"),
    ],
)
def test_a_config_of_something_else_is_refused(config, message):
    with pytest.raises(InputError, match=message):
        build_model(config)


def test_names_that_are_not_there_are_refused():
    with pytest.raises(InputError, match="model must be one of 'ae', .*; got 'gan'"):
        published_settings("gan", "rooms")
    with pytest.raises(InputError, match="data must be one of 'shapes3d', .*; got 'faces'"):
        published_weight_decay("ae", "faces")
    with pytest.raises(AttributeError, match="no attribute 'GAN'"):
        _ = congruence.experiments.models.GAN


def test_the_room_is_light_and_lists_its_names():
    assert set(congruence.experiments.models.__all__) <= set(dir(congruence.experiments.models))
    room = "congruence.experiments.models"
    code = f"import sys, {room}; print('torch' in sys.modules); from {room} import VAE"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_torch_the_room_says_how_to_get_it():
    code = "import sys; sys.modules['torch'] = None; from congruence.experiments.models import VAE"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'congruence[torch]'" in done.stderr
