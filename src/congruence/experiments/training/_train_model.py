"""`train_model`: train a model of images or rows, and leave a run folder; `load_model`: load it again."""

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
from congruence.checks import require
from congruence.errors import CollapsedWarning, InputError
from congruence.experiments.models.reconstructions import (
    apply_in_batches,
    evaluated_rows,
    mean_psnr,
    mean_squared_error,
)
from congruence.experiments.runs import CHECKPOINT, METRICS, WEIGHTS, Run, open_run, start_run
from congruence.experiments.training._checkpoints import fingerprint
from congruence.experiments.training.collapse import posterior_collapse, posterior_moments
from congruence.experiments.training.loop import FREE, optimise
from congruence.experiments.training.settings import Trained, Training
from congruence.files import alone_in, remove_parts
from congruence.rows.devices import full_precision, training_device, training_precision

EXAMPLES = 8  # images stored in the run folder
CHECKED = 10_000  # images or rows checked at a time
_ADVICE = "try fewer latents or clusters, less noise, more steps or another seed"


@dataclass(frozen=True)
class TrainedRun(Run):
    """A run folder with the trained model and the outcome of the training."""

    model: Any
    outcome: Trained


@dataclass(frozen=True)
class TrainingState:
    """Progress of a training: `loss` is that of the last step, `psnr` that of the last line of the log (NaN before)."""

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
    progress: Callable[[TrainingState], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> TrainedRun:
    """Train a model of images or rows in place, and leave a run folder.

    The default settings are the protocol of Hsu et al. (2023): AdamW with a learning rate of 0.001 and batches of 128;
    weight decay, and gradients clipped at 1 element by element, for all weights but biases and codebooks. Loss and PSNR
    are logged after step 1, every 500 steps up to 5,000, and then every 5,000.

    Parameters
    ----------
    model : AutoEncoder, VAE, TCVAE, BioAE, VQVAE, QLAE, MixtureVAE, VaDE, MFCVAE or IVAE
        Or any torch module with `loss`, `encode`, `decode` and `config`. It ends up on `device`. If it has a method
        `prepare`, that is called before the first step; if it has an `auxiliary`, `loss` and `encode` also take that
        factor of the data.
    data : FactorImages, FactorRows, images or rows
        For example `rooms()` or `pinwheel()`; or images alone, uint8 or floats in [0, 1], shape (n, channels, height,
        width), or rows alone, floats (n, p).
    how : Training, optional
        All settings, instead of the protocol above. The following arguments override it.
    steps : int, optional
        20,000 by default; published are 200,000.
    batch : int, optional
        Images or rows in a step.
    learning_rate : float, optional
        Of the optimiser.
    weight_decay : float, optional
        Of all weights but biases and codebooks.
    precision : {"auto", "float32", "bfloat16"}, optional
        "auto" multiplies in bfloat16 on a GPU that supports it. Weights are always float32.
    deterministic : bool, optional
        The same seed gives the same weights, bit for bit, on the same device; on a CPU with one thread.
    seed : int, optional
        Of the order of images and of random numbers in the loss; initial weights depend on the model's own seed.
    out : path, optional
        The run folder. An interrupted training of the same model, data and settings in it is resumed; a finished one is
        not repeated; another one is refused. By default a temporary folder, which is removed with the result.
    device : str
        "auto" takes a GPU if torch finds one.
    progress : callable, optional
        Called with a `TrainingState` after each check of the loss.
    stop : callable, optional
        See `congruence.experiments.training.loop.optimise`.

    Returns
    -------
    TrainedRun
        `folder`, `weights()`, `latents()` (codes of up to 10,000 images, the same for every seed, with their factors),
        `metrics()`, `model`, and `outcome`.
    """
    require("torch", "training", "torch")
    where = training_device(device)
    inputs, about, columns = _describe_data(data)
    _check_model(model, tuple(inputs.shape[1:]), len(inputs), about["name"])
    parts = [inputs, *_auxiliary(model, data)]
    given = {
        "steps": steps, "batch": batch, "learning_rate": learning_rate, "seed": seed, "weight_decay": weight_decay,
        "precision": precision, "deterministic": deterministic,
    }  # fmt: skip
    how = _settings(how, where, {name: value for name, value in given.items() if value is not None})
    rows = evaluated_rows(len(inputs))
    settings = {name: value for name, value in asdict(how).items() if name not in FREE}
    config = {"model": model.config(), "data": about, "training": settings}
    config["discrete_codes"] = bool(getattr(model, "discrete", False))
    folder = Path(tempfile.mkdtemp(prefix="congruence-") if out is None else out)
    with contextlib.nullcontext(False) if Run(folder, config).finished else alone_in(folder) as alone:
        run = start_run(folder, config)
        if run.finished:
            outcome = _read_outcome(run)
            put_weights(model.to(where), run)
            return TrainedRun(run.folder, run.config, model.eval(), outcome)
        # A temporary folder is removed with the result or, if training fails, with the run.
        removal = weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True) if out is None else None
        if alone:
            remove_parts(folder)
        if hasattr(model, "prepare") and not (folder / CHECKPOINT).exists():
            model.prepare(parts, how, device=where, stop=stop)
        evaluated = [part[rows] for part in parts]
        psnr = math.nan

        def measure() -> dict[str, float]:
            nonlocal psnr
            active = posterior_collapse(model, *evaluated).numbers() if _is_mixture(model) else {}
            if _are_rows(inputs):
                return {"mse": mean_squared_error(model, *evaluated), **active}
            psnr = mean_psnr(model, *evaluated)
            return {"psnr": psnr, **active}

        def report(step: int, steps: int, loss: float) -> None:
            if progress is not None:
                progress(TrainingState(step, steps, loss, psnr))

        outcome = optimise(model, parts, how, run=run, device=where, measure=measure, progress=report, stop=stop)
        _finish(run, model.eval(), evaluated, rows, columns, outcome)
    result = TrainedRun(run.folder, run.config, model, outcome)
    if removal is not None:
        removal.detach()
        weakref.finalize(result, shutil.rmtree, run.folder, ignore_errors=True)
    return result


def load_model(run: Run | str | Path, *, device: str = "cpu") -> Any:
    """Load the trained model of a run folder; it may have been trained on another device.

    Parameters
    ----------
    run : Run or path
        A finished training by `train` or `congruence train`.
    device : {"cpu", "auto", "cuda", "cuda:1", ...}
        Where the model is stored; "auto" takes a GPU if torch finds one.
    """
    require("torch", "loading a model", "torch")
    from congruence.experiments.models.catalogue import build_model

    opened = run if isinstance(run, Run) else open_run(run)
    config = opened.config.get("model")
    if not isinstance(config, dict):
        raise InputError(f"the config of {opened.folder} has no model")
    model = build_model(config)
    put_weights(model, opened)
    return model.to(training_device(device)).eval()


def put_weights(model: Any, run: Run) -> None:
    """Load the weights of a run into a model."""
    import torch

    weights = {name: torch.from_numpy(array) for name, array in run.weights().items()}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"the weights of {run.folder} do not fit the model: {reason}") from error


def _check_model(model: Any, shape: tuple[int, ...], n: int, name: str) -> None:
    """Refuse a model that cannot be trained before a folder is made for it."""
    missing = [name for name in ("loss", "encode", "decode", "config") if not hasattr(model, name)]
    if missing:
        raise InputError(
            f"model must have loss, encode, decode and config; {type(model).__name__} has no {missing[0]}; "
            "congruence.experiments.training.loop.optimise trains any module with a loss"
        )
    if getattr(model, "shape", shape) != shape:
        raise InputError(f"the model takes inputs of shape {model.shape}; those of {name} have {shape}")
    for _, prior in model.learned_mixtures() if hasattr(model, "learned_mixtures") else ():
        if n < max(2, len(prior.logits)):
            raise InputError(f"a mixture of {len(prior.logits)} clusters needs as many rows, and at least 2; got {n}")


def _describe_data(data: Any) -> tuple[Any, dict[str, Any], dict[str, Array]]:
    """The images or rows as a tensor, their description for a config, and the factors as columns."""
    if hasattr(data, "factor_names"):
        inputs = _check_inputs(data.rows if hasattr(data, "rows") else data.images)
        about = {"factors": list(data.factor_names), "kinds": list(data.kinds), "note": data.note}
        name, columns = data.name, data.columns
    else:
        alone = data[0] if isinstance(data, Sequence) and len(data) == 1 else data
        if not hasattr(alone, "shape") or len(alone.shape) not in (2, 4):
            raise InputError(
                "data must be FactorImages, FactorRows, images of shape (n, channels, height, width) or rows (n, p)"
            )
        inputs, about, columns = _check_inputs(alone), {}, {}
        name = "rows" if _are_rows(inputs) else "images"
    return inputs, {"name": name, "n": len(inputs), **about, "checksum": fingerprint([inputs])[0]}, columns


def _auxiliary(model: Any, data: Any) -> list[Any]:
    """The factor that a model observes in addition to each row, if it does, as int64 (n,)."""
    wanted = getattr(model, "auxiliary", None)
    if wanted is None:
        return []
    names = list(getattr(data, "factor_names", ()))
    if wanted not in names:
        listed = ", ".join(names) or "it has none"
        raise InputError(f"auxiliary must be a factor of the data ({listed}); got {wanted!r}")
    if data.sizes[names.index(wanted)] is None:
        raise InputError(f"auxiliary must have levels; {wanted} is continuous")
    return [np.ascontiguousarray(data.columns[wanted], dtype=np.int64)]


def _are_rows(inputs: Any) -> bool:
    return len(inputs.shape) == 2


def _is_mixture(model: Any) -> bool:
    return hasattr(model, "mixture_prior")


def _check_inputs(inputs: Any) -> Any:
    """The images or rows as a tensor; invalid ones are refused before a folder is made for them."""
    import torch

    name = "rows" if _are_rows(inputs) else "images"
    if not len(inputs):
        raise InputError(f"data must have at least one of its {name}; got none")
    if isinstance(inputs, np.ndarray) and min(inputs.strides) < 0:  # torch does not support negative strides
        inputs = inputs.copy()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # it is only read
            x = torch.as_tensor(inputs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be numbers: {error}") from error
    if x.is_complex() or (name == "images" and not x.is_floating_point() and x.dtype != torch.uint8):
        wanted = "uint8, or floats in [0, 1]" if name == "images" else "real numbers"
        raise InputError(f"{name} must be {wanted}; got {str(x.dtype).removeprefix('torch.')}")
    for part in x.split(CHECKED) if x.is_floating_point() else ():
        if not torch.isfinite(part).all():
            raise InputError(f"{name} must be finite; some values are NaN or infinite")
        low, high = float(part.min()), float(part.max())
        if name == "images" and (low < 0 or high > 1):
            raise InputError(f"float images must lie in [0, 1]; got [{low:g}, {high:g}]; rescale them, or give uint8")
    return x


def _settings(how: Training | None, device: str, given: Mapping[str, Any]) -> Training:
    if how is None:
        how = Training(steps=20_000, optimiser="adamw", clip_value=1.0, log_every=500, precision="auto", engine="auto")
        if device != "cpu":
            how = replace(how, check_every=50, checkpoint_every=5000)  # checks and copies wait for the GPU
    elif "steps" in given:
        how = replace(how, epochs=None, steps=given["steps"])
    how = replace(how, **given)
    return replace(how, precision=training_precision(how.precision, device))


def _finish(
    run: Run, model: Any, evaluated: Sequence[Any], rows: Array, columns: Mapping[str, Array], outcome: Trained
) -> None:
    """Write the files of a finished run and remove its checkpoint, which is three times as large as the weights."""
    inputs, *others = evaluated
    with full_precision():
        encode = getattr(model, "evaluated", model.encode)
        codes = apply_in_batches(encode, inputs, next(model.parameters()).device, *others)
        if _is_mixture(model):
            run.write_posterior(posterior_moments(model, *evaluated)[1])
    if not any("ended" in line for line in run.metrics()[-1:]):
        steps, epochs = outcome.steps, outcome.epochs
        run.log(step=steps, epoch=epochs, ended=outcome.ended, loss=outcome.loss, best=outcome.best)
    if not _are_rows(inputs):
        run.write_examples(to_numpy(inputs[:: max(1, len(rows) // EXAMPLES)][:EXAMPLES]))
    run.write_weights(model.state_dict())
    run.write_latents(codes, {name: column[rows] for name, column in columns.items()}, ids=rows)
    (run.folder / CHECKPOINT).unlink(missing_ok=True)
    collapsed = posterior_collapse(model, *evaluated).sentence if _is_mixture(model) else ""
    if collapsed:
        warnings.warn(f"{collapsed}; {_ADVICE}", CollapsedWarning, stacklevel=3)


def _read_outcome(run: Run) -> Trained:
    """The outcome of a finished run, from its log."""
    last = (run.metrics() or [{}])[-1]
    if "ended" not in last:
        raise InputError(
            f"{run.folder / METRICS} has no outcome of the training, so it is damaged or truncated; remove {WEIGHTS} "
            "to train again"
        )
    loss, best = (math.nan if last.get(name) is None else float(last[name]) for name in ("loss", "best"))
    return Trained(last["ended"], last.get("step", 0), last.get("epoch", 0), loss, best)
