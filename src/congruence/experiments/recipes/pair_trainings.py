"""The trainings of `model-pairs`: which there are, and what is kept of each at some of its steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.activations.layers import activations
from congruence.activations.pooling import Pooling
from congruence.arrays import Array, Float
from congruence.errors import InputError
from congruence.experiments.data.digits import SIDE, mnist
from congruence.experiments.data.library_text import library_text
from congruence.experiments.data.room_images import rooms
from congruence.experiments.processes import stop_requested
from congruence.experiments.recipes.pair_spectra import decoder_spectra, layer_spectra
from congruence.experiments.runs import CHECKPOINT, start_run
from congruence.experiments.training.loop import optimise
from congruence.experiments.training.settings import Training
from congruence.parts import Arrays, Parts
from congruence.rows.devices import full_precision

FAMILIES = ("gpt", "wide", "mae", "resnet")  # "wide" is "gpt" with another width
RUNS, MODELS = "runs", "models"  # folders beside the parts: of trainings under way, and of nets that can be opened
CHUNK = 250  # rows that a model sees at a time when it is looked at
WRITTEN = 500  # rows whose outputs are kept
LOOK_EVERY = 50  # steps between looks at the loss on a GPU, where looking takes time
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 0.05  # of AdamW, the same for all; nothing was searched
FACTOR = "orientation"  # of rooms, that is told where there is no MNIST
Tell = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Bench:
    """All that the trainings depend on, as plain values that go to another process."""

    parameters: Mapping[str, Any]
    seed: int
    device: str
    parts: Parts

    def seeds(self, family: str) -> int:
        """How many trainings a family has."""
        return int(self.parameters[family]["seeds"])

    @property
    def trainings(self) -> list[tuple[str, int]]:
        """Every training: its family and the number of its seed."""
        return [(family, number) for family in FAMILIES for number in range(self.seeds(family))]

    def steps(self, family: str) -> list[int]:
        """The steps at which a training is looked at: before the first, some on the way, and the last."""
        last, looks = self.parameters[family]["steps"], self.parameters["looks"]
        every = 1 if self.device == "cpu" else LOOK_EVERY
        on_the_way = [last // 4**k // every * every for k in range(looks - 1, 0, -1)]
        return sorted({0, *(step for step in on_the_way if step), last})

    def data(self, family: str) -> Arrays:
        """What a family is trained on, and rows held out: "train" and "test".

        With "labels" and "test_labels" for a ResNet, and with "clusters", the files of the rows held out, for text.
        """
        kind = {"gpt": "text", "wide": "text", "mae": "rooms", "resnet": self.parameters["data"]}[family]
        name = f"data-{kind}-{family}" if kind == "rooms" else f"data-{kind}"
        return self.parts.get(name, partial(_load, self, kind, family))


def _load(bench: Bench, kind: str, family: str) -> Arrays:
    parameters, some = bench.parameters, bench.parameters["rows"]
    if kind == "text":
        text = library_text(parameters["vocabulary"], parameters["length"], most_bytes=parameters["text_bytes"])
        about = f"Python {text.python}, {text.files[0]} files trained on and {text.files[1]} held out, {text.digest}"
        chosen = _chosen(len(text.held_out), some, bench.seed)
        found = {"train": text.train, "test": text.held_out[chosen], "clusters": text.held_out_files[chosen]}
        return found | {"vocabulary": np.asarray(text.vocabulary), "about": _bytes(about)}
    if kind == "mnist":
        try:
            (x, y), (test, labels) = mnist("train"), mnist("test")
        except InputError as error:
            raise InputError(f"{error}; for this recipe --data rooms takes pictures that are drawn here") from error
        chosen = _chosen(len(x), parameters["images"], bench.seed)
        found = {"train": _grey(x[chosen]), "labels": y[chosen], "about": _bytes("MNIST")}
        chosen = _chosen(len(test), some, bench.seed)
        return found | {"test": _grey(test[chosen]), "test_labels": labels[chosen]}
    side = parameters["side"] if family == "mae" else SIDE
    drawn = rooms(parameters["images"] + some, seed=bench.seed, side=side, device=bench.device)
    images, labels = np.asarray(drawn.images.cpu().numpy()), np.asarray(drawn.columns[FACTOR], np.int64)
    found = {"train": images[some:], "test": images[:some], "about": _bytes("rooms, drawn here")}
    return found | ({"labels": labels[some:], "test_labels": labels[:some]} if family == "resnet" else {})


def _chosen(n: int, most: int, seed: int) -> Array:
    """Some rows, in no order: the first of them, which dearer things are measured at, come from everywhere."""
    return np.random.default_rng([seed, n]).permutation(n)[:most]


def _seed(bench: Bench, family: str, number: int) -> int:
    """Of first weights and of the order of batches, which no two trainings share."""
    return 1000 * bench.seed + number + (500 if family == "wide" else 0)


def _grey(rows: Float) -> Array:
    return np.round(255 * rows).astype(np.uint8).reshape(-1, 1, SIDE, SIDE)


def _bytes(text: str) -> Array:
    return np.frombuffer(text.encode(), np.uint8)


def told_of(data: Arrays) -> str:
    """What a data set says of itself."""
    return bytes(data["about"]).decode()


def build(bench: Bench, family: str, number: int) -> Any:
    """A model with its first weights."""
    from congruence.experiments.models.transformers_models import ImageClasses, MaskedPatches, NextToken

    data, size, seed = bench.data(family), bench.parameters[family], _seed(bench, family, number)
    if family in ("gpt", "wide"):
        some = {name: size[name] for name in ("width", "depth", "heads")}
        return NextToken(vocabulary=int(data["vocabulary"]), length=data["train"].shape[1], seed=seed, **some)
    channels = data["train"].shape[1]
    if family == "resnet":
        return ImageClasses(channels=channels, classes=int(data["labels"].max()) + 1, width=size["width"], seed=seed)
    some = {name: size[name] for name in ("width", "depth", "heads", "patch")}
    return MaskedPatches(side=bench.parameters["side"], channels=channels, seed=seed, **some)


def look_name(family: str, number: int, step: int) -> str:
    """The part of a look."""
    return f"{family}-{number}-step{step}"


def is_trained(bench: Bench, family: str, number: int) -> bool:
    """Whether all looks at a training are there."""
    steps = bench.steps(family)
    return all(bench.parts.find(look_name(family, number, step)) is not None for step in steps)


def looks(bench: Bench, family: str, number: int, tell: Tell | None = None) -> list[Arrays]:
    """What was seen of a training at each of its steps; trained now, or further, where that is not there.

    Each look holds "last" (rows, d), the penultimate layer for rows held out, "outputs" of the first of these and
    "loss" on them. The last look also holds every layer ("layer0", ...), "trained" (rows, d) for rows trained on, the
    head ("weights", "biases") and, of the first seed, singular values of the maps from layers to the penultimate one
    ("spectrum-0", ...).
    """
    names = [look_name(family, number, step) for step in bench.steps(family)]
    if not is_trained(bench, family, number):
        _train(bench, family, number, tell)
    if not is_trained(bench, family, number):  # a look was lost that lies before the checkpoint
        shutil.rmtree(bench.parts.folder / RUNS / f"{family}-{number}", ignore_errors=True)
        _train(bench, family, number, tell)
    return [one for name in names if (one := bench.parts.find(name)) is not None]


def _train(bench: Bench, family: str, number: int, tell: Tell | None) -> None:
    data, model = bench.data(family), build(bench, family, number)
    steps = bench.steps(family)
    how = _how(bench, family, number)
    run = start_run(bench.parts.folder / RUNS / f"{family}-{number}", {"family": family, "number": number})

    def at(step: int, total: int, loss: float) -> None:
        if tell is not None:
            tell(step, total, loss)
        if step in steps:
            name = look_name(family, number, step)
            bench.parts.get(name, partial(_look, model, bench, family, number, last=step == total))

    model.to(bench.device)
    at(0, how.steps or 0, float("nan"))
    batch = [data[name] for name in ("train", "labels") if name in data]
    optimise(model, batch, how, run=run, device=bench.device, progress=at, stop=stop_requested)
    model.save(bench.parts.folder / MODELS / f"{family}-{number}")
    (run.folder / CHECKPOINT).unlink(missing_ok=True)


def _how(bench: Bench, family: str, number: int) -> Training:
    """AdamW with a warm-up and a cosine; on a CPU one thread, so that the same seed gives the same bits."""
    size, on_cpu = bench.parameters[family], bench.device == "cpu"
    return Training(
        steps=size["steps"],
        batch=size["batch"],
        optimiser="adamw",
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        clip=1.0,
        warmup=max(1, size["steps"] // 20),
        cosine=True,
        log_every=max(1, size["steps"] // 10),
        check_every=1 if on_cpu else LOOK_EVERY,
        checkpoint_every=max(1, size["steps"] // 4),
        precision="auto",
        engine="eager" if on_cpu else "graph",
        deterministic=on_cpu,
        seed=_seed(bench, family, number),
    )


def _look(model: Any, bench: Bench, family: str, number: int, *, last: bool) -> Arrays:
    """Measure a model as it is, in full precision."""
    import torch

    data, training = bench.data(family), model.training
    names, written = model.layers, data["test"][:WRITTEN]
    model.eval()
    with torch.no_grad(), full_precision():
        layers = embed(model, data["test"], names if last else names[-1:], bench.seed)
        at = torch.as_tensor(layers[-1][: len(written)], device=next(model.parameters()).device)
        said = [model.outputs(written[part], at[part]).float().cpu().numpy() for part in _chunks(len(written))]
        found: Arrays = {"last": layers[-1], "outputs": np.concatenate(said).astype(np.float16)}
        found["loss"] = np.asarray(_held_out_loss(model, data))
        if last:
            rows = data["train"][_chosen(len(data["train"]), len(data["test"]), bench.seed)]
            found["trained"] = embed(model, rows, names[-1:], bench.seed)[0]
            found |= {f"layer{k}": layer.astype(np.float16) for k, layer in enumerate(layers)}
            if model.head is not None:
                found |= dict(zip(("weights", "biases"), (one.cpu().numpy() for one in model.head), strict=True))
    if last and number == 0:
        found |= _spectra(model, data["test"][: bench.parameters["points"]], bench.seed)
    model.train(training)
    return found


def _spectra(model: Any, points: Array, seed: int) -> Arrays:
    with full_precision():
        spectra = {f"{k}": one for k, one in enumerate(layer_spectra(model, points, seed=seed))}
        if hasattr(model, "paint"):
            spectra["decoder"] = decoder_spectra(model, points, seed=seed)
    found: Arrays = {f"spectrum-{name}": one.values for name, one in spectra.items()}
    return found | {f"directions-{name}": np.asarray(one.directions) for name, one in spectra.items()}


def embed(model: Any, rows: Array, names: tuple[str, ...], seed: int) -> list[Float]:
    """What layers give for rows, pooled as `congruence extract` does, each (n, d) float32."""
    device, pooling = str(next(model.parameters()).device), Pooling(model.pool, model.skip, seed)
    found: list[list[Float]] = [[] for _ in names]
    with model.whole():
        for part in _chunks(len(rows)):
            caught = activations(model.net, model.inputs(rows[part]), names, pooling, start=part.start, device=device)
            for values, name in zip(found, names, strict=True):
                values.append(caught[name].values)
    return [np.concatenate(values) for values in found]


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))


def _held_out_loss(model: Any, data: Arrays) -> float:
    import torch

    device = next(model.parameters()).device
    batch = [data[name][:WRITTEN] for name in ("test", "test_labels") if name in data]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # a masked autoencoder draws
        torch.manual_seed(0)
        return float(model.loss(*(torch.as_tensor(part, device=device) for part in batch)))


def clear(parts: Parts) -> None:
    """Remove all parts, run folders and nets, so that everything is done again."""
    for path in Path(parts.folder).glob("*.safetensors"):
        path.unlink()
    for name in (RUNS, MODELS):
        shutil.rmtree(parts.folder / name, ignore_errors=True)
