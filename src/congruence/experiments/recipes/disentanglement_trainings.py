"""The trainings of `disentanglement`: which there are, and what is kept of each at some of its steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.decoder.stretch import bilipschitz
from congruence.experiments.data import FactorImages
from congruence.experiments.data.registry import find_image_set, load_images
from congruence.experiments.models.catalogue import build_model, published_settings, published_weight_decay
from congruence.experiments.models.reconstructions import apply_in_batches, evaluated_rows, mean_psnr, traverse_latents
from congruence.experiments.processes import stop_requested
from congruence.experiments.runs import open_run
from congruence.experiments.training._train_model import train_model
from congruence.experiments.training.settings import Training
from congruence.ica.latents import latent_components
from congruence.parts import Arrays, Parts
from congruence.rows.devices import full_precision

OTHERS = ("vae", "tcvae", "bioae", "vqvae", "qlae")
DISCRETE = ("vqvae", "qlae")
VQ_DECAY = 0.01  # of "VQ-VAE with weight decay", as published
UNMIXED = {"ica": "centred", "asis": "as is", "white": "whitened"}  # ways to components, see `latent_components`
RUNS = "runs"  # the folder of run folders, beside the parts
SHOWN_SIDE, SHOWN_STEPS = 32, 5  # pixels, and pictures of each latent
PICTURED = 1000  # images whose reconstruction is judged at each look
LOOK_EVERY = 50  # steps between looks at the loss on a GPU, where looking takes time


@dataclass(frozen=True)
class Setting:
    """A model with its weight decay, trained with several seeds."""

    model: str
    decay: float
    seeds: int

    @property
    def key(self) -> str:
        """A name for files."""
        return f"{self.model}-wd{self.decay:g}"

    @property
    def is_discrete(self) -> bool:
        """Whether codes take few values, so that ICA means nothing."""
        return self.model in DISCRETE


@dataclass(frozen=True)
class Bench:
    """All that the trainings on one data set depend on, as plain values that go to another process."""

    data: str
    parameters: Mapping[str, Any]
    seed: int
    device: str
    parts: Parts

    @property
    def settings(self) -> list[Setting]:
        """What is trained: the autoencoder with each weight decay of the grid, the others with the published one."""
        found = [Setting("ae", decay, self.parameters["seeds"]) for decay in self.parameters["decays"]]
        more = self.parameters["other_seeds"]
        for model in OTHERS:
            found.append(Setting(model, published_weight_decay(model, self.data), more))
            if model == "vqvae":
                found.append(Setting(model, VQ_DECAY, more))
        return found

    @property
    def trainings(self) -> list[tuple[Setting, int]]:
        """Every training: its setting, and the number of its seed. The first seeds come first."""
        found = [(setting, number) for setting in self.settings for number in range(setting.seeds)]
        return sorted(found, key=lambda one: one[1])

    @property
    def steps(self) -> list[int]:
        """The steps at which a training is looked at; the last is the last."""
        last, looks = self.parameters["steps"], self.parameters["looks"]
        return [last * (i + 1) // looks for i in range(looks)]

    def name(self, setting: Setting, number: int) -> str:
        """The name of a training."""
        return f"{self.data}-{setting.key}-{number}"

    def images(self) -> FactorImages:
        """The images of the data set."""
        return _images(self.data, self.parameters["rows"], self.parameters["side"], self.device)

    def rows(self) -> Array:
        """The rows that all models are evaluated on."""
        return evaluated_rows(len(self.images()), self.parameters["evaluated"])

    def factors(self) -> tuple[dict[str, Array], dict[str, str]]:
        """The true factors of these rows by name, and the kind of each; once they are a part, without any image."""
        grid = find_image_set(self.data).grid
        levels = self.parts.get(f"{self.data}-factors", lambda: {"levels": self.images().factors[self.rows()]})[
            "levels"
        ]
        return dict(zip(grid.names, levels.T, strict=True)), dict(zip(grid.names, grid.kinds, strict=True))


@lru_cache(maxsize=1)
def _images(name: str, n: int | None, side: int | None, device: str) -> FactorImages:
    chosen = find_image_set(name)
    if chosen.renderer is not None and side is not None:
        return chosen.renderer.make(n, seed=0, continuous=False, side=side, device=device)
    most = None if n is None else min(n, chosen.count)
    return load_images(name, most, device=device)


def is_trained(bench: Bench, setting: Setting, number: int) -> bool:
    """Whether all looks at a training are there."""
    return all(bench.parts.find(_look_name(bench, setting, number, step)) is not None for step in bench.steps)


def looks(
    bench: Bench, setting: Setting, number: int, tell: Callable[[int, int, float], None] | None = None
) -> list[Arrays]:
    """What was seen of a training at each of the bench's steps; trained now, or further, where that is not there.

    Each look holds "codes" (rows, latents) and "psnr"; of models whose codes are numbers also "singular" (points,
    latents), the singular values of the decoder's Jacobian; of autoencoders the components of the codes, and of the
    first of them "before" and "after", pictures with one latent or one component changed.
    """
    found = [bench.parts.find(_look_name(bench, setting, number, step)) for step in bench.steps]
    if any(one is None for one in found):
        _train(bench, setting, number, tell)
        found = [bench.parts.find(_look_name(bench, setting, number, step)) for step in bench.steps]
    return [one for one in found if one is not None]


def _look_name(bench: Bench, setting: Setting, number: int, step: int) -> str:
    return f"{bench.name(setting, number)}-step{step}"


def _train(bench: Bench, setting: Setting, number: int, tell: Callable[[int, int, float], None] | None) -> None:
    data, folder = bench.images(), bench.parts.folder / RUNS / bench.name(setting, number)
    if folder.exists() and open_run(folder).finished:
        shutil.rmtree(folder)  # what was seen on the way is lost, so it has to be trained again
    model = build_model(_config(bench, setting, number, data))
    pictured = number == 0

    def at(moment: Any) -> None:
        if tell is not None:
            tell(moment.step, moment.steps, moment.loss)
        if moment.step in bench.steps:
            name = _look_name(bench, setting, number, moment.step)
            bench.parts.get(name, partial(_look, model, bench, setting, pictured))

    _forget_compiled(bench.device)
    how = _how(bench, setting, number)
    train_model(model, data, how, out=folder, device=bench.device, progress=at, stop=stop_requested)


def _config(bench: Bench, setting: Setting, number: int, data: FactorImages) -> dict[str, Any]:
    config: dict[str, Any] = {"model": setting.model, **published_settings(setting.model, bench.data)}
    config |= {"net": bench.parameters["net"], "shape": list(data.shape), "seed": _seed(bench, number)}
    return config | ({"dataset_size": len(data)} if setting.model == "tcvae" else {})


def _how(bench: Bench, setting: Setting, number: int) -> Training:
    """The published protocol; on a CPU one thread, so that the same seed gives the same bits."""
    steps, on_cpu = bench.parameters["steps"], bench.device == "cpu"
    return Training(
        steps=steps,
        batch=bench.parameters["batch"],
        optimiser="adamw",
        learning_rate=bench.parameters["learning_rate"],
        weight_decay=setting.decay,
        clip_value=1.0,
        log_every=steps if on_cpu else 500,
        check_every=1 if on_cpu else LOOK_EVERY,
        checkpoint_every=max(1, steps // bench.parameters["looks"]),
        precision="auto",
        engine="auto",
        deterministic=on_cpu,
        seed=_seed(bench, number),
    )


def _seed(bench: Bench, number: int) -> int:
    return 1000 * bench.seed + number


def _look(model: Any, bench: Bench, setting: Setting, pictured: bool) -> Arrays:
    """Measure a model as it is."""
    import torch

    data, rows, device = bench.images(), bench.rows(), next(model.parameters()).device
    model.eval()
    with full_precision():
        codes = apply_in_batches(model.evaluated, data.images[rows], device).numpy()
        found: Arrays = {"codes": codes.astype(np.float32)}
        found["psnr"] = np.asarray(mean_psnr(model, data.images[rows[:PICTURED]]))
        if not setting.is_discrete:
            points = torch.as_tensor(codes[: bench.parameters["points"]], device=device)
            spectra = bilipschitz(model.decode, points, method="exact").spectra
            assert spectra is not None
            found["singular"] = spectra
    if setting.model == "ae":
        ways = {name: latent_components(codes, way=way, seed=bench.seed) for name, way in UNMIXED.items()}
        found |= {f"{name}_unmixing": one.unmixing for name, one in ways.items()}
        found |= {f"{name}_mean": one.mean for name, one in ways.items()}
        if pictured:
            found |= _pictures(model, data.images[rows[:1]], codes, ways["ica"])
    model.train()
    return found


def _pictures(model: Any, images: Any, codes: Array, ica: Any) -> Arrays:
    """What each latent changes, "before", and what each component changes, "after": (codes, pictures, *shape)."""
    shown = {"before": traverse_latents(model, images, codes, steps=SHOWN_STEPS)}
    shown["after"] = traverse_latents(model, images, codes, steps=SHOWN_STEPS, components=ica)
    return {when: np.stack([_shrunk(one) for one in pictures.traversals]) for when, pictures in shown.items()}


def _shrunk(images: Array) -> Array:
    """Images (m, channels, height, width), uint8, with sides of at most `SHOWN_SIDE`: means of blocks of pixels."""
    m, channels, height, width = images.shape
    by = max(1, height // SHOWN_SIDE)
    if by == 1 or height % by or width % by:
        return images
    blocks: Float = images.reshape(m, channels, height // by, by, width // by, by).mean((3, 5))
    return np.asarray(blocks.round(), dtype=np.uint8)


def _forget_compiled(device: str) -> None:
    """Drop what torch compiled for the model before: after eight models it would compile no more.

    What was compiled is also on disk, so that the next model of the same kind is ready soon.
    """
    if device != "cpu":
        import torch

        torch.compiler.reset()


def clear(parts: Parts) -> None:
    """Remove all parts and run folders, so that everything is done again."""
    for path in Path(parts.folder).glob("*.safetensors"):
        path.unlink()
    shutil.rmtree(parts.folder / RUNS, ignore_errors=True)
