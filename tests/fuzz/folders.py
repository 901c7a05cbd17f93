"""Valid folders and saved files of every kind, and how each is read: runs, models, maps, results, records, priors."""

import json
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import congruence
from congruence.align import save_baseline
from congruence.experiments.recipes import verify
from congruence.experiments.recipes._reproduce import reproduce
from congruence.experiments.runs import open_run
from congruence.parts import Manifest, Parts, changed_files

ROWS = np.random.default_rng(0).laplace(size=(60, 3))
STATISTICAL = "statistical-versus-structural"


def _train(path: Path) -> None:
    from congruence.experiments.training import train

    train("vade", ROWS.astype(np.float32), path.parent, steps=2, batch=20, latents=2, clusters=2, device="cpu")
    (path.parent / "vade-0").rename(path)


def _open_run(path: Path) -> None:
    from congruence.experiments.training import load_model

    run = open_run(path)
    run.environment(), run.metrics(), run.latents(), run.draws(), run.examples()
    load_model(run)


def _resume(path: Path) -> None:
    from congruence.experiments.training._checkpoints import read_checkpoint

    run = open_run(path)
    changed_files(path)
    read_checkpoint(run, {**run.config})


def _net(path: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    transformers.GPTNeoXModel(transformers.GPTNeoXConfig(vocab_size=9, **size)).save_pretrained(path)


def _open_net(path: Path) -> None:
    from congruence.activations.pretrained import load_pretrained

    load_pretrained(path)


def _reproduce(path: Path) -> None:
    reproduce(STATISTICAL, path, scale="smoke", device="cpu")


def _prior(path: Path) -> None:
    parts = {"weights": np.ones(4) / 4, "means": np.arange(8.0).reshape(4, 2), "covariances": np.stack([np.eye(2)] * 4)}
    if path.suffix == ".npz":
        np.savez(path, **parts)
    else:
        path.write_text(json.dumps({name: part.tolist() for name, part in parts.items()}))


def _open_prior(path: Path) -> None:
    from congruence.experiments.models.catalogue import _read_prior
    from congruence.mixture.priors import as_mixture

    as_mixture(path) if path.suffix == ".npz" else None
    _read_prior(path)


def _record(path: Path) -> None:
    path.mkdir()
    (path / "a.txt").write_text("a")
    record = Manifest(path, {"n": 3})
    record.save()
    record.add("a.txt")


def _parts(path: Path) -> None:
    path.mkdir()
    Parts(path, {"n": 3}).put("first", {"x": ROWS, "k": np.arange(3)})


READERS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "map.safetensors": (lambda path: congruence.fit_map(ROWS, ROWS @ ROWS[:3]).save(path), congruence.load),
    "translator.safetensors": (lambda path: congruence.translate(ROWS, ROWS[:, ::-1]).save(path), congruence.load),
    "ica.safetensors": (lambda path: congruence.ICA(random_state=0).fit(ROWS).save(path), congruence.load),
    "baseline.safetensors": (lambda path: save_baseline(ROWS, path), congruence.load),
    "record": (_record, changed_files),
    "parts": (_parts, lambda path: Parts(path, {"n": 3}).find("first")),
    "prior.npz": (_prior, _open_prior),
    "prior.json": (_prior, _open_prior),
    "result": (_reproduce, verify),
}
if find_spec("torch"):
    READERS |= {"run": (_train, _open_run), "resumed": (_train, _resume)}
if find_spec("transformers"):
    READERS["net"] = (_net, _open_net)


def make_folder(name: str, parent: Path) -> Path:
    """Write the valid file or folder of that name."""
    with warnings.catch_warnings(action="ignore"):
        READERS[name][0](parent / name)
    return parent / name
