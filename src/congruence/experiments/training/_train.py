"""`train`: models of images and rows, by name or of your own, one run folder for each seed."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from congruence.checks import check_integer
from congruence.errors import CongruenceError, CongruenceWarning, InputError, warn_caller
from congruence.experiments.data.registry import DataOutline, is_own_data, load_data, outline_data
from congruence.experiments.models.catalogue import model_config
from congruence.experiments.models.own_models import is_module, own_config
from congruence.experiments.processes import run_tasks, send_message, stop_requested
from congruence.experiments.runs import Run, open_run
from congruence.experiments.training._options import OF_MODELS, TrainOptions
from congruence.experiments.training._train_model import TrainingState
from congruence.options import reading, takes
from congruence.progress import Progress
from congruence.rows.devices import torch_threads

_MOST_SEEDS, _DIGITS = 10_000, 19  # of a range, and of 2**63
_POLL = 2.0  # seconds between checks of a dask event
Tell = Callable[[str, TrainingState], None]  # receives the name of a run, and its state


@takes(TrainOptions)
def train(
    model: Any,
    data: Any = "rooms",
    out: str | Path = "runs",
    *,
    options: TrainOptions,
    progress: Progress | None = None,
    client: Any = None,
) -> list[Run]:
    """Train a model on images or rows, once for each seed.

    An interrupted training is resumed by the same call, a finished one is not repeated, and one with fewer steps is
    continued. The result of a seed does not depend on the other seeds.

    Parameters
    ----------
    model : str, class, function or torch.nn.Module
        ae, vae, tcvae, bioae, vqvae or qlae; with a mixture prior vade, mfcvae, mixvae or ivae. Or one of your own with
        the methods of `Trainable`: a class or function that makes one, for each seed another, or the name of it,
        `file.py:Class` or `package.module:function`, whose code is run. It gets `seed`, `shape` (of one row or image)
        and options of models that are given, as far as it has such parameters. A module is trained in place, with one
        seed.
    data : str, path, array, table, frame, AnnData, FactorImages or FactorRows
        Images: rooms or sprites (generated), shapes3d, mpi3d, falcor3d, isaac3d, dsprites or mnist (your files). Rows:
        pinwheel or pinwheel:5, random-relu, moons, circles. Or your own: images (n, channels, height, width) or rows
        (n, p), a folder of images, a file of `congruence data make`, or any table. See `load_data`.
    out : path
        The parent of the run folders, which are called MODEL-SEED.
    progress : callable, optional
        Called as progress(what, done, total) with steps of all trainings.
    client : distributed.Client, optional
        Train on the workers of this dask cluster, which must share the folder `out`; not together with `jobs`.

    Returns
    -------
    list of Run
        The run folders, in the order of the seeds.
    """
    check_workers(options, client is not None)
    folder = Path(out) if client is None else Path(out).absolute()  # workers have other working folders
    plans = _plan_trainings(model, data, folder, options, alone=client is None and options.jobs == 1)
    steps, total = dict.fromkeys((plan.name for plan in plans), 0), options.steps * len(plans)

    def tell(name: str, state: TrainingState) -> None:
        steps[name] = state.step
        if progress is not None:
            psnr = "" if state.psnr != state.psnr else f", PSNR {state.psnr:.2f}"
            progress(f"{name}: loss {state.loss:.4f}{psnr}", sum(steps.values()), total)

    if client is not None:
        outcomes = train_on_cluster(plans, client, progress)
    elif options.jobs > 1 and len(plans) > 1:
        outcomes = run_tasks(_train_in_process, [(plan,) for plan in plans], options.jobs, receive=lambda m: tell(*m))
    else:
        outcomes = train_here(plans, tell)
    for plan, outcome in zip(plans, outcomes, strict=True):
        if isinstance(outcome, str):
            raise InputError(outcome)
        for kind, text in outcome:
            warn_caller(f"{plan.name}: {text}", kind)
    return [open_run(plan.folder) for plan in plans]


def check_workers(options: TrainOptions, on_cluster: bool) -> None:
    """Refuse an invalid number of processes."""
    check_integer("jobs", options.jobs)
    if on_cluster and options.jobs > 1:
        raise InputError(f"jobs must be 1 with dask, which has its own workers; got {options.jobs}")


@dataclass(frozen=True)
class Plan:
    """The definition of one training, as plain values that can be sent to another process."""

    folder: Path
    model: dict[str, Any]  # the config of the model
    data: dict[str, Any]  # arguments of `load_data`
    settings: dict[str, Any]  # arguments of `train_model`
    threads: int | None = None  # of torch on a CPU; None leaves them unchanged
    maker: Any = None  # the name of a class of the user's; or the class or module, not sent to other processes

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.folder.name


Outcome = str | list[tuple[type[Warning], str]]  # the error of a training, or its warnings


def _plan_trainings(model: Any, data: Any, folder: Path, options: TrainOptions, *, alone: bool) -> list[Plan]:
    source, outline = _plan_data(data, options, alone)
    seeds = parse_seeds(options.seeds)
    own = {name: getattr(options, name) for name in OF_MODELS}
    maker = _as_maker(model)
    if maker is not None:  # its code is imported here, so that errors come before any training
        given = {name: value for name, value in (own | {"latents": options.latents}).items() if value is not None}
        config, decay = own_config(maker, outline.shape, given), 0.0
    else:
        shared: dict[str, Any] = {"latents": options.latents, "net": options.net, "device": options.device}
        config, decay = model_config(model, outline, options.n, **shared, own=own)
    if maker is not None and not isinstance(maker, str) and not alone:
        raise InputError("jobs and dask need the model by name, such as file.py:Class, since others must import it")
    if is_module(maker) and len(seeds) > 1:
        raise InputError(f"a module is trained in place, with one seed; give its class for {len(seeds)} seeds")
    names = ("steps", "batch", "learning_rate", "device", "precision", "deterministic")
    settings = {name: getattr(options, name) for name in names}
    settings["weight_decay"] = decay if options.weight_decay is None else options.weight_decay
    name = config["model"].rpartition(":")[2]
    share = max(1, (os.cpu_count() or 1) // options.jobs)  # of the processors
    threads = share if options.jobs > 1 and not options.deterministic else None
    return [
        Plan(folder / f"{name}-{seed}", {**config, "seed": seed}, source, {**settings, "seed": seed}, threads, maker)
        for seed in seeds
    ]


def _as_maker(model: Any) -> Any:
    """What makes a model of the user's: an object, or a name with the whole path of its file; None for known models."""
    if not isinstance(model, str):
        return model
    module, colon, name = model.rpartition(":")
    return f"{Path(module).absolute() if module.endswith('.py') else module}:{name}" if colon else None


def _plan_data(data: Any, options: TrainOptions, alone: bool) -> tuple[dict[str, Any], DataOutline]:
    """The arguments of `load_data`, and an outline of the data; your own is opened here, unless workers open it."""
    asked: dict[str, Any] = {"data": data, "n": options.n, "continuous": options.continuous, "device": options.device}
    asked |= {"size": options.size, "read": reading(options)}
    if not is_own_data(data):
        return asked, outline_data(data)
    opened = load_data(**asked)
    path = Path(data).absolute() if isinstance(data, str | Path) else None
    return {"data": opened} if alone or path is None else asked | {"data": path}, outline_data(opened)


def parse_seeds(seeds: str | Sequence[int]) -> list[int]:
    """Parse seeds: integers, or a text of integers and ranges such as 0-4, separated by commas."""
    parsed: list[int] = []
    for part in seeds.split(",") if isinstance(seeds, str) else map(str, seeds):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise InputError(f"seeds must be integers such as 0,1,2 or 0-4; got {part.strip()!r}")
        if max(len(low), len(high)) > _DIGITS:
            raise InputError(f"seeds must be below 2**63; got {part.strip()[:40]}")
        if high and int(high) < int(low):
            raise InputError(f"a range of seeds must not end before it starts, use {high}-{low}; got {part.strip()}")
        if int(high or low) - int(low) >= _MOST_SEEDS:
            raise InputError(f"a range of seeds must have at most {_MOST_SEEDS}; got {part.strip()}")
        parsed += range(int(low), int(high or low) + 1)
    if len(set(parsed)) < len(parsed) or not parsed:
        raise InputError(f"seeds must contain each seed once; got {seeds}")
    return parsed


def train_here(plans: Sequence[Plan], tell: Tell, stop: Callable[[], bool] | None = None) -> list[Outcome]:
    """Train one after another; data is loaded once."""
    from congruence.experiments.models.catalogue import build_model
    from congruence.experiments.training._train_model import train_model

    outcomes: list[Outcome] = []
    loaded: dict[int, Any] = {}
    for plan in plans:
        key = id(plan.data)
        if key not in loaded:
            loaded = {key: load_data(**plan.data)}

        def report(state: TrainingState, name: str = plan.name) -> None:
            tell(name, state)

        with warnings.catch_warnings(record=True) as caught, torch_threads(plan.threads):
            warnings.simplefilter("always", CongruenceWarning)
            model = build_model(plan.model, plan.maker)
            train_model(model, loaded[key], **plan.settings, out=plan.folder, progress=report, stop=stop)
        warned = [(one.category, str(one.message)) for one in caught if issubclass(one.category, CongruenceWarning)]
        outcomes.append(list(dict.fromkeys(warned)))
    return outcomes


def _train_in_process(
    plan: Plan, tell: Tell = lambda *state: send_message(state), stop: Any = stop_requested
) -> Outcome:
    """One training in a worker. An error is returned, so that the other trainings continue."""
    try:
        return train_here([plan], tell, stop)[0]
    except CongruenceError as error:
        return str(error)


def train_on_cluster(plans: Sequence[Plan], client: Any, progress: Progress | None = None) -> list[Outcome]:
    """Train on the workers of a dask client; run folders are on a shared file system."""
    import distributed

    ending = distributed.Event(f"congruence-{os.getpid()}-{time.time_ns()}", client=client)
    futures = [client.submit(_train_on_worker, plan, ending.name, key=f"{plan.name}-{ending.name}") for plan in plans]
    try:
        for done, _ in enumerate(distributed.as_completed(futures), 1):
            if progress is not None:
                progress("training on the cluster", done, len(plans))
        return [future.result() for future in futures]
    except BaseException:
        with contextlib.suppress(Exception):  # the scheduler may be what was lost
            ending.set()
            distributed.wait(futures)  # until each has its checkpoint
        raise


def _train_on_worker(plan: Plan, ending: str) -> Outcome | None:
    """One training in a thread of a dask worker, which must not be interrupted itself; None if it was stopped."""
    import distributed

    event, checked, stopping = distributed.Event(ending), time.monotonic(), False

    def stop() -> bool:
        nonlocal checked, stopping
        if time.monotonic() - checked > _POLL:
            checked, stopping = time.monotonic(), bool(event.is_set())
        return stopping

    try:
        return _train_in_process(plan, lambda name, state: None, stop)
    except KeyboardInterrupt:
        return None
