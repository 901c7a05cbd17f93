"""Training a model of images or rows, and the run folder that it leaves."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.errors import CollapsedWarning, InputError
from congruence.experiments.models.reconstruction import evaluated_rows, mean_psnr, mean_square, through
from congruence.experiments.runs import CHECKPOINT, METRICS, WEIGHTS, Run, start_run
from congruence.experiments.training.checkpoints import fingerprint
from congruence.experiments.training.collapse import posterior_collapse
from congruence.experiments.training.loop import FREE, optimise
from congruence.experiments.training.settings import Trained, Training
from congruence.experiments.training.stored import put_weights
from congruence.files import alone_in, remove_parts
from congruence.rows.devices import full_precision, load_torch, training_device, training_precision

EXAMPLES = 8  # images kept in the run folder, to look at
CHECKED = 10_000  # images or rows whose numbers are looked at at a time
CURE = "fewer latents or clusters, less noise, more steps or another seed would do"


@dataclass(frozen=True)
class TrainedRun(Run):
    """A run folder, with the model that was trained in it and how that went."""

    model: Any
    outcome: Trained


@dataclass(frozen=True)
class Moment:
    """A training under way: `loss` is that of the last step, `psnr` that of the last line of the log (NaN before)."""

    step: int
    steps: int
    loss: float
    psnr: float


def train_model(
    model: Any,
    data: Any,
    how: Training | None = None,
    *,
    steps: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    precision: str | None = None,
    deterministic: bool | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Callable[[Moment], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> TrainedRun:
    """Train a model of images or rows in place, and leave a run folder.

    The protocol is that of Hsu et al. (2023): AdamW with a learning rate of 0.001 and batches of 128; weight decay,
    and gradients cut at 1 element by element, for all weights but biases and codebooks. Loss and PSNR are logged
    after step 1, every 500 steps up to 5,000, and then every 5,000.

    Parameters
    ----------
    model : AutoEncoder, VAE, TCVAE, BioAE, VQVAE, QLAE, MixtureVAE, VaDE, MFCVAE or IVAE
        Or any torch module with `loss`, `encode`, `decode` and `config`. It ends up on `device`. Where it has a method
        `prepare`, that is called before the first step; where it has an `auxiliary`, `loss` and `encode` are given that
        factor of the data beside the rows.
    data : FactorImages, FactorRows, images or rows
        `rooms()` or `pinwheel()`, say; or images alone, uint8 or floats from 0 to 1, shape (n, channels, height,
        width), or rows alone, floats (n, p).
    how : Training, optional
        All settings, instead of the protocol above. Those that are given beside it come first.
    steps : int, optional
        20,000 unless given; published are 200,000.
    precision : {"auto", "float32", "bfloat16"}, optional
        "auto" multiplies in bfloat16 on a GPU that is fast with it. Weights are float32 in any case.
    deterministic : bool, optional
        The same seed gives the same weights, bit for bit, on the same device; on a CPU with one thread.
    seed : int, optional
        Of the order of images and of what the loss draws; the first weights are the model's own matter.
    out : path, optional
        The run folder. Where it holds an interrupted training of the same model, data and settings, that is taken up;
        a finished one is not done again; one of others is refused. Without it the folder is a temporary one, which
        goes when the result does.
    progress : callable, optional
        Called with a `Moment` each time that the loss is looked at.
    stop : callable, optional
        See `congruence.experiments.training.loop.optimise`.

    Returns
    -------
    TrainedRun
        `folder`, `weights()`, `latents()` (codes of up to 10,000 images, the same for every seed, with their
        factors), `metrics()`, `model`, and `outcome`.
    """
    load_torch()
    where = training_device(device)
    images, about, columns = _described(data)
    _check_model(model, tuple(images.shape[1:]), about["name"])
    _check_clusters(model, len(images))
    beside = _auxiliary(model, data)
    wishes: dict[str, Any] = {"steps": steps, "batch": batch, "learning_rate": learning_rate, "seed": seed}
    wishes |= {"weight_decay": weight_decay, "precision": precision, "deterministic": deterministic}
    how = _settings(how, where, {name: value for name, value in wishes.items() if value is not None})
    rows = evaluated_rows(len(images))
    config = {"model": model.config(), "data": about, "training": _deciding(how)}
    config["discrete_codes"] = bool(getattr(model, "discrete", False))
    folder = Path(tempfile.mkdtemp(prefix="congruence-") if out is None else out)
    parts = [images, *beside]
    with contextlib.nullcontext(False) if Run(folder, config).finished else alone_in(folder) as alone:
        run = start_run(folder, config)
        if run.finished:
            return _finished(run, model, where)
        # A temporary folder goes with the result or, where none comes about, with what leads to it.
        removal = weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True) if out is None else None
        if alone:
            remove_parts(folder)
        if hasattr(model, "prepare") and not (folder / CHECKPOINT).exists():
            model.prepare(parts, how, device=where, stop=stop)
        watched = _Watched(model, [part[rows] for part in parts], progress)
        outcome = optimise(
            model, parts, how, run=run, device=where, measure=watched.measure, progress=watched.tell, stop=stop
        )
        _finish(run, model.eval(), parts, rows, columns, outcome)
    result = TrainedRun(run.folder, run.config, model, outcome)
    if removal is not None:
        removal.detach()
        weakref.finalize(result, shutil.rmtree, run.folder, ignore_errors=True)
    return result


class _Watched:
    """A model in training, its PSNR each time a line is logged (of rows its squared error), and who is told."""

    def __init__(self, model: Any, parts: Sequence[Any], progress: Callable[[Moment], None] | None) -> None:
        self.model, self.parts, self.progress, self.psnr = model, parts, progress, math.nan

    def measure(self) -> dict[str, float]:
        alive = posterior_collapse(self.model, *self.parts).numbers() if _is_mixture(self.model) else {}
        if _are_rows(self.parts[0]):
            return {"mse": mean_square(self.model, *self.parts), **alive}
        self.psnr = mean_psnr(self.model, *self.parts)
        return {"psnr": self.psnr, **alive}

    def tell(self, step: int, steps: int, loss: float) -> None:
        if self.progress is not None:
            self.progress(Moment(step, steps, loss, self.psnr))


def _check_model(model: Any, shape: tuple[int, ...], name: str) -> None:
    missing = [name for name in ("loss", "encode", "decode", "config") if not hasattr(model, name)]
    if missing:
        raise InputError(
            f"model must have loss, encode, decode and config, but {type(model).__name__} has no {missing[0]}; "
            "congruence.experiments.training.loop.optimise trains any module with a loss"
        )
    if getattr(model, "shape", shape) != shape:
        raise InputError(f"the model takes inputs of shape {model.shape}, but those of {name} have {shape}")


def _check_clusters(model: Any, rows: int) -> None:
    """Refuse a mixture that could not be fitted before there is a folder, which would stand in the next one's way."""
    for _, prior in model.learned_mixtures() if hasattr(model, "learned_mixtures") else ():
        if rows < len(prior.logits):
            raise InputError(f"a mixture of {len(prior.logits)} clusters needs as many rows, but there are {rows}")
        if rows < 2:
            raise InputError("a mixture cannot be fitted to a single row; give at least two")


def _described(data: Any) -> tuple[Any, dict[str, Any], dict[str, Array]]:
    """The images or rows as a tensor, what a config says about them, and the factors as columns."""
    if not hasattr(data, "factor_names"):
        alone = data[0] if isinstance(data, Sequence) and len(data) == 1 else data
        if not hasattr(alone, "shape") or len(alone.shape) not in (2, 4):
            raise InputError(
                "data must be FactorImages or FactorRows, images of shape (n, channels, height, width) or rows (n, p)"
            )
        inputs = _checked(alone)
        name = "rows" if _are_rows(inputs) else "images"
        return inputs, {"name": name, "n": len(inputs), "checksum": fingerprint([inputs])[0]}, {}
    inputs = _checked(data.rows if hasattr(data, "rows") else data.images)
    about = {
        "name": data.name,
        "n": len(inputs),
        "factors": list(data.factor_names),
        "kinds": list(data.kinds),
        "note": data.note,
        "checksum": fingerprint([inputs])[0],
    }
    return inputs, about, data.columns


def _auxiliary(model: Any, data: Any) -> list[Any]:
    """The factor that a model wants to be told beside every row, if it does, as int64 (n,)."""
    wanted = getattr(model, "auxiliary", None)
    if wanted is None:
        return []
    names = list(getattr(data, "factor_names", ()))
    if wanted not in names:
        raise InputError(
            f"the model is told the factor {wanted!r}, but the data has {', '.join(names) or 'no factors'}"
        )
    if data.sizes[names.index(wanted)] is None:
        raise InputError(f"the model is told levels of a factor, but {wanted} has values; one of few levels would do")
    return [np.ascontiguousarray(data.columns[wanted], dtype=np.int64)]


def _are_rows(inputs: Any) -> bool:
    return len(inputs.shape) == 2


def _is_mixture(model: Any) -> bool:
    return hasattr(model, "mixture_prior")


def _checked(inputs: Any) -> Any:
    """The images or rows as a tensor. What are none is refused before there is a folder for them."""
    name = "rows" if _are_rows(inputs) else "images"
    if not len(inputs):
        raise InputError(f"data has no {name} to train on")
    x = _tensor(inputs, name)
    floating, whole = x.is_floating_point(), str(x.dtype).removeprefix("torch.")
    if not floating and (x.is_complex() or (name == "images" and whole != "uint8")):
        wanted = "uint8, or floats from 0 to 1" if name == "images" else "real numbers"
        raise InputError(f"{name} must be {wanted}, not {whole}")
    for part in x.split(CHECKED) if floating else ():
        _check_numbers(part, name)
    return x


def _tensor(inputs: Any, name: str) -> Any:
    import torch

    if isinstance(inputs, np.ndarray) and min(inputs.strides) < 0:  # turned round, which torch cannot see as it is
        inputs = inputs.copy()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nor is it written to
            return torch.as_tensor(inputs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be numbers that torch takes, but {error}") from error


def _check_numbers(x: Any, name: str) -> None:
    """Refuse numbers that cannot be learned from: floats from 0 to 255, say, have a cross-entropy without end."""
    import torch

    if not torch.isfinite(x).all():
        what = "numbers" if name == "rows" else "pixels"
        raise InputError(f"{name} must be finite, but some {what} are NaN or infinite")
    low, high = float(x.min()), float(x.max())
    if name == "images" and (low < 0 or high > 1):
        raise InputError(
            f"images that are floats go from 0 to 1, but {low:g} to {high:g} came; divide them by their largest "
            "value, or give uint8"
        )


def _settings(how: Training | None, device: str, wishes: Mapping[str, Any]) -> Training:
    if how is None:
        how = Training(steps=20_000, optimiser="adamw", clip_value=1.0, log_every=500, precision="auto", engine="auto")
        if device != "cpu":
            how = replace(how, check_every=50, checkpoint_every=5000)  # waiting for a GPU, and its copies, take time
    elif "steps" in wishes:
        how = replace(how, epochs=None, steps=wishes["steps"])
    how = replace(how, **wishes)
    return replace(how, precision=training_precision(how.precision, device))


def _deciding(how: Training) -> dict[str, Any]:
    """The settings that decide what comes out."""
    return {name: value for name, value in asdict(how).items() if name not in FREE}


def _finish(
    run: Run, model: Any, parts: Sequence[Any], rows: Array, columns: Mapping[str, Array], outcome: Trained
) -> None:
    """Write what a finished run has; its checkpoint, which is three times as large, goes."""
    evaluated = getattr(model, "evaluated", model.encode)
    images, *beside = (part[rows] for part in parts)
    with full_precision():
        codes = through(evaluated, images, next(model.parameters()).device, *beside)
    if not any("ended" in line for line in run.metrics()[-1:]):
        told = {"loss": outcome.loss, "best": outcome.best}
        run.log(step=outcome.steps, epoch=outcome.epochs, ended=outcome.ended, **told)
    if not _are_rows(images):
        run.write_examples(to_numpy(images[:: max(1, len(rows) // EXAMPLES)][:EXAMPLES]))
    run.write_weights(model.state_dict())
    run.write_latents(codes, {name: column[rows] for name, column in columns.items()}, ids=rows)
    (run.folder / CHECKPOINT).unlink(missing_ok=True)
    dead = posterior_collapse(model, images, *beside).sentence if _is_mixture(model) else ""
    if dead:
        warnings.warn(f"{dead}; {CURE}", CollapsedWarning, stacklevel=3)


def _finished(run: Run, model: Any, device: str) -> TrainedRun:
    """A run that is there, with its weights put into the model."""
    outcome = _outcome(run)
    put_weights(model.to(device), run)
    return TrainedRun(run.folder, run.config, model.eval(), outcome)


def _outcome(run: Run) -> Trained:
    """How a finished run went, from its log."""
    last = (run.metrics() or [{}])[-1]
    if "ended" not in last:
        raise InputError(
            f"{run.folder / METRICS} does not say how the training ended, so it is damaged or was cut short; remove "
            f"{WEIGHTS} to train again"
        )
    loss, best = (math.nan if last.get(name) is None else float(last[name]) for name in ("loss", "best"))
    return Trained(last["ended"], last.get("step", 0), last.get("epoch", 0), loss, best)
