"""`congruence extract`: what layers of a model give, as an embedding table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from congruence.arrays import listing
from congruence.cli import options as given
from congruence.cli.screen import interruptible, progress_bar, say
from congruence.errors import InputError

if TYPE_CHECKING:
    from congruence.activations import Extracted, Inputs, Layer

_Found = tuple[Any, Callable[[Any], Any] | None, dict[str, Any], dict[str, str]]


@interruptible
def extract(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="MODULE:FUNCTION that returns a torch module, a folder of transformers, or OWNER/NAME of a hub.",
            show_default=False,
        ),
    ],
    layer: Annotated[
        Optional[list[str]],
        typer.Option(help="Dotted name of a layer; may be repeated.", rich_help_panel=given.METHOD),
    ] = None,
    revision: Annotated[
        Optional[str],
        typer.Option(help="Commit of a model of a hub, 40 hex digits.", rich_help_panel=given.METHOD),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="List the layers and stop.", rich_help_panel=given.OUTPUT)
    ] = False,
    array: Annotated[
        Optional[Path],
        typer.Option(help="Rows of a .npy or .npz array or of a table.", rich_help_panel=given.DATA),
    ] = None,
    images: Annotated[Optional[Path], typer.Option(help="Folder of images.", rich_help_panel=given.DATA)] = None,
    text: Annotated[
        Optional[Path],
        typer.Option(help="Text file, a row for each line, or a table.", rich_help_panel=given.DATA),
    ] = None,
    key: given.Key = None,
    column: Annotated[
        Optional[str], typer.Option(help="Column of the table that holds the text.", rich_help_panel=given.DATA)
    ] = None,
    id: Annotated[
        Optional[str], typer.Option(help="Column of the table with row ids.", rich_help_panel=given.DATA)
    ] = None,
    size: Annotated[
        Optional[int], typer.Option(help="Make images squares of this side.", rich_help_panel=given.DATA)
    ] = None,
    mean: Annotated[
        Optional[str],
        typer.Option(help="Of the pixels (0 to 1), e.g. 0.485,0.456,0.406.", rich_help_panel=given.DATA),
    ] = None,
    std: Annotated[
        Optional[str], typer.Option(help="Of the pixels, e.g. 0.229,0.224,0.225.", rich_help_panel=given.DATA)
    ] = None,
    pool: Annotated[
        str,
        typer.Option(help="none (a row per position), mean, cls, last or patch.", rich_help_panel=given.METHOD),
    ] = "none",
    skip: Annotated[int, typer.Option(help="Leave out this many first positions.", rich_help_panel=given.METHOD)] = 0,
    batch: Annotated[int, typer.Option(help="Inputs at a time.", rich_help_panel=given.METHOD)] = 64,
    precision: Annotated[
        str, typer.Option(help="float32, bfloat16 or float16.", rich_help_panel=given.METHOD)
    ] = "float32",
    fast: Annotated[
        bool,
        typer.Option("--fast", help="On a GPU, bits need not come again.", rich_help_panel=given.METHOD),
    ] = False,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    out: Annotated[
        Optional[Path],
        typer.Option(
            help="Table to write (.parquet .zarr .arrow .csv); holds {layer} for several layers.",
            rich_help_panel=given.OUTPUT,
        ),
    ] = None,
    quiet: given.Quiet = False,
) -> None:
    """What does a layer of my model give for these inputs?

    Runs a model on arrays, images or text and writes what its layers give as
    embedding tables with ids, for compare and the other commands. Stopped and
    called again, it goes on. The code of a MODULE is run; folders and models
    of a hub run no code of their own. Examples:

        congruence extract mypackage.model:load --layers

        congruence extract mypackage.model:load --layer encoder.fc --images photos/ --pool mean --out run_b.parquet

        congruence extract ./my-model --layer layers.11 --text corpus.txt --out run_a.parquet

        congruence extract EleutherAI/pythia-70m --revision COMMIT --layers
    """
    from congruence.activations import extract as extract_layers
    from congruence.activations import list_layers
    from congruence.models.devices import load_torch

    load_torch("extraction")
    sources = {"array": array, "images": images, "text": text}
    asked = {"key": key, "column": column, "id": id, "size": size, "mean": mean, "std": std}
    _check(sources, asked, layers, layer, out)
    found, prepare, wanted, about = _model(model, revision, text=text is not None)
    inputs = _inputs(sources, wanted, **asked) if any(sources.values()) else None
    if layers:
        _show_layers(list_layers(found.eval(), None if inputs is None else _few(found, inputs, prepare)))
        return
    if inputs is None or out is None or layer is None:  # which _check has refused
        raise InputError("give --layer, --out and one of --array, --images and --text")
    _tell_of_repeated(inputs)
    with progress_bar(shown=not quiet) as progress:
        how: dict[str, Any] = {"pool": pool, "skip": skip, "seed": seed, "batch": batch, "device": device}
        how |= {"precision": precision, "deterministic": not fast, "about": about}
        written = extract_layers(found, inputs, layer, out, prepare=prepare, progress=progress, **how)
    if not quiet:
        _show_written(written)


def _check(
    sources: dict[str, Path | None], asked: dict[str, Any], listing: bool, layer: list[str] | None, out: Path | None
) -> None:
    """Refuse, before the model is loaded, a call that lacks something or says what has no meaning."""
    chosen = [name for name, path in sources.items() if path is not None]
    if len(chosen) > 1:
        raise InputError(f"--{chosen[0]} and --{chosen[1]} cannot be given together; a call has one kind of inputs")
    of = {"key": "array", "column": "text", "id": "text", "size": "images", "mean": "images", "std": "images"}
    for name, value in asked.items():
        if value is not None and of[name] not in chosen:
            raise InputError(f"--{name} means nothing without --{of[name]}")
    if listing:
        return
    if not chosen:
        raise InputError("give what the model is to see: --array FILE, --images FOLDER or --text FILE")
    if not layer:
        raise InputError("name a layer with --layer; --layers lists them")
    if out is None:
        raise InputError("say with --out which table to write, such as run.parquet")
    from congruence.activations.extraction import output_paths

    inputs = [path for path in sources.values() if path is not None]
    given.check_outputs({}, inputs, tables={"out": out})
    for path in output_paths(out, layer):  # {layer} may make an input's name of it
        given.check_outputs({}, inputs, tables={"out": path})


def _model(name: str, revision: str | None, *, text: bool) -> _Found:
    """Return the model, what makes its input of rows as they are read, what it wants of images, and which it is."""
    if Path(name).is_dir() or _is_hub_name(name):
        return _pretrained(name, revision, text)
    import torch

    from congruence.cli.load_decoder import load_named

    if revision is not None:
        raise InputError(f"--revision means nothing for {name}; it is for models of a hub, owner/name")
    if ":" not in name:
        raise InputError(
            f"{name} is neither a folder with a model, the name of one on a hub (owner/name) "
            "nor the name of a function, package.module:function"
        )
    found = load_named(name, "model")
    model, prepare = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"{name} returned a {type(model).__name__}, which is no torch module and has no layers")
    if prepare is not None and not callable(prepare):
        raise InputError(f"{name} returned a model and a {type(prepare).__name__}, but not a function of rows")
    if text and prepare is None:
        raise InputError(f"--text needs tokens: let {name} return (model, tokenize), tokenize taking a list of texts")
    return model, prepare, {}, {}


def _is_hub_name(name: str) -> bool:
    from congruence.activations.hub import is_hub_name

    return is_hub_name(name)


def _pretrained(name: str, revision: str | None, text: bool) -> _Found:
    from congruence.activations.pretrained import load_pretrained

    found = load_pretrained(name, revision)
    about = {} if found.hub is None else {"model": found.hub.title}
    if found.hub is not None and revision is None:
        say(f"note: the cache holds one commit of {name}, which is used: --revision {found.hub.commit}")
    if not text:
        return found.model, found.prepare, found.images, about
    if found.tokenize is None:
        way = "save the tokenizer beside the model"
        if found.hub is not None:
            way = f"if it has one, 'hf download {name} tokenizer.json --revision {found.hub.commit}' fetches it"
        raise InputError(f"--text needs tokens, but {name} has no tokenizer.json; {way}")
    return found.model, found.tokenize, found.images, about


def _inputs(sources: dict[str, Path | None], wanted: dict[str, Any], **asked: Any) -> Inputs:
    from congruence.activations import array_inputs, image_inputs, text_inputs

    if sources["array"] is not None:
        return array_inputs(sources["array"], key=asked["key"])
    if sources["text"] is not None:
        return text_inputs(sources["text"], column=asked["column"], id=asked["id"])
    said = {name: _numbers(name, asked[name]) for name in ("mean", "std") if asked[name] is not None}
    said |= {} if asked["size"] is None else {"size": asked["size"]}
    return image_inputs(str(sources["images"]), **(wanted | said))


def _tell_of_repeated(inputs: Inputs) -> None:
    """Say before the work, and not after it, that rows cannot be told apart."""
    import numpy as np

    ids = inputs.ids.astype(str) if inputs.ids.dtype == object else inputs.ids  # which may be of kinds without an order
    found, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        say(f"note: ids occur more than once ({listing(found[counts > 1])}); compare and layers refuse such tables")


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--{name} takes three numbers such as 0.5,0.5,0.5, not {text}") from error


def _few(model: Any, inputs: Inputs, prepare: Callable[[Any], Any] | None) -> Any:
    """The first rows, as the model takes them."""
    from congruence.activations.activations import for_model, prepare_rows

    return for_model(model, prepare_rows(prepare, inputs.read(0, min(2, inputs.n))), "cpu")


def _show_layers(layers: list[Layer]) -> None:
    """Print a line for every layer; names are never broken, so that they can be copied and searched."""
    rows = [("layer", "kind", "parameters", "output")]
    for layer in layers:
        shape = "-" if layer.shape is None else " x ".join(map(str, layer.shape))
        rows.append((layer.name, layer.kind, str(layer.parameters), shape))
    first, second, third = (max(len(row[place]) for row in rows) for place in range(3))
    for name, kind, parameters, shape in rows:
        typer.echo(f"{name:{first}}  {kind:{second}}  {parameters:>{third}}  {shape}")


def _show_written(written: list[Extracted]) -> None:
    for found in written:
        typer.echo(f"{found.layer}: {found.n} rows x {found.d} dimensions in {found.path}")
        if found.not_finite:
            rows = f"{found.not_finite} of {found.n} rows of {found.layer}"
            say(f"note: {rows} have NaN or infinity; compare refuses them")
