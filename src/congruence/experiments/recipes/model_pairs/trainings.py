"""The trainings of `model-pairs`, and the snapshots that are stored of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from congruence.activations.pooling import Pooling
from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.experiments.data.digits import SIDE, mnist
from congruence.experiments.data.library_text import document_text, library_text
from congruence.experiments.data.room_images import rooms
from congruence.experiments.processes import stop_requested
from congruence.experiments.recipes._snapshots import CHECK_EVERY, MODELS, RUNS, find_snapshots, load_or_train_snapshots
from congruence.experiments.recipes.model_pairs.spectra import decoder_spectra, layer_spectra
from congruence.experiments.runs import CHECKPOINT, start_run
from congruence.experiments.training.loop import Progress, optimise
from congruence.experiments.training.settings import Training
from congruence.parts import Arrays, Parts
from congruence.rows.devices import full_precision

FAMILIES = ("gpt", "wide", "mae", "large", "resnet")
OTHER_WIDTH = {"gpt": "wide", "mae": "large"}  # the same model with another width
WRITTEN = 500  # rows whose outputs are stored
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 0.05  # of AdamW, the same for all; not tuned
FACTOR = "orientation"  # of rooms, the label of classifiers without MNIST


@dataclass(frozen=True)
class PairStudy:
    """Everything that the trainings depend on, as plain values that can go to another process."""

    parameters: Mapping[str, Any]
    seed: int
    device: str
    parts: Parts

    def seeds(self, family: str) -> int:
        """The number of trainings of a family."""
        return int(self.parameters[family]["seeds"])

    @property
    def trainings(self) -> list[tuple[str, int]]:
        """Every training: its family and the number of its seed."""
        return [(family, number) for family in FAMILIES for number in range(self.seeds(family))]

    def steps(self, family: str) -> list[int]:
        """The steps of the snapshots: before the first step, some in between, and the last."""
        last, looks = self.parameters[family]["steps"], self.parameters["looks"]
        every = 1 if self.device == "cpu" else CHECK_EVERY
        between = [last // 4**k // every * every for k in range(looks - 1, 0, -1)]
        return sorted({0, *(step for step in between if step), last})

    def data(self, family: str) -> Arrays:
        """The "train" and held-out "test" rows of a family.

        With "labels" and "test_labels" for a ResNet, and with "clusters", the files of the held-out rows, for text.
        """
        kinds = {"gpt": "text", "wide": "text", "mae": "rooms", "large": "rooms", "resnet": self.parameters["data"]}
        kind, family = kinds[family], "mae" if family == "large" else family
        name = f"data-{kind}-{family}" if kind == "rooms" else f"data-{kind}"
        return self.parts.get(name, partial(_load, self, kind, family))

    def snapshot_names(self, family: str, number: int) -> list[str]:
        """The names of the parts of a training."""
        return [f"{family}-{number}-step{step}" for step in self.steps(family)]

    def is_trained(self, family: str, number: int) -> bool:
        """Whether all snapshots of a training are stored."""
        return find_snapshots(self.parts, self.snapshot_names(family, number)) is not None

    def training_seed(self, family: str, number: int) -> int:
        """The seed of the initial weights and of the order of batches, different for all trainings."""
        return 1000 * self.seed + number + (500 if family in OTHER_WIDTH.values() else 0)


def _load(study: PairStudy, kind: str, family: str) -> Arrays:
    parameters, some = study.parameters, study.parameters["rows"]
    if kind == "text":
        size = (parameters["vocabulary"], parameters["length"])
        documents = parameters["text"] == "documents"
        text = document_text(*size) if documents else library_text(*size, most_bytes=parameters["text_bytes"])
        what = "pages" if documents else "files"
        tokens = f"{text.train.size / 1e6:.1f} million tokens"
        about = f"{text.origin}: {text.files[0]} {what} ({tokens}) trained on, {text.files[1]} held out, {text.digest}"
        chosen = choose_rows(len(text.held_out), some, study.seed)
        rows = {"train": text.train, "test": text.held_out[chosen], "clusters": text.held_out_files[chosen]}
        return rows | {"vocabulary": np.asarray(text.vocabulary), "about": _bytes(about)}
    if kind == "mnist":
        try:
            (x, y), (test, labels) = mnist("train"), mnist("test")
        except InputError as error:
            raise InputError(f"{error}; --data rooms uses images that are drawn here") from error
        chosen = choose_rows(len(x), parameters["images"], study.seed)
        rows = {"train": _grey(x[chosen]), "labels": y[chosen], "about": _bytes("MNIST")}
        chosen = choose_rows(len(test), some, study.seed)
        return rows | {"test": _grey(test[chosen]), "test_labels": labels[chosen]}
    side = parameters["side"] if family == "mae" else SIDE
    drawn = rooms(parameters["images"] + some, seed=study.seed, side=side, device=study.device)
    images, labels = np.asarray(drawn.images.cpu().numpy()), np.asarray(drawn.columns[FACTOR], np.int64)
    rows = {"train": images[some:], "test": images[:some], "about": _bytes("rooms, drawn here")}
    return rows | ({"labels": labels[some:], "test_labels": labels[:some]} if family == "resnet" else {})


def choose_rows(n: int, most: int, seed: int) -> Array:
    """Some rows in random order: the first of them, which expensive measures use, are a random sample."""
    return np.random.default_rng([seed, n]).permutation(n)[:most]


def _grey(rows: Float) -> Array:
    return np.round(255 * rows).astype(np.uint8).reshape(-1, 1, SIDE, SIDE)


def _bytes(text: str) -> Array:
    return np.frombuffer(text.encode(), np.uint8)


def describe_data(data: Arrays) -> str:
    """The description of a data set."""
    return bytes(data["about"]).decode()


def build_member(study: PairStudy, family: str, number: int) -> Any:
    """A model with its initial weights."""
    from congruence.experiments.models.transformers_models import ImageClasses, MaskedPatches, NextToken

    data, size, seed = study.data(family), study.parameters[family], study.training_seed(family, number)
    if family in ("gpt", "wide"):
        some = {name: size[name] for name in ("width", "depth", "heads")}
        return NextToken(vocabulary=int(data["vocabulary"]), length=data["train"].shape[1], seed=seed, **some)
    channels = data["train"].shape[1]
    if family == "resnet":
        return ImageClasses(channels=channels, classes=int(data["labels"].max()) + 1, width=size["width"], seed=seed)
    some = {name: size[name] for name in ("width", "depth", "heads", "patch")}
    return MaskedPatches(side=study.parameters["side"], channels=channels, seed=seed, **some)


def load_snapshots(study: PairStudy, family: str, number: int, progress: Progress | None = None) -> list[Arrays]:
    """The snapshots of a training, which is run, or resumed, if one is missing.

    Each holds "last" (rows, d), the penultimate layer for held-out rows, "outputs" of the first of these and the
    "loss" on them. The last one also holds every layer ("layer0", ...), "trained" (rows, d) for rows trained on, the
    head ("weights", "biases") and, of the first seed, singular values of the maps from layers to the penultimate one
    ("spectrum-0", ...).
    """
    names, folder = study.snapshot_names(family, number), study.parts.folder / RUNS / f"{family}-{number}"
    return load_or_train_snapshots(study.parts, names, folder, partial(_train, study, family, number, progress))


def _train(study: PairStudy, family: str, number: int, progress: Progress | None) -> None:
    """Train by AdamW with warm-up and cosine; on a CPU with one thread, so that the same seed gives the same bits."""
    data, model, size = study.data(family), build_member(study, family, number), study.parameters[family]
    steps, on_cpu = study.steps(family), study.device == "cpu"
    training = Training(
        steps=size["steps"],
        batch=size["batch"],
        optimiser="adamw",
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        clip=1.0,
        warmup=max(1, size["steps"] // 20),
        cosine=True,
        log_every=max(1, size["steps"] // 10),
        check_every=1 if on_cpu else CHECK_EVERY,
        checkpoint_every=max(1, size["steps"] // 4),
        precision="auto",
        engine="eager" if on_cpu else "graph",
        deterministic=on_cpu,
        seed=study.training_seed(family, number),
    )
    run = start_run(study.parts.folder / RUNS / f"{family}-{number}", {"family": family, "number": number})

    def at(step: int, total: int, loss: float) -> None:
        if progress is not None:
            progress(step, total, loss)
        if step in steps:
            measure = partial(_measure, model, study, family, number, last=step == total)
            study.parts.get(f"{family}-{number}-step{step}", measure)

    model.to(study.device)
    at(0, size["steps"], float("nan"))
    batch = [data[name] for name in ("train", "labels") if name in data]
    optimise(model, batch, training, run=run, device=study.device, progress=at, stop=stop_requested)
    model.save(study.parts.folder / MODELS / f"{family}-{number}")
    (run.folder / CHECKPOINT).unlink(missing_ok=True)


def _measure(model: Any, study: PairStudy, family: str, number: int, *, last: bool) -> Arrays:
    """The arrays of a snapshot, in full precision."""
    import torch

    from congruence.experiments.models.transformers_models import CHUNK

    data, training = study.data(family), model.training
    names, written = model.layers, data["test"][:WRITTEN]
    model.eval()
    with torch.no_grad(), full_precision():
        pooling = Pooling(model.pool, model.skip, study.seed)
        layers = model.embed(data["test"], names if last else names[-1:], pooling)
        at = torch.as_tensor(layers[-1][: len(written)], device=next(model.parameters()).device)
        parts = (slice(start, start + CHUNK) for start in range(0, len(written), CHUNK))
        outputs = [model.outputs(written[part], at[part]).float().cpu().numpy() for part in parts]
        arrays: Arrays = {"last": layers[-1], "outputs": np.concatenate(outputs).astype(np.float16)}
        arrays["loss"] = np.asarray(_held_out_loss(model, data))
        if last:
            rows = data["train"][choose_rows(len(data["train"]), len(data["test"]), study.seed)]
            arrays["trained"] = model.embed(rows, names[-1:], pooling)[0]
            arrays |= {f"layer{k}": layer.astype(np.float16) for k, layer in enumerate(layers)}
            if model.head is not None:
                arrays |= dict(zip(("weights", "biases"), (one.cpu().numpy() for one in model.head), strict=True))
    if last and number == 0:
        points = data["test"][: study.parameters["points"]]
        with full_precision():
            spectra = {f"{k}": one for k, one in enumerate(layer_spectra(model, points, seed=study.seed))}
            if hasattr(model, "paint"):
                spectra["decoder"] = decoder_spectra(model, points, seed=study.seed)
        for name, one in spectra.items():
            arrays |= {f"spectrum-{name}": one.values, f"directions-{name}": np.asarray(one.directions)}
    model.train(training)
    return arrays


def _held_out_loss(model: Any, data: Arrays) -> float:
    import torch

    device = next(model.parameters()).device
    batch = [data[name][:WRITTEN] for name in ("test", "test_labels") if name in data]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # a masked autoencoder draws masks
        torch.manual_seed(0)
        return float(model.loss(*(torch.as_tensor(part, device=device) for part in batch)))
