"""`congruence train`: models of images and rows, several seeds at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from congruence.cli import options as given
from congruence.cli.screen import interruptible, say
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.cli.trainings import Plan, Told

MODELS = "ae, vae, tcvae, bioae, vqvae or qlae; with a mixture as prior vade, mfcvae, mixvae or ivae"
MOST_SEEDS, DIGITS = 10_000, 19  # of a range, and of 2**63
MODEL = "The model and its loss"
MIXTURE = "Models with a mixture as prior"


def _weight(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=MODEL, show_default=False)


def _mixture(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=MIXTURE, show_default=False)


@interruptible
def train(
    model: Annotated[str, typer.Argument(help=f"{MODELS}.", show_default=False)],
    data: Annotated[
        str,
        typer.Option(
            help="Images: rooms or sprites (drawn here), or shapes3d, mpi3d, falcor3d, isaac3d, dsprites, mnist (your "
            "files). Rows, for models with a mixture: pinwheel or pinwheel:5, random-relu, moons, circles.",
            rich_help_panel=given.DATA,
        ),
    ] = "rooms",
    n: Annotated[
        Optional[int],
        typer.Option(
            "--n", help="So many images, drawn at random; all unless given. Of rows 10,000.", rich_help_panel=given.DATA
        ),
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous", help="Factors of rooms and sprites from ranges, not levels.", rich_help_panel=given.DATA
        ),
    ] = False,
    weight_decay: Annotated[Optional[float], _weight("Of all weights but biases; as published unless given.")] = None,
    latents: Annotated[Optional[int], _weight("Numbers in a code; twice the number of factors unless given.")] = None,
    net: Annotated[
        str, typer.Option(help="published, small, or auto: small on a CPU.", rich_help_panel=MODEL)
    ] = "auto",
    beta: Annotated[Optional[float], _weight("Of vae: weight of the divergence.")] = None,
    tc: Annotated[Optional[float], _weight("Of tcvae: weight of the total correlation.")] = None,
    nonnegativity: Annotated[Optional[float], _weight("Of bioae: weight of negative codes.")] = None,
    activity: Annotated[Optional[float], _weight("Of bioae: weight of the squared codes.")] = None,
    values: Annotated[Optional[int], _weight("Of vqvae and qlae: values that a latent may take.")] = None,
    quantisation: Annotated[Optional[float], _weight("Of vqvae and qlae: weight that moves the values.")] = None,
    commitment: Annotated[Optional[float], _weight("Of vqvae and qlae: weight that holds codes to values.")] = None,
    clusters: Annotated[
        Optional[int], _mixture("Components of the prior (of each facet); as the data has them.")
    ] = None,
    facets: Annotated[Optional[int], _mixture("Of mfcvae: parts of the code, each with a mixture.")] = None,
    activation: Annotated[Optional[str], _mixture("relu or leaky_relu; relu unless given.")] = None,
    hidden: Annotated[Optional[str], _mixture("Widths of layers, e.g. 50,50.")] = None,
    noise: Annotated[Optional[float], _mixture("Of rows: standard deviation of the likelihood; 0.1.")] = None,
    pretraining: Annotated[Optional[int], _mixture("Of vade, mfcvae: steps as a plain autoencoder first.")] = None,
    fade: Annotated[Optional[int], _mixture("Of mfcvae: steps over which a facet is faded in.")] = None,
    prior: Annotated[
        Optional[Path], _mixture("Of mixvae: .npz or .json with weights, means, covariances; N(0, I) unless given.")
    ] = None,
    auxiliary: Annotated[Optional[str], _mixture("Of ivae: the factor that it is told; the first with levels.")] = None,
    seeds: Annotated[
        str, typer.Option(help="One training for each, e.g. 0,1,2 or 0-4.", rich_help_panel=given.METHOD)
    ] = "0",
    steps: Annotated[int, typer.Option(help="Published: 200000.", rich_help_panel=given.METHOD)] = 20_000,
    batch: Annotated[int, typer.Option(help="Images in a step.", rich_help_panel=given.METHOD)] = 128,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW.", rich_help_panel=given.METHOD)] = 1e-3,
    device: given.Device = "auto",
    precision: Annotated[
        str, typer.Option(help="float32, bfloat16, or auto: the latter on a GPU.", rich_help_panel=given.METHOD)
    ] = "auto",
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic", help="Same seed and device, same weights to the bit.", rich_help_panel=given.METHOD
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that train at once.", rich_help_panel=given.METHOD)] = 1,
    dask: given.Dask = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the run folders, MODEL-SEED each.", rich_help_panel=given.OUTPUT)
    ] = Path("runs"),
    quiet: given.Quiet = False,
) -> None:
    """Train a model on images or rows whose true factors are known.

    Each seed leaves a run folder with weights, log, and the codes of up to
    10,000 images beside their factors, which `congruence evaluate` takes.
    What was interrupted goes on when the same command is given again; what
    is finished is not done again. Examples:

        congruence train ae --data rooms --weight-decay 0.1 --seeds 0,1,2 --out runs/

        congruence train vae --data sprites --n 20000 --net small --steps 2000 --jobs 2

        congruence train vade --data pinwheel --clusters 3 --seeds 0,1,2,3,4 --out runs/
    """
    from congruence.cli.model_configs import model_config
    from congruence.cli.screen_training import show_trainings, training_bars

    own = {
        "beta": beta, "tc": tc, "nonnegativity": nonnegativity, "activity": activity, "values": values,
        "quantisation": quantisation, "commitment": commitment, "clusters": clusters, "facets": facets,
        "activation": activation, "hidden": hidden, "noise": noise, "pretraining": pretraining, "fade": fade,
        "prior": prior, "auxiliary": auxiliary,
    }  # fmt: skip
    source = {"name": data, "n": n, "continuous": continuous, "device": device}
    settings: dict[str, Any] = {"steps": steps, "batch": batch, "learning_rate": learning_rate, "device": device}
    settings |= {"precision": precision, "deterministic": deterministic, "weight_decay": weight_decay}
    config, decay = model_config(model, data, n, latents=latents, net=net, device=device, own=own)
    settings["weight_decay"] = decay if weight_decay is None else weight_decay
    folder = out if dask is None else out.absolute()  # workers have folders of their own to work in
    plans = [_plan(folder, config, source, settings, seed, jobs) for seed in _seeds(seeds)]
    results: list[Told] = []
    try:
        with training_bars([plan.name for plan in plans], shown=not quiet) as tell:
            _carry_out(plans, tell, results.append, jobs, dask)
    except KeyboardInterrupt:
        say(f"interrupted; what was trained is kept in {out}, and the same command goes on from there")
        raise typer.Exit(130) from None
    for one in results:
        if one.error:
            raise InputError(one.error)
        for note in one.notes:
            say(f"note: {one.name}: {note}")
    if not quiet:
        show_trainings(sorted(results, key=lambda one: [plan.name for plan in plans].index(one.name)))


def _carry_out(plans: list[Plan], tell: Any, done: Any, jobs: int, dask: str | None) -> None:
    from congruence.cli.cluster import on_cluster
    from congruence.cli.trainings import train_here, train_in_processes, train_on_cluster

    if dask is not None:
        if jobs > 1:
            raise InputError("--jobs and --dask do not go together: the cluster has its own workers")
        with on_cluster(dask):
            train_on_cluster(plans, tell, done)
    elif jobs > 1 and len(plans) > 1:
        train_in_processes(plans, tell, done, jobs)
    else:
        train_here(plans, tell, done)


def _seeds(text: str) -> list[int]:
    """Numbers separated by commas, with ranges such as 0-4."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise InputError(f"--seeds takes numbers such as 0,1,2 or 0-4, not {part.strip()!r}")
        if max(len(low), len(high)) > DIGITS:
            raise InputError(f"--seeds has a seed that is too large, {part.strip()[:40]}; below 2**63 it would do")
        if high and int(high) < int(low):
            raise InputError(f"--seeds has a range that ends before it begins, {part.strip()}; {high}-{low} would do")
        if int(high or low) - int(low) >= MOST_SEEDS:
            raise InputError(f"--seeds takes at most {MOST_SEEDS} of them, not {part.strip()}")
        found += range(int(low), int(high or low) + 1)
    if len(set(found)) < len(found) or not found:
        raise InputError(f"--seeds must name each seed once, not {text}")
    return found


def _plan(
    out: Path, config: Mapping[str, Any], data: dict[str, Any], settings: Mapping[str, Any], seed: int, jobs: int
) -> Plan:
    from congruence.cli.trainings import Plan

    share = max(1, (os.cpu_count() or 1) // jobs)  # of the processors
    threads = share if jobs > 1 and not settings["deterministic"] else None
    return Plan(out / f"{config['model']}-{seed}", {**config, "seed": seed}, data, {**settings, "seed": seed}, threads)
