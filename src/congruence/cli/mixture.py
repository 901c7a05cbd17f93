"""`congruence mixture`: what does a mixture prior identify, and do runs agree?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

from congruence.cli import _command as cli
from congruence.cli._load_decoder import Code
from congruence.errors import InputError
from congruence.mixture._options import MixtureOptions

if TYPE_CHECKING:
    from congruence.experiments.runs import Run
    from congruence.mixture._models import MixtureModel


@cli.command
def mixture(
    options: MixtureOptions,
    outputs: cli.Outputs,
    runs: Annotated[
        Optional[list[str]],
        cli.argument("Run folders of vade, mfcvae, mixvae or ivae; 'runs/vade-*'.", metavar="[RUNS]..."),
    ] = None,
    prior: Annotated[
        Optional[Path],
        cli.flag(
            help="Your own model instead of run folders: a .npz file with weights (J,), means (J, m) and covariances, "
            "and 'fitted' (the covariance type) if it was fitted to data. It is never unpickled.",
            panel="Your own model",
            metavar="FILE",
        ),
    ] = None,
    decoder: Annotated[
        Optional[str],
        cli.flag(
            help="A function without arguments that returns the decoder, a torch module. Its code is run.",
            panel="Your own model",
            metavar="MODULE:FUNCTION",
        ),
    ] = None,
    codes: Annotated[
        Optional[str],
        cli.flag(
            help="Latents of the data (.npy .csv .parquet ...); see --codes-are.",
            panel="Your own model",
            metavar="TABLE",
        ),
    ] = None,
    code: Code = None,
) -> None:
    """Does a mixture prior make the model identifiable? Up to what?

    Checks P1 to P3 and F1 to F4 for every run, or for one model of your own,
    reports which theorems apply, and compares runs: the affine distance of
    their priors and the MCC of their codes, for all ordered pairs. Examples:

        congruence mixture 'runs/vade-*' --report report.html

        congruence mixture --prior prior.npz --decoder model:load

        congruence mixture --prior prior.npz --codes draws.npy --codes-are draws
    """
    from congruence.mixture.examination import examine_mixture
    from congruence.tables import unique_names

    if prior is not None:
        if runs:
            raise InputError("--prior is a model of your own; leave out the run folders, or --prior")
        cli.check_outputs(outputs, [prior, *([] if codes is None else [codes])])
        model = _own_model(prior, decoder, codes)
        with cli.working(outputs) as progress:
            result = examine_mixture({prior.stem: model}, options=options, progress=progress)
        files = {"prior": str(prior)} | ({} if decoder is None else {"decoder": decoder})
        cli.deliver(replace(result, settings=files | dict(result.settings)), outputs)
        return
    if decoder is not None or codes is not None:
        raise InputError("--decoder and --codes belong to a model of your own, which needs --prior")
    if not runs:
        raise InputError("mixture needs run folders, or --prior with a model of your own")
    from congruence.experiments.runs import open_run

    folders = _expand_patterns(runs)
    cli.check_outputs(outputs, folders)
    opened = [open_run(folder) for folder in folders]
    _check_same_data(opened)
    with cli.working(outputs) as progress:
        models = {name: _load(run, options.seed, code) for name, run in zip(unique_names(folders), opened, strict=True)}
        options = replace(options, labels=options.labels or _first_factor(opened[0]))
        result = examine_mixture(models, options=options, progress=progress)
    cli.deliver(result, outputs)


def _own_model(prior: Path, decoder: str | None, codes: str | None) -> MixtureModel:
    from congruence.cli._load_decoder import load_decoder
    from congruence.decoder.prepared_decoder import import_torch
    from congruence.mixture._models import MixtureModel
    from congruence.mixture.priors import GaussianMixture

    mixture = GaussianMixture.from_file(prior)
    if decoder is None:
        return MixtureModel(mixture, codes=codes)
    import_torch()
    return MixtureModel(mixture, load_decoder(decoder), codes=codes)


def _expand_patterns(patterns: list[str]) -> list[str]:
    """Expand names and patterns to folders, without duplicates."""
    folders: list[str] = []
    for pattern in patterns:
        path = Path(pattern)
        if any(sign in pattern for sign in "*?[") and not path.exists():
            base = Path(path.anchor) if path.is_absolute() else Path()
            matches = sorted(str(one) for one in base.glob(str(path.relative_to(base))) if one.is_dir())
            if not matches:
                raise InputError(f"no folder matches {pattern}")
            folders += matches
        else:
            folders.append(pattern)
    return list(dict.fromkeys(folders))


def _check_same_data(runs: Sequence[Run]) -> None:
    for i, run in enumerate(runs):
        if run.folder.resolve() in {other.folder.resolve() for other in runs[:i]}:
            raise InputError(f"the run folder {run.folder} is listed twice")
        if not run.finished:
            raise InputError(f"the training in {run.folder} is not finished")
        if run.config.get("data") != runs[0].config.get("data"):
            raise InputError(f"{run.folder} and {runs[0].folder} were trained on different data")


def _load(run: Run, seed: int, code: str | None) -> MixtureModel:
    """Load the trained model of a run folder, with its codes, draws, and the last values of its log."""
    from congruence.experiments.training._train_model import load_model
    from congruence.mixture._models import MixtureModel

    model = load_model(run, code)
    if not hasattr(model, "mixture_prior"):
        raise InputError(f"{run.folder} holds a model {getattr(model, 'name', '')!r} without a mixture prior")
    lines = run.metrics()
    active = [line["active_latents"] for line in lines if line.get("active_latents") is not None]
    diverged = [line.get("step") for line in lines if line.get("ended") == "diverged"]
    return MixtureModel.from_model(
        model,
        run.latents(),
        draws=run.draws(seed),
        kind=str(run.config["model"].get("model", "")),
        active_latents=active[-1] if active else None,
        notes=tuple(f"the training diverged, and the weights are those of step {step}" for step in diverged),
    )


def _first_factor(run: Run) -> str | None:
    """The first categorical factor that the codes have as metadata."""
    from congruence.experiments.runs import CONFIG
    from congruence.guards import reading

    known = run.latents().metadata
    with reading(run.folder / CONFIG, "the factors"):
        data = run.config.get("data", {})
        kinds = zip(data.get("factors", ()), data.get("kinds", ()), strict=False)
        return next((str(name) for name, kind in kinds if kind == "categorical" and name in known), None)
