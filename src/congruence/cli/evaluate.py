"""`congruence evaluate`: are these axes the true factors?"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from congruence.cli import options as given
from congruence.cli.evaluated_rows import read_given, read_run, unmixed
from congruence.cli.screen import collected_warnings, interruptible, progress_bar, say
from congruence.cli.screen_evaluation import show_evaluation, show_metrics
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.arrays import Array
    from congruence.cli.evaluated_rows import Given
    from congruence.ica.latents import LatentComponents
    from congruence.metrics.evaluation import Evaluation
    from congruence.models.pictures import Pictures
    from congruence.runs import Run

    LookedAt = tuple[Any, Array, Array]  # a model, images and codes

METRICS = "infomec,mig,modularity,mcc,regression"


def _list(wanted: bool) -> None:
    if wanted:
        show_metrics()
        raise typer.Exit()


@interruptible
def evaluate(
    codes: Annotated[
        Path,
        typer.Argument(
            help="Learned codes (.npy .npz .csv .parquet .arrow .feather .h5ad .zarr .safetensors .pt), or the folder "
            "of a run of congruence train.",
            show_default=False,
        ),
    ],
    factors_file: Annotated[
        Optional[Path],
        typer.Argument(
            metavar="[FACTORS]",
            help="True factors of the same rows, numbers or words; not needed where they are columns of CODES.",
            show_default=False,
        ),
    ] = None,
    factors: Annotated[
        Optional[str],
        typer.Option(
            help="Columns that are factors, e.g. 'hue,shape'; by default all of FACTORS.", rich_help_panel=given.DATA
        ),
    ] = None,
    kinds: Annotated[
        str,
        typer.Option(
            help="Kinds of factors: one for all, or 'hue=circular:360,shape=categorical'. Others are guessed.",
            rich_help_panel=given.DATA,
        ),
    ] = "auto",
    id: given.Id = None,
    features: given.Features = None,
    metadata: given.Metadata = None,
    key: given.Key = None,
    group_by: given.GroupBy = None,
    drop_missing: given.DropMissing = False,
    metrics: Annotated[
        str,
        typer.Option(
            help="Metrics, separated by commas; 'fast' or 'all'. --list shows them.", rich_help_panel=given.METHOD
        ),
    ] = METRICS,
    infomec_version: Annotated[
        str, typer.Option(help="Of InfoMEC: standalone, training or tripod.", rich_help_panel=given.METHOD)
    ] = "standalone",
    discrete_codes: Annotated[
        bool,
        typer.Option("--discrete-codes", help="Values of codes are classes (quantised).", rich_help_panel=given.METHOD),
    ] = False,
    dci_model: Annotated[
        str, typer.Option(help="Trees of DCI: boosting, forest or lightgbm.", rich_help_panel=given.METHOD)
    ] = "boosting",
    ica: Annotated[
        bool,
        typer.Option(
            "--ica",
            help="Evaluate independent components of the codes, beside the codes as they are.",
            rich_help_panel=given.METHOD,
        ),
    ] = False,
    resamples: Annotated[
        int, typer.Option(help="Parts of the rows that make the interval.", rich_help_panel=given.METHOD)
    ] = 20,
    nulls: given.Nulls = 5,
    slow_resamples: Annotated[
        int,
        typer.Option(
            help="The same for metrics that take minutes (dci, regression, sis).", rich_help_panel=given.METHOD
        ),
    ] = 0,
    sensitivity: Annotated[
        bool,
        typer.Option("--sensitivity", help="Also show scores for 10, 20 and 50 bins.", rich_help_panel=given.METHOD),
    ] = False,
    structural: Annotated[
        bool,
        typer.Option(
            "--structural/--no-structural",
            help="How near the codes are up to a permutation, a rotation, a linear map.",
            rich_help_panel=given.METHOD,
        ),
    ] = True,
    seed: given.Seed = 0,
    report: given.Report = None,
    json: given.Json = None,
    csv: Annotated[Optional[Path], typer.Option(help="Write the scores as csv.", rich_help_panel=given.OUTPUT)] = None,
    quiet: given.Quiet = False,
    show_list: Annotated[
        bool,
        typer.Option(
            "--list", callback=_list, is_eager=True, help="Show all metrics and exit.", rich_help_panel=given.OUTPUT
        ),
    ] = False,
) -> None:
    """Are these axes the true factors? Which factor has a code of its own, and which is missing?

    Scores codes against factors of the same rows by published metrics, each
    with an interval and beside what unrelated codes would get. The report of
    a run folder also shows what the model makes of images. Examples:

        congruence evaluate codes.npy factors.csv --report report.html

        congruence evaluate codes.parquet --factors 'hue,shape' --kinds hue=circular:360

        congruence evaluate codes.parquet factors.parquet --id image --metrics infomec,dci --dci-model lightgbm

        congruence evaluate runs/ae-0 --ica --report report.html
    """
    from congruence.metrics.suite import evaluate_codes
    from congruence.runs import open_run

    wanted, kinds_of = _metrics(metrics), _kinds(kinds)
    run = open_run(codes) if codes.is_dir() and codes.suffix != ".zarr" else None
    texts = {"report": report, "json": json, "csv": csv}
    given.check_outputs(texts, [codes, *([] if factors_file is None else [factors_file])])
    looked_at = _model_of(run) if run is not None and report is not None else None  # what is damaged ends it here
    wishes = {"id": id, "features": features, "metadata": metadata, "key": key}
    with collected_warnings() as warned, progress_bar(shown=not quiet) as progress:
        if run is None:
            rows = read_given(codes, factors_file, factors, group_by=group_by, drop_missing=drop_missing, wishes=wishes)
        else:
            rows = read_run(run, factors_file, factors, wishes=wishes | {"group-by": group_by})
            kinds_of = _kinds_of_run(run, kinds_of, rows)
            discrete_codes = discrete_codes or bool(run.config.get("discrete_codes"))
        options: dict[str, Any] = {"kinds": kinds_of, "metrics": wanted, "version": infomec_version, "model": dci_model}
        options |= {"discrete_codes": discrete_codes, "resamples": resamples, "nulls": nulls}
        options |= {"slow_resamples": slow_resamples, "slow_nulls": min(1, nulls), "sensitivity": sensitivity}
        options |= {"structural": structural, "seed": seed, "progress": progress, "cluster": rows.cluster}
        turned = unmixed(rows, discrete_codes=discrete_codes, seed=seed) if ica else []
        results = [
            evaluate_codes(one.codes, rows.factors, name=one.name, code_names=one.code_names, **options)
            for one in (rows, *(each.rows for each in turned))
        ]
        result = replace(results[1], beside=(results[0], *results[2:])) if ica else results[0]
    settings = {**result.settings, "command": shlex.join(["congruence", *sys.argv[1:]])}
    unsettled = [note for each in turned for note in each.rows.notes]
    result = replace(result, notes=(*rows.notes, *unsettled, *result.notes), settings=settings)
    for text in warned:
        if text not in result.notes:
            say(f"note: {text}")
    _write(result, texts, looked_at, turned[0].components if ica else None)
    if not quiet:
        show_evaluation(result, stderr=str(json) == "-")


def _metrics(text: str) -> tuple[str, ...]:
    from congruence.metrics.registry import chosen

    return chosen([name.strip() for name in text.split(",") if name.strip()])


def _kinds(text: str) -> str | dict[str, str]:
    """One kind for all factors, or the kind of each that is named."""
    if "=" not in text:
        return text.strip()
    kinds: dict[str, str] = {}
    for part in text.split(","):
        name, equals, kind = (piece.strip() for piece in part.partition("="))
        if not (name and equals and kind):
            raise InputError(
                f"--kinds takes FACTOR=KIND such as hue=circular, separated by commas, not {part.strip()!r}"
            )
        if name in kinds:
            raise InputError(f"--kinds names {name} twice")
        kinds[name] = kind
    return kinds


def _kinds_of_run(run: Run, wished: str | dict[str, str], rows: Given) -> str | dict[str, str]:
    """The kinds that the data set gave its factors; those that --kinds names come first."""
    if isinstance(wished, str) and wished != "auto":
        return wished
    about = run.config["data"]
    told = about.get("kinds", ["auto"] * len(about["factors"]))
    if not isinstance(told, list) or len(told) != len(about["factors"]):
        raise InputError(
            f"the config of {run.folder} is damaged: kinds must be a list, one for each factor, not {told!r}"
        )
    known = dict(zip(about["factors"], told, strict=True))
    kinds = {name: kind for name, kind in known.items() if name in rows.factors}
    return kinds | (wished if isinstance(wished, dict) else {})


def _model_of(run: Run) -> LookedAt | None:
    """The model of a run, the images that it has kept and its codes; None where it has kept no images."""
    images = run.examples()
    if images is None:
        return None
    from congruence.arrays import to_numpy
    from congruence.models.stored import load_model

    return load_model(run), images, to_numpy(run.latents().values)


def _pictures(looked_at: LookedAt | None, components: LatentComponents | None = None) -> Pictures | None:
    """What the model of a run makes of the images that it has kept; with components, what each of these changes."""
    if looked_at is None:
        return None
    from congruence.models.pictures import look

    return look(*looked_at, components=components)


def _write(
    result: Evaluation,
    outputs: dict[str, Path | None],
    looked_at: LookedAt | None,
    components: LatentComponents | None,
) -> None:
    from congruence.report import render_evaluation, rows_to_csv

    render_as: dict[str, Any] = {
        "report": lambda r: render_evaluation(
            r, _pictures(looked_at, components), None if components is None else _pictures(looked_at)
        ),
        "json": lambda r: r.to_json(),
        "csv": lambda r: rows_to_csv(r.table()),
    }
    given.write_outputs({name: render_as[name](result) for name, path in outputs.items() if path is not None}, outputs)
