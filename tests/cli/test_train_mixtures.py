"""`congruence train` with models whose prior is a mixture, and the commands that take their run folders."""

import json

import numpy as np
import pytest

from congruence.errors import InputError
from congruence.experiments.runs import open_run
from congruence.experiments.training import train

pytest.importorskip("torch")

SHORT = ["--n", "60", "--steps", "2", "--batch", "20", "--device", "cpu", "--deterministic"]


@pytest.mark.parametrize(
    ("model", "data", "options", "found"),
    [
        ("vade", "pinwheel", ["--clusters", "4"], {"clusters": 4, "latents": 2, "shape": [2], "activation": "relu"}),
        ("vade", "pinwheel:5", ["--activation", "leaky_relu"], {"clusters": 5, "activation": "leaky_relu"}),
        ("mfcvae", "random-relu", ["--latents", "4", "--fade", "3"], {"facets": 2, "clusters": 3, "shape": [10]}),
        ("mixvae", "circles", ["--noise", "0.2", "--hidden", "7,8"], {"prior": None, "noise": 0.2, "hidden": [7, 8]}),
        ("ivae", "moons", [], {"classes": 2, "auxiliary": "moon"}),
        ("vade", "sprites", ["--hidden", "8"], {"shape": [1, 64, 64], "latents": 10, "likelihood": "bernoulli"}),
        ("ivae", "sprites", ["--hidden", "8", "--auxiliary", "scale"], {"auxiliary": "scale", "classes": 6}),
    ],
)
def test_models_are_trained_with_their_own_options(model, data, options, found, call):
    quick = ["--pretraining", "1"] if model in ("vade", "mfcvae") else []
    code, out, _ = call("train", model, "--data", data, *SHORT, *quick, *options)
    assert code == 0
    assert f"runs/{model}-0" in out
    run = open_run(f"runs/{model}-0")
    assert found.items() <= run.config["model"].items()
    assert run.latents().values.shape == (60, run.config["model"]["latents"])


@pytest.mark.filterwarnings("ignore::congruence.errors.CollapsedWarning")
def test_a_prior_and_widths_can_be_given_as_data_in_python(tmp_path):
    prior = {"weights": np.ones(2) / 2, "means": np.zeros((2, 3)), "covariances": np.stack([np.eye(3)] * 2)}
    options = {"data": "moons", "n": 60, "steps": 2, "batch": 20, "device": "cpu"}
    (run,) = train("mixvae", out=tmp_path, prior=prior, hidden=(7, 8), **options)
    assert run.config["model"]["prior"]["weights"] == [0.5, 0.5]
    assert run.config["model"]["hidden"] == [7, 8]
    with pytest.raises(InputError, match="prior must have weights, means and covariances; means is missing"):
        train("mixvae", out=tmp_path / "b", prior={"weights": [1.0]}, **options)


def test_a_prior_can_be_given_in_a_file(call, tmp_path):
    prior = {"weights": [0.5, 0.5], "means": [[0.0] * 3, [1.0] * 3], "covariances": [np.eye(3).tolist()] * 2}
    np.savez(tmp_path / "prior.npz", **prior)
    (tmp_path / "prior.json").write_text(json.dumps(prior))
    for path in ("prior.npz", "prior.json"):
        assert call("train", "mixvae", "--data", "moons", *SHORT, "--prior", path, "--out", path[6:])[0] == 0
        config = open_run(f"{path[6:]}/mixvae-0").config["model"]
        assert (config["prior"], config["latents"]) == (prior, 3)


def test_run_folders_can_be_evaluated_and_compared(call):
    assert call("train", "vade", "--data", "pinwheel", *SHORT, "--pretraining", "1", "--seeds", "0,1")[0] == 0
    quick = ["--metrics", "mig", "--resamples", "0", "--nulls", "2", "--no-structural"]
    code, out, err = call("evaluate", "runs/vade-0", *quick, "--report", "r.html")
    assert (code, err) == (0, "")
    assert "2 codes, 3 factors, 60 rows" in out
    code, out, _ = call("compare", "runs/vade-0", "runs/vade-1", "--json", "c.json", "--nulls", "2", "--bootstrap", "0")
    assert code == 0
    with open("c.json") as file:
        assert json.load(file)["numbers"]["runs"][0] == {"name": "vade-0", "n": 60, "d": 2}


def test_what_collapsed_is_told(call):
    long = ["--n", "200", "--steps", "250", "--batch", "100", "--device", "cpu", "--learning-rate", "0.02"]
    code, _, err = call("train", "mixvae", "--data", "moons", *long, "--noise", "50", "--hidden", "8")
    assert code == 0
    assert "note: mixvae-0: posterior collapse: 2 of 2 latents do not depend on the data (0, 1)" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vae", "--data", "pinwheel"], "vae takes images, but pinwheel has rows; models of rows: vade, mfcvae"),
        (["vade", "--data", "pinweel"], "unknown data set 'pinweel'; did you mean pinwheel"),
        (["vade", "--data", "pinwheel", "--facets", "2"], "facets is not an option of vade, which has hidden"),
        (["ivae", "--data", "pinwheel", "--clusters", "2"], "clusters is not an option of ivae, which has hidden"),
        (["vade", "--data", "pinwheel", "--beta", "2"], "beta is not an option of vade"),
        (["ae", "--data", "rooms", "--clusters", "2"], "clusters is not an option of ae, which has none"),
        (["vade", "--data", "pinwheel", "--net", "small"], "net is not an option of vade, whose nets are dense"),
        (["vade", "--data", "pinwheel", "--hidden", "5,x"], "hidden must be widths such as 50,50; got '5,x'"),
        (["vade", "--data", "pinwheel", "--continuous"], "continuous is an option of rooms and sprites"),
        (["ivae", "--data", "pinwheel", "--auxiliary", "along"], "must be a factor of pinwheel with levels (arm)"),
        (["mixvae", "--data", "moons", "--prior", "no.npz"], "from no.npz: No such file"),
        (["mixvae", "--data", "moons", "--prior", "p.json"], "weights, means and covariances; means is missing"),
        (["mixvae", "--data", "moons", "--prior", "cut.npz"], "from cut.npz, it may be damaged"),
        (["mixvae", "--data", "moons", "--prior", "flat.json"], "covariances (J, latents, latents); got (1,), (2,)"),
        (["mixvae", "--data", "moons", "--prior", "words.json"], "prior words.json must have arrays of numbers:"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(arguments, message, call, tmp_path):
    (tmp_path / "p.json").write_text('{"weights": [1]}')
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04")
    (tmp_path / "flat.json").write_text('{"weights": [1], "means": [1, 2], "covariances": [[1]]}')
    (tmp_path / "words.json").write_text('{"weights": ["a"], "means": [[0]], "covariances": [[[1]]]}')
    code, _, err = call("train", *arguments, *SHORT)
    assert code == 2
    assert message in err
