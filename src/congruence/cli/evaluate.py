"""`congruence evaluate`: are these axes the true factors?"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from congruence.cli import _command as cli
from congruence.cli._command import listed
from congruence.cli._load_decoder import Code
from congruence.errors import InputError
from congruence.metrics._options import EvaluateOptions
from congruence.options import reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from congruence.experiments.runs import Run


def _list_metrics(wanted: bool) -> None:
    """Print every metric with its declared properties."""
    if not wanted:
        return
    from congruence.metrics._registry import METRICS

    for metric in METRICS.values():
        low, high = (f"{bound:g}" for bound in metric.range)
        typer.echo(f"{metric.name}  {metric.reference}")
        typer.echo(f"  scores {', '.join(metric.scores)}")
        typer.echo(f"  from {low} to {high}, {metric.direction}; {metric.cost}")
        typer.echo(f"  invariant to {', '.join(sorted(metric.invariant_to))}")
    raise typer.Exit()


@cli.command
def evaluate(
    codes: Annotated[
        str,
        cli.argument(
            "Learned codes (.npy .parquet .csv .jsonl .safetensors .pt ...), a pattern or a folder of parts, "
            "or the folder of a run of congruence train."
        ),
    ],
    options: EvaluateOptions,
    outputs: cli.Outputs,
    factors: Annotated[
        Optional[str],
        cli.argument(
            "True factors of the same rows, numbers or words; not needed where they are columns of CODES.",
            metavar="[FACTORS]",
        ),
    ] = None,
    code: Code = None,
    show_list: Annotated[
        bool, typer.Option("--list", callback=_list_metrics, is_eager=True, help="Show all metrics and exit.")
    ] = False,
) -> None:
    """Are these axes the true factors? Which factor has a code of its own, and which is missing?

    Scores codes against factors of the same rows by published metrics, each
    with the score that unrelated codes would get, the conditions that these
    data do not meet and, where one is valid, an interval. The report of a run
    folder also shows what the model does with images. Examples:

        congruence evaluate codes.npy factors.csv --report report.html

        congruence evaluate z.csv --factor-columns hue --kinds hue=circular:360

        congruence evaluate codes.npy factors.csv --metrics infomec,dci

        congruence evaluate runs/ae-0 --ica --report report.html
    """
    from congruence.experiments.runs import CONFIG, open_run
    from congruence.metrics._evaluate import evaluate as evaluate_codes
    from congruence.tables.address import as_path
    from congruence.tables.parts import part_files

    if not as_path(part_files(codes)[0]).exists():
        raise InputError(f"there is no file and no run folder {codes}")
    run = open_run(codes) if (Path(codes) / CONFIG).is_file() else None
    cli.check_outputs(outputs, [codes, *([] if factors is None else [factors])])
    given: Any = codes
    pictures = None
    if run is not None:
        if factors is not None:
            raise InputError(f"{run.folder} is a run folder, which has its own factors; leave {factors} out")
        given, options = _codes_of(run, options)
        pictures = _pictures_of(run, code) if outputs.report is not None else None  # a damaged model is refused here
    with cli.working(outputs) as progress:
        result = evaluate_codes(given, factors, options=options, pictures=pictures, progress=progress)
    cli.deliver(result, outputs)


def _codes_of(run: Run, options: EvaluateOptions) -> tuple[Any, EvaluateOptions]:
    """The codes of a run as a table, and the options with its factors, their kinds and whether codes are classes."""
    from congruence.experiments.runs import LATENTS

    for name in (*reading(options), "cluster", "order_blocks"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} means nothing for a run folder such as {run.folder}")
    data = run.config.get("data")
    names = data.get("factors") if isinstance(data, dict) else None
    if not names or not isinstance(data, dict):
        raise InputError(f"the data that {run.folder} was trained on has no factors, so nothing can be evaluated")
    if not (isinstance(names, list) and all(isinstance(one, str) for one in names)):
        raise InputError(f"the config of {run.folder} is damaged: factors must be a list of names; got {names!r}")
    kinds = data.get("kinds", ["auto"] * len(names))
    if not isinstance(kinds, list) or len(kinds) != len(names):
        raise InputError(f"the config of {run.folder} is damaged: kinds must be a list, one per factor; got {kinds!r}")
    if not (run.folder / LATENTS).exists():
        raise InputError(f"there is no {run.folder / LATENTS}; the training may not be finished")
    return run.latents(), replace(
        options,
        factor_columns=options.factor_columns or names,
        kinds=_kinds(dict(zip(names, kinds, strict=True)), options),
        discrete_codes=options.discrete_codes or bool(run.config.get("discrete_codes")),
        name=run.name,
    )


def _kinds(known: dict[str, str], options: EvaluateOptions) -> Any:
    """The kinds of the factors in the data set; those of --kinds take precedence."""
    from congruence.metrics.factors import parse_kinds

    if options.kinds != "auto" and "=" not in options.kinds:
        return options.kinds
    wanted = listed(options.factor_columns) if isinstance(options.factor_columns, str) else list(known)
    kinds = {name: kind for name, kind in known.items() if any(fnmatchcase(name, pattern) for pattern in wanted)}
    return kinds if options.kinds == "auto" else kinds | parse_kinds(options.kinds)


def _pictures_of(run: Run, code: str | None) -> Callable[..., Any] | None:
    """A function that makes pictures of the codes of a run; None if the run has no example images."""
    from congruence.experiments.models.catalogue import is_known

    images = run.examples()
    if images is None:
        return None
    if code is None and not is_known(run.config.get("model")):
        cli.say(f"no pictures of codes: the model of {run.folder} is one of your own; give --code file.py:Class")
        return None
    from congruence.arrays import to_numpy
    from congruence.experiments.models.reconstructions import traverse_latents
    from congruence.experiments.training import load_model

    return partial(traverse_latents, load_model(run, code), images, to_numpy(run.latents().values))
