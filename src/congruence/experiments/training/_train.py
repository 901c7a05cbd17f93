"""`train`: models of images and rows by name, one run folder for each seed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from congruence.errors import InputError
from congruence.experiments.models._configs import model_config
from congruence.experiments.runs import Run, open_run
from congruence.experiments.training._options import OF_MODELS, TrainOptions
from congruence.experiments.training._schedule import Ended, Plan, train_here, train_in_processes, train_on_cluster
from congruence.experiments.training.training import Moment
from congruence.options import takes
from congruence.progress import Progress

MOST_SEEDS, DIGITS = 10_000, 19  # of a range, and of 2**63


@takes(TrainOptions)
def train(
    model: str,
    out: str | Path = "runs",
    *,
    options: TrainOptions,
    progress: Progress | None = None,
    client: Any = None,
) -> list[Run]:
    """Train a model on images or rows with known factors, once for each seed.

    An interrupted training is resumed by the same call, a finished one is not repeated. A seed gives the same result
    alone as together with others. `train_model` trains a model that you built yourself.

    Parameters
    ----------
    model : str
        ae, vae, tcvae, bioae, vqvae or qlae; with a mixture prior vade, mfcvae, mixvae or ivae.
    out : path
        The parent of the run folders, which are called MODEL-SEED.
    progress : callable, optional
        Called as progress(what, done, total) with steps of all trainings.
    client : distributed.Client, optional
        Train on the workers of this dask cluster, which must share the folder `out`; not together with `jobs`.
    data, n, continuous
        The data set, the number of images or rows, and whether factors have continuous values; see `load_data`.
    weight_decay, latents, net, beta, tc, nonnegativity, activity, values, quantisation, commitment
        Options of models of images; the published values unless given. An option of another model is refused.
    clusters, facets, activation, hidden, noise, pretraining, fade, prior, auxiliary
        Options of models with a mixture prior.
    seeds : sequence of int, or str
        One training for each: ``(0, 1, 2)``, "0,1,2" or "0-4".
    steps, batch, learning_rate, device, precision, deterministic
        See `train_model`.
    jobs : int
        Number of processes that train at once.

    Returns
    -------
    list of Run
        The run folders, in the order of the seeds.
    """
    check_workers(options, client is not None)
    folder = Path(out) if client is None else Path(out).absolute()  # workers have working folders of their own
    plans = _plans(model, folder, options)
    tracker = _Tracker(plans, options.steps, progress)
    ended: dict[str, Ended] = {}

    def done(one: Ended) -> None:
        ended[one.name] = one

    if client is not None:
        train_on_cluster(plans, done, client)
    elif options.jobs > 1 and len(plans) > 1:
        train_in_processes(plans, tracker, done, options.jobs)
    else:
        train_here(plans, tracker, done)
    for one in ended.values():
        if one.error:
            raise InputError(one.error)
        for kind, text in one.warned:
            warnings.warn(f"{one.name}: {text}", kind, stacklevel=3)
    return [open_run(plan.folder) for plan in plans]


def check_workers(options: TrainOptions, on_cluster: bool) -> None:
    """Refuse a number of processes that makes no sense."""
    if options.jobs < 1:
        raise InputError(f"jobs must be at least 1, not {options.jobs}")
    if on_cluster and options.jobs > 1:
        raise InputError("jobs and dask do not go together: the cluster has its own workers")


def _plans(model: str, folder: Path, options: TrainOptions) -> list[Plan]:
    own = {name: getattr(options, name) for name in OF_MODELS}
    config, decay = model_config(
        model,
        options.data,
        options.n,
        latents=options.latents,
        net=options.net,
        device=options.device,
        own=own,
    )
    names = ("steps", "batch", "learning_rate", "device", "precision", "deterministic")
    settings = {name: getattr(options, name) for name in names}
    settings["weight_decay"] = decay if options.weight_decay is None else options.weight_decay
    data = {"name": options.data, "n": options.n, "continuous": options.continuous, "device": options.device}
    share = max(1, (os.cpu_count() or 1) // options.jobs)  # of the processors
    threads = share if options.jobs > 1 and not options.deterministic else None
    return [
        Plan(folder / f"{config['model']}-{seed}", {**config, "seed": seed}, data, {**settings, "seed": seed}, threads)
        for seed in parse_seeds(options.seeds)
    ]


def parse_seeds(seeds: str | Sequence[int]) -> list[int]:
    """Numbers, or a text with numbers separated by commas and ranges such as 0-4."""
    found: list[int] = []
    for part in seeds.split(",") if isinstance(seeds, str) else map(str, seeds):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise InputError(f"seeds must be numbers such as 0,1,2 or 0-4, not {part.strip()!r}")
        if max(len(low), len(high)) > DIGITS:
            raise InputError(f"seeds must be below 2**63, not {part.strip()[:40]}")
        if high and int(high) < int(low):
            raise InputError(f"seeds has a range that ends before it starts, {part.strip()}; use {high}-{low}")
        if int(high or low) - int(low) >= MOST_SEEDS:
            raise InputError(f"seeds takes at most {MOST_SEEDS} of them, not {part.strip()}")
        found += range(int(low), int(high or low) + 1)
    if len(set(found)) < len(found) or not found:
        raise InputError(f"seeds must contain each seed once, not {seeds}")
    return found


class _Tracker:
    """Adds up the steps of all trainings for one progress function."""

    def __init__(self, plans: Sequence[Plan], steps: int, progress: Progress | None) -> None:
        self.steps = {plan.name: 0 for plan in plans}
        self.total, self.progress = steps * len(plans), progress

    def __call__(self, name: str, moment: Moment) -> None:
        self.steps[name] = moment.step
        if self.progress is not None:
            psnr = "" if moment.psnr != moment.psnr else f", PSNR {moment.psnr:.2f}"
            self.progress(f"{name}: loss {moment.loss:.4f}{psnr}", sum(self.steps.values()), self.total)
