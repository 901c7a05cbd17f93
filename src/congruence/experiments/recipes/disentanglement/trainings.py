"""The trainings of `disentanglement`, and the snapshots that are stored of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.decoder.stretch import bilipschitz
from congruence.experiments.data.factor_data import FactorImages
from congruence.experiments.data.registry import find_image_set, load_images
from congruence.experiments.models.catalogue import build_model, published_settings, published_weight_decay
from congruence.experiments.models.reconstructions import apply_in_batches, evaluated_rows, mean_psnr, traverse_latents
from congruence.experiments.processes import stop_requested
from congruence.experiments.recipes._snapshots import CHECK_EVERY, RUNS, find_snapshots, load_or_train_snapshots
from congruence.experiments.runs import CHECKPOINT
from congruence.experiments.training._train_model import train_model
from congruence.experiments.training.loop import Progress
from congruence.experiments.training.settings import Training
from congruence.ica.latents import latent_components
from congruence.parts import Arrays, Parts
from congruence.rows.devices import full_precision

OTHERS = ("vae", "tcvae", "bioae", "vqvae", "qlae")
VQ_DECAY = 0.01  # of "VQ-VAE with weight decay", as published
ICA_WAYS = {"ica": "centred", "asis": "as is", "white": "whitened"}  # see `latent_components`
SHOWN_SIDE, SHOWN_STEPS = 32, 5  # pixels, and images of each latent
RECONSTRUCTED = 1000  # images whose reconstruction is measured in each snapshot


@dataclass(frozen=True)
class ModelVariant:
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
        """Whether codes take few values, so that ICA does not apply."""
        return self.model in ("vqvae", "qlae")


@dataclass(frozen=True)
class ImageStudy:
    """Everything that the trainings on one data set depend on, as plain values that can go to another process."""

    data: str
    parameters: Mapping[str, Any]
    seed: int
    device: str
    parts: Parts

    @property
    def variants(self) -> list[ModelVariant]:
        """The autoencoder with each weight decay of the grid, and the other models with the published one."""
        grid = [ModelVariant("ae", decay, self.parameters["seeds"]) for decay in self.parameters["decays"]]
        for model in OTHERS:
            decays = [published_weight_decay(model, self.data)] + ([VQ_DECAY] if model == "vqvae" else [])
            grid += [ModelVariant(model, decay, self.parameters["other_seeds"]) for decay in decays]
        return grid

    @property
    def trainings(self) -> list[tuple[ModelVariant, int]]:
        """Every training: its variant, and the number of its seed. The first seeds come first."""
        trainings = [(variant, number) for variant in self.variants for number in range(variant.seeds)]
        return sorted(trainings, key=lambda one: one[1])

    @property
    def steps(self) -> list[int]:
        """The steps of the snapshots; the last is the last of the training."""
        last, count = self.parameters["steps"], self.parameters["looks"]
        return [last * (i + 1) // count for i in range(count)]

    def name(self, variant: ModelVariant, number: int) -> str:
        """The name of a training."""
        return f"{self.data}-{variant.key}-{number}"

    def snapshot_names(self, variant: ModelVariant, number: int) -> list[str]:
        """The names of the parts of a training."""
        return [f"{self.name(variant, number)}-step{step}" for step in self.steps]

    def is_trained(self, variant: ModelVariant, number: int) -> bool:
        """Whether all snapshots of a training are stored."""
        return find_snapshots(self.parts, self.snapshot_names(variant, number)) is not None

    def images(self) -> FactorImages:
        """The images of the data set."""
        return _images(self.data, self.parameters["rows"], self.parameters["side"], self.device)

    def rows(self) -> Array:
        """The rows that all models are evaluated on."""
        return evaluated_rows(len(self.images()), self.parameters["evaluated"])

    def factors(self) -> tuple[dict[str, Array], dict[str, str]]:
        """The true factors of these rows by name, and the kind of each; needs no images once they are a part."""
        grid = find_image_set(self.data).grid
        part = self.parts.get(f"{self.data}-factors", lambda: {"levels": self.images().factors[self.rows()]})
        return dict(zip(grid.names, part["levels"].T, strict=True)), dict(zip(grid.names, grid.kinds, strict=True))


@lru_cache(maxsize=1)
def _images(name: str, n: int | None, side: int | None, device: str) -> FactorImages:
    chosen = find_image_set(name)
    if chosen.renderer is not None and side is not None:
        return chosen.renderer.make(n, seed=0, continuous=False, side=side, device=device)
    return load_images(name, None if n is None else min(n, chosen.count), device=device)


def load_snapshots(
    study: ImageStudy, variant: ModelVariant, number: int, progress: Progress | None = None
) -> list[Arrays]:
    """The snapshots of a training, which is run, or resumed, if one is missing.

    Each holds "codes" (rows, latents) and "psnr"; of QLAE also "continuous", its codes before rounding; of continuous
    models also "singular" and "logits" (points, latents), the singular values of the decoder's Jacobian and of that
    before the sigmoid; of autoencoders the components of the codes, and for the first seed "before" and
    "after", images with one latent or one component changed.
    """
    names, folder = study.snapshot_names(variant, number), study.parts.folder / RUNS / study.name(variant, number)
    return load_or_train_snapshots(study.parts, names, folder, partial(_train, study, variant, number, progress))


def _train(study: ImageStudy, variant: ModelVariant, number: int, progress: Progress | None) -> None:
    """Train with the published protocol; on a CPU with one thread, so that the same seed gives the same bits."""
    data, folder = study.images(), study.parts.folder / RUNS / study.name(variant, number)
    p, seed, on_cpu = study.parameters, 1000 * study.seed + number, study.device == "cpu"
    config: dict[str, Any] = {"model": variant.model, **published_settings(variant.model, study.data)}
    config |= {"net": p["net"], "shape": list(data.shape), "seed": seed}
    model = build_model(config | ({"dataset_size": len(data)} if variant.model == "tcvae" else {}))

    def at(moment: Any) -> None:
        if progress is not None:
            progress(moment.step, moment.steps, moment.loss)
        if moment.step in study.steps:
            name = f"{study.name(variant, number)}-step{moment.step}"
            study.parts.get(name, partial(_measure, model, study, variant, with_images=number == 0))

    if not on_cpu:
        import torch

        torch.compiler.reset()  # after eight models torch would compile no more; compiled code is also kept on disk
    training = Training(
        steps=p["steps"],
        batch=p["batch"],
        optimiser="adamw",
        learning_rate=p["learning_rate"],
        weight_decay=variant.decay,
        clip_value=1.0,
        log_every=p["steps"] if on_cpu else 500,
        check_every=1 if on_cpu else CHECK_EVERY,
        checkpoint_every=max(1, p["steps"] // p["looks"]),
        precision="auto",
        engine="auto",
        deterministic=on_cpu,
        seed=seed,
    )
    train_model(model, data, training, out=folder, device=study.device, progress=at, stop=stop_requested)
    (folder / CHECKPOINT).unlink(missing_ok=True)  # it is larger than all else, and the run is not continued


def _measure(model: Any, study: ImageStudy, variant: ModelVariant, *, with_images: bool) -> Arrays:
    """The arrays of a snapshot."""
    import torch

    data, rows, device = study.images(), study.rows(), next(model.parameters()).device
    model.eval()
    with full_precision():
        codes = apply_in_batches(model.evaluated, data.images[rows], device).numpy()
        arrays: Arrays = {"codes": codes.astype(np.float32)}
        arrays["psnr"] = np.asarray(mean_psnr(model, data.images[rows[:RECONSTRUCTED]]))
        if not variant.is_discrete:
            points = torch.as_tensor(codes[: study.parameters["points"]], device=device)
            for name, decode in (("singular", model.decode), ("logits", model.decoder)):
                spectra = bilipschitz(decode, points, method="exact").spectra
                assert spectra is not None
                arrays[name] = spectra
        if variant.model == "qlae":
            before = apply_in_batches(lambda x: model.encoder(model.pixels(x)), data.images[rows], device)
            arrays["continuous"] = before.numpy().astype(np.float32)
    if variant.model == "ae":
        ways = {name: latent_components(codes, way=way, seed=study.seed) for name, way in ICA_WAYS.items()}
        for name, one in ways.items():
            arrays |= {f"{name}_unmixing": one.unmixing, f"{name}_mean": one.mean}
        if with_images:
            for when, components in (("before", None), ("after", ways["ica"])):
                pictures = traverse_latents(
                    model, data.images[rows[:1]], codes, steps=SHOWN_STEPS, components=components
                )
                arrays[when] = np.stack([_shrink(one) for one in pictures.traversals])  # (codes, images, *shape)
    model.train()
    return arrays


def _shrink(images: Array) -> Array:
    """Images (m, channels, height, width), uint8, with sides of at most `SHOWN_SIDE`: means of blocks of pixels."""
    m, channels, height, width = images.shape
    by = max(1, height // SHOWN_SIDE)
    if by == 1 or height % by or width % by:
        return images
    blocks: Float = images.reshape(m, channels, height // by, by, width // by, by).mean((3, 5))
    return np.asarray(blocks.round(), dtype=np.uint8)
