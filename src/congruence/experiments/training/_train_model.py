"""`train_model`: train a model of images or rows, and leave a run folder; `load_model`: load it again."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from congruence.arrays import Array, to_numpy
from congruence.checks import check_choice, require
from congruence.errors import CollapsedWarning, InputError, warn_caller
from congruence.experiments.models.own_models import check_code, check_trainable, describe_model
from congruence.experiments.models.reconstructions import (
    apply_in_batches,
    evaluated_rows,
    mean_psnr,
    mean_squared_error,
)
from congruence.experiments.runs import (
    CHECKPOINT,
    CONFIG,
    METRICS,
    OUTCOME,
    WEIGHTS,
    Run,
    open_run,
    rewrite_config,
    start_run,
)
from congruence.experiments.training._checkpoints import load_weights
from congruence.experiments.training._training_data import are_rows, as_floats, auxiliary_factor, describe_data
from congruence.experiments.training.collapse import posterior_collapse, posterior_moments
from congruence.experiments.training.loop import FREE, optimise
from congruence.experiments.training.settings import Trained, Training
from congruence.files import alone
from congruence.guards import is_file, reading, within_weights
from congruence.parts import RECORD, changed_files, record_files
from congruence.result import json_text
from congruence.rows.devices import full_precision, training_device, training_precision

EXAMPLES = 8  # images stored in the run folder
TRIED = 2  # images or rows on which a model is tried before a folder is made
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
    out: str | Path | None = None,
    device: str = "auto",
    progress: Callable[[TrainingState], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **settings: Any,
) -> TrainedRun:
    """Train a model of images or rows in place, and leave a run folder.

    The default settings are the protocol of Hsu et al. (2023): AdamW with a learning rate of 0.001 and batches of 128;
    weight decay, and gradients clipped at 1 element by element, for all weights but biases and codebooks. Loss and PSNR
    are logged after step 1, every 500 steps up to 5,000, and then every 5,000.

    Parameters
    ----------
    model : AutoEncoder, VAE, TCVAE, BioAE, VQVAE, QLAE, MixtureVAE, VaDE, MFCVAE or IVAE
        Or any torch module with `loss`, `encode` and `decode`, see `Trainable`. It ends up on `device`. Optional are
        `config()`, what the run folder says of the model; `prepare`, called before the first step; `after_step()`;
        and `auxiliary`, a factor of the data that `loss` and `encode` also take.
    data : FactorImages, FactorRows, Table, frame, AnnData, images or rows
        For example `rooms()` or `pinwheel()`; or images alone, uint8 or floats in [0, 1], shape (n, channels, height,
        width), or rows alone, floats (n, p). Ids and metadata of a table are written with the codes.
    how : Training, optional
        All settings, instead of the protocol above.
    out : path, optional
        The run folder. An interrupted training of the same model, data and settings in it is resumed; a finished one is
        not repeated; one with fewer steps is continued, unless its learning rate depends on their number; another one
        is refused. By default a temporary folder, which is removed with the result.
    device : str
        "auto" takes a GPU if torch finds one.
    progress : callable, optional
        Called with a `TrainingState` after each check of the loss.
    stop : callable, optional
        See `congruence.experiments.training.loop.optimise`.
    **settings
        Single fields of `Training` that override `how`: `steps` (20,000 by default, published are 200,000), `batch`,
        `learning_rate`, `weight_decay`, `precision`, `deterministic`, `seed` (of the order of images and of random
        numbers in the loss; initial weights depend on the model's own seed) and others.

    Returns
    -------
    TrainedRun
        `folder`, `weights()`, `latents()` (codes of up to 10,000 images, the same for every seed, with their factors),
        `metrics()`, `model`, and `outcome`.
    """
    require("torch", "training", "torch")
    where = training_device(device)
    inputs, about, columns, ids = describe_data(data)
    _check_shape(model, tuple(inputs.shape[1:]), len(inputs), about["name"])
    parts = [as_floats(model, inputs), *auxiliary_factor(model, data)]
    if not _is_ours(model):
        check_trainable(model, [part[:TRIED] for part in parts])
    how = _settings(how, model, where, settings)
    rows = evaluated_rows(len(inputs))
    stored = {name: value for name, value in asdict(how).items() if name not in FREE}
    folder = Path(tempfile.mkdtemp(prefix="congruence-") if out is None else out)
    described = describe_model(model, inputs.shape[1:])
    discrete = bool(getattr(model, "discrete", False))
    config = {"model": described, "data": about, "training": stored, "discrete_codes": discrete}
    _continue_run(folder, config, how)
    with contextlib.nullcontext(False) if Run(folder, config).finished else alone(folder, folder=True):
        run = start_run(folder, config)
        if run.finished:
            if changed := changed_files(folder):
                raise InputError(f"{folder / changed[0]} is not as it was written; remove {WEIGHTS} to write it again")
            outcome = _read_outcome(run)
            if not (folder / RECORD).exists():  # the process was killed before, or it is a run of version 0.1.0
                with contextlib.suppress(InputError):
                    record_files(folder, OUTCOME)
            put_weights(model.to(where), run)
            return TrainedRun(run.folder, run.config, model.eval(), outcome)
        (folder / RECORD).unlink(missing_ok=True)
        # A temporary folder is removed with the result or, if training fails, with the run.
        removal = weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True) if out is None else None
        if hasattr(model, "prepare") and not (folder / CHECKPOINT).exists():
            model.prepare(parts, how, device=where, stop=stop)
        evaluated = [part[rows] for part in parts]
        psnr = math.nan

        def measure() -> dict[str, float]:
            nonlocal psnr
            active = posterior_collapse(model, *evaluated).numbers() if _is_mixture(model) else {}
            if are_rows(inputs):
                return {"mse": mean_squared_error(model, *evaluated), **active}
            psnr = mean_psnr(model, *evaluated)
            return {"psnr": psnr, **active}

        def report(step: int, steps: int, loss: float) -> None:
            if progress is not None:
                progress(TrainingState(step, steps, loss, psnr))

        outcome = optimise(model, parts, how, run=run, device=where, measure=measure, progress=report, stop=stop)
        _finish(run, model.eval(), evaluated, rows, columns, ids, outcome)
    result = TrainedRun(run.folder, run.config, model, outcome)
    if removal is not None:
        removal.detach()
        weakref.finalize(result, shutil.rmtree, run.folder, ignore_errors=True)
    return result


def load_model(run: Run | str | Path, code: Any = None, *, device: str = "cpu") -> Any:
    """Load the trained model of a run folder; it may have been trained on another device.

    Parameters
    ----------
    run : Run or path
        A finished training by `train` or `congruence train`.
    code : class, function, torch.nn.Module or str, optional
        For a model of your own: what makes it, as for `train`, or a module to load the weights into. A name such as
        ``file.py:Class`` is imported, which runs that code. A run folder alone never runs any.
    device : {"cpu", "auto", "cuda", "cuda:1", ...}
        Where the model is stored; "auto" takes a GPU if torch finds one.
    """
    torch = require("torch", "loading a model", "torch")
    from congruence.experiments.models.catalogue import build_model, is_known

    opened = run if isinstance(run, Run) else open_run(run)
    config = opened.config.get("model")
    if not isinstance(config, dict):
        raise InputError(f"the config of {opened.folder} has no model")
    if code is None and not is_known(config):
        raise InputError(
            f"the model of {opened.folder}, {config.get('model')!r}, is not one of congruence; give code, its class or "
            "the name of it such as file.py:Class, which is then run"
        )
    if code is not None:
        check_code(config, code, opened.folder)
    if code is None:
        weights = [opened.folder / WEIGHTS] if is_file(opened.folder / WEIGHTS) else []
        with within_weights(opened.folder, weights), reading(opened.folder / CONFIG, "a model"), torch.device("meta"):
            build_model(config)  # without memory for its weights
    model = build_model(config, code)
    put_weights(model, opened)
    return model.to(training_device(device)).eval()


def put_weights(model: Any, run: Run) -> None:
    """Load the weights of a run into a model."""
    import torch

    weights = {name: torch.from_numpy(array) for name, array in run.weights().items()}
    load_weights(model, weights, f"the weights of {run.folder} do not")


def _check_shape(model: Any, shape: tuple[int, ...], n: int, name: str) -> None:
    """Refuse data that does not fit the model before a folder is made for it."""
    wanted = getattr(model, "shape", shape)
    if isinstance(wanted, tuple | list) and tuple(wanted) != shape:
        raise InputError(f"the model takes inputs of shape {model.shape}; those of {name} have {shape}")
    for _, prior in model.learned_mixtures() if hasattr(model, "learned_mixtures") else ():
        if n < max(2, len(prior.logits)):
            raise InputError(f"a mixture of {len(prior.logits)} clusters needs as many rows, and at least 2; got {n}")


def _is_ours(model: Any) -> bool:
    """Whether a model is one of congruence, which needs no trial."""
    return type(model).__module__.startswith("congruence.")


def _is_mixture(model: Any) -> bool:
    """Whether posteriors and components of a model can be measured, see `posterior_collapse`."""
    return all(hasattr(model, name) for name in ("mixture_prior", "numbers", "posterior", "state_shares"))


def _settings(how: Training | None, model: Any, device: str, given: Mapping[str, Any]) -> Training:
    for name in given:
        check_choice("settings", name, [one.name for one in fields(Training)])
    if how is None:
        how = Training(steps=20_000, optimiser="adamw", clip_value=1.0, log_every=500, precision="auto")
        if _is_ours(model):  # it may not be possible to record the loss of another
            how = replace(how, engine="auto")
        if device != "cpu":
            how = replace(how, check_every=50, checkpoint_every=5000)  # checks and copies wait for the GPU
    elif "steps" in given:
        how = replace(how, epochs=None, steps=given["steps"])
    how = replace(how, **given)
    return replace(how, precision=training_precision(how.precision, device))


def _continue_run(folder: Path, config: Mapping[str, Any], how: Training) -> None:
    """Let the run in a folder have as many steps as the config if it has fewer; all else must be the same.

    The checkpoint of the last step holds all that further steps need. Weights are removed first: from then on the run
    counts as interrupted, whatever happens.
    """
    if not (folder / CONFIG).exists():
        return
    run, unit = open_run(folder), "epochs" if how.steps is None else "steps"
    stored, wanted = run.config.get("training"), json.loads(json_text(dict(config)))
    done = stored.get(unit) if isinstance(stored, dict) else None
    if not isinstance(done, int) or done >= wanted["training"][unit]:
        return
    wanted["training"][unit] = done
    if wanted != run.config:
        return  # refused by `start_run`
    if how.cosine or type(how).pace is not Training.pace:
        raise InputError(
            f"the learning rate in {folder} depends on the number of {unit}, {done}, so that {getattr(how, unit)} are "
            "another training; give another folder"
        )
    if run.finished and not (folder / CHECKPOINT).is_file():
        raise InputError(f"{folder} has no {CHECKPOINT}, from which it could be continued; give another folder")
    (folder / WEIGHTS).unlink(missing_ok=True)
    rewrite_config(run, config)


def _finish(
    run: Run,
    model: Any,
    evaluated: Sequence[Any],
    rows: Array,
    columns: Mapping[str, Array],
    ids: Array | None,
    outcome: Trained,
) -> None:
    """Write the files of a finished run; its checkpoint stays, so that the training can be continued."""
    inputs, *others = evaluated
    with full_precision():
        encode = getattr(model, "evaluated", model.encode)
        codes = apply_in_batches(encode, inputs, next(model.parameters()).device, *others)
        if _is_mixture(model):
            run.write_posterior(posterior_moments(model, *evaluated)[1])
    steps, epochs = outcome.steps, outcome.epochs
    run.log(step=steps, epoch=epochs, ended=outcome.ended, loss=outcome.loss)
    if not are_rows(inputs):
        run.write_examples(to_numpy(inputs[:: max(1, len(rows) // EXAMPLES)][:EXAMPLES]))
    run.write_weights(model.state_dict())
    factors = {name: column[rows] for name, column in columns.items()}
    run.write_latents(codes, factors, ids=rows if ids is None else ids[rows])
    record_files(run.folder, OUTCOME)
    collapsed = posterior_collapse(model, *evaluated).sentence if _is_mixture(model) else ""
    if collapsed:
        warn_caller(f"{collapsed}; {_ADVICE}", CollapsedWarning)


def _read_outcome(run: Run) -> Trained:
    """The outcome of a finished run, from its log."""
    last = (run.metrics() or [{}])[-1]
    if "ended" not in last:
        raise InputError(
            f"{run.folder / METRICS} has no outcome of the training, so it is damaged or truncated; remove {WEIGHTS} "
            f"and {CHECKPOINT} to train again"
        )
    loss = math.nan if last.get("loss") is None else float(last["loss"])
    return Trained(last["ended"], last.get("step", 0), last.get("epoch", 0), loss)
