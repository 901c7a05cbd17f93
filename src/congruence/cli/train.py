"""`congruence train`: models of images, several seeds at once."""

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

MODELS = "ae, vae, tcvae, bioae, vqvae or qlae"
MODEL = "The model and its loss"
GENERAL = ("model", "latents", "net", "shape", "seed", "dataset_size")  # in the config of every model, or by its data


def _weight(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=MODEL, show_default=False)


@interruptible
def train(
    model: Annotated[str, typer.Argument(help=f"{MODELS}.", show_default=False)],
    data: Annotated[
        str,
        typer.Option(
            help="rooms or sprites (drawn here), or shapes3d, mpi3d, falcor3d, isaac3d, dsprites, mnist (your files).",
            rich_help_panel=given.DATA,
        ),
    ] = "rooms",
    n: Annotated[
        Optional[int],
        typer.Option("--n", help="So many images, drawn at random; all unless given.", rich_help_panel=given.DATA),
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
    """Train a model on images whose true factors are known.

    Each seed leaves a run folder with weights, log, and the codes of up to
    10,000 images beside their factors, which `congruence evaluate` takes.
    What was interrupted goes on when the same command is given again; what
    is finished is not done again. Examples:

        congruence train ae --data rooms --weight-decay 0.1 --seeds 0,1,2 --out runs/

        congruence train vae --data sprites --n 20000 --net small --steps 2000 --jobs 2
    """
    from congruence.cli.screen_training import show_trainings, training_bars

    own = {
        "beta": beta, "tc": tc, "nonnegativity": nonnegativity, "activity": activity, "values": values,
        "quantisation": quantisation, "commitment": commitment,
    }  # fmt: skip
    source = {"name": data, "n": n, "continuous": continuous, "device": device}
    settings: dict[str, Any] = {"steps": steps, "batch": batch, "learning_rate": learning_rate, "device": device}
    settings |= {"precision": precision, "deterministic": deterministic, "weight_decay": weight_decay}
    config, decay = _config(model, data, n, latents=latents, net=_net(net, data, device), own=own)
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
        found += range(int(low), int(high or low) + 1)
    if len(set(found)) < len(found) or not found:
        raise InputError(f"--seeds must name each seed once, not {text}")
    return found


def _net(net: str, data: str, device: str) -> str:
    """Turn "auto" into the published net on a GPU, where it takes the images, and the small one elsewhere."""
    if net != "auto":
        return net
    from congruence.data.registry import find_image_set
    from congruence.models.devices import training_device
    from congruence.models.nets import SIDE

    fits = find_image_set(data).shape[1:] == (SIDE, SIDE)
    return "published" if fits and training_device(device) != "cpu" else "small"


def _config(
    model: str, data: str, n: int | None, *, latents: int | None, net: str, own: Mapping[str, float | None]
) -> tuple[dict[str, Any], float]:
    """The config of the model without its seed, and the weight decay that was published with it."""
    from congruence.data.registry import find_image_set
    from congruence.models.catalogue import published_settings, published_weight_decay

    images = find_image_set(data)
    settings = published_settings(model, data)
    for name, value in own.items():
        if value is not None and name not in settings:
            fit = [other for other in settings if other not in GENERAL]
            hint = f"it has {', '.join('--' + other for other in fit)}" if fit else "it has no options of its own"
            raise InputError(f"--{name} means nothing for {model}; {hint}")
    settings |= {name: value for name, value in own.items() if value is not None}
    settings |= {} if latents is None else {"latents": latents}
    if model == "tcvae":
        settings["dataset_size"] = images.count if n is None else n
    config = {"model": model, **settings, "net": net, "shape": list(images.shape)}
    return config, published_weight_decay(model, data)


def _plan(
    out: Path, config: Mapping[str, Any], data: dict[str, Any], settings: Mapping[str, Any], seed: int, jobs: int
) -> Plan:
    from congruence.cli.trainings import Plan

    share = max(1, (os.cpu_count() or 1) // jobs)  # of the processors
    threads = share if jobs > 1 and not settings["deterministic"] else None
    return Plan(out / f"{config['model']}-{seed}", {**config, "seed": seed}, data, {**settings, "seed": seed}, threads)
