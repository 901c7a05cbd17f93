"""`congruence extract`: the outputs of layers of a model, as embedding tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from congruence.activations._options import ExtractOptions
from congruence.checks import require
from congruence.cli import _command as cli
from congruence.errors import InputError
from congruence.options import DATA, METHOD, OUTPUT

if TYPE_CHECKING:
    from congruence.activations import Layer


@cli.command
def extract(
    model: Annotated[
        str,
        cli.argument(
            "MODULE:FUNCTION that returns a torch module, a folder of transformers or sentence-transformers, or "
            "OWNER/NAME of a hub.",
            metavar="MODEL",
        ),
    ],
    options: ExtractOptions,
    layer: Annotated[list[str] | None, cli.flag(help="Dotted name of a layer; may be repeated.", panel=METHOD)] = None,
    layers: Annotated[bool, cli.flag("--layers", help="List the layers and stop.", panel=OUTPUT)] = False,
    array: Annotated[Path | None, cli.flag(help="Rows of a .npy or .npz array or of a table.", panel=DATA)] = None,
    images: Annotated[Path | None, cli.flag(help="Folder of images.", panel=DATA)] = None,
    text: Annotated[Path | None, cli.flag(help="Text file, one row per line, or a table.", panel=DATA)] = None,
    out: Annotated[
        Path | None,
        cli.flag(
            help="Table to write (.parquet .zarr .arrow .csv); contains {layer} for several layers.", panel=OUTPUT
        ),
    ] = None,
    quiet: Annotated[bool, cli.flag("--quiet", "-q", help="Print no table and no progress.", panel=OUTPUT)] = False,
) -> None:
    """What does a layer of my model return for these inputs?

    Runs a model on arrays, images or text and writes the outputs of its layers
    as embedding tables with ids, for compare and the other commands. The same
    call resumes after an interruption. The code of a MODULE is run; no code of
    folders and models of a hub is run. Examples:

        congruence extract mymodel:load --layers

        congruence extract mymodel:load --layer fc --images photos --out b.parquet

        congruence extract ./my-model --layer layers.11 --text a.txt --out a.csv

        congruence extract ./my-sentence-model --text a.txt --out a.parquet

        congruence extract EleutherAI/pythia-70m --revision COMMIT --layers
    """
    from congruence.activations import extract as extract_layers
    from congruence.activations import list_layers
    from congruence.activations._extract import make_job
    from congruence.activations.pretrained import as_pretrained

    require("torch", "extraction", "torch")
    source, kind = _source({"array": array, "images": images, "text": text})
    options = replace(options, kind=kind)
    if not layers:
        _check(source, layer, out)
    outputs = cli.Outputs(quiet=quiet)
    with cli.working(outputs) as progress:
        pretrained = as_pretrained(_model(model), options.revision)
        options = replace(options, revision=None)  # it is already loaded
        if layers:
            batch = None if source is None else make_job(pretrained, source, options).first_batch()
            listed = list_layers(pretrained.model.eval(), batch)
        else:
            if not layer and pretrained.default_layer is None:
                raise InputError("name a layer with --layer; --layers lists them")
            named = layer or [str(pretrained.default_layer)]
            written = extract_layers(pretrained, source, named, out, options=options, progress=progress)
    cli.say_warnings()
    if layers:
        _show_layers(listed)
    elif not quiet:
        for one in written.values():
            cli.say(f"{one.layer}: {one.n} rows x {one.d} dimensions in {one.path}", err=False)


def _source(paths: dict[str, Path | None]) -> tuple[Path | None, str | None]:
    """The path of the inputs and its kind."""
    chosen = [(path, kind) for kind, path in paths.items() if path is not None]
    if len(chosen) > 1:
        raise InputError(f"--{chosen[0][1]} and --{chosen[1][1]} cannot be given together; choose one kind of input")
    return chosen[0] if chosen else (None, None)


def _check(source: Path | None, layer: list[str] | None, out: Path | None) -> None:
    """Refuse, before the model is loaded, incomplete calls and outputs that would overwrite the input."""
    if source is None:
        raise InputError("give the inputs of the model: --array FILE, --images FOLDER or --text FILE")
    if out is None:
        raise InputError("give the table to write with --out, such as run.parquet")
    from congruence.activations._extract import output_paths

    cli.check_outputs(cli.Outputs(), [source], {"out": out})
    for path in output_paths(out, layer or [""]):  # {layer} may turn it into the name of the input
        cli.check_outputs(cli.Outputs(), [source], {"out": path})


def _model(name: str) -> Any:
    """Return a folder or hub name unchanged; otherwise call the named function and check that it returns a module."""
    from congruence.activations.hub import is_hub_name

    if Path(name).is_dir() or is_hub_name(name):
        return name
    import torch

    from congruence.importing import load_named

    if ":" not in name:
        raise InputError(
            f"{name} is not a model: give a folder that exists, the name of a model on a hub (owner/name) "
            "or the name of a function, package.module:function"
        )
    loaded = load_named(name, "model")
    model = loaded[0] if isinstance(loaded, tuple) and len(loaded) == 2 else loaded
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"{name} returned a {type(model).__name__}, not a torch module, so it has no layers")
    return loaded


def _show_layers(layers: list[Layer]) -> None:
    """Print one line per layer; names are never wrapped, so that they can be copied."""
    rows = [("layer", "kind", "parameters", "output")]
    for layer in layers:
        shape = "-" if layer.shape is None else " x ".join(map(str, layer.shape))
        rows.append((layer.name, layer.kind, str(layer.parameters), shape))
    first, second, third = (max(len(row[place]) for row in rows) for place in range(3))
    for name, kind, parameters, shape in rows:
        cli.say(f"{name:{first}}  {kind:{second}}  {parameters:>{third}}  {shape}", err=False)
