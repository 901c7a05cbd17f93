"""Import a decoder or a model by its name: `mypackage.model:load`, `path/to/file.py:load` or a run folder."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from congruence.errors import CongruenceError, InputError

FORM = (
    "name a {0} as package.module:function or path/to/file.py:function, where the function takes no arguments and "
    "returns the {0}"
)
DecoderName = Annotated[
    str,
    typer.Argument(
        metavar="DECODER",
        help="module:function or path/to/file.py:function, which returns the decoder, or a run folder of train.",
        show_default=False,
    ),
]
LatentsFile = Annotated[
    str | None,
    typer.Argument(
        metavar="[LATENTS]",
        help="Table of latents (.npy .csv .parquet ...); of a run folder, its own by default.",
        show_default=False,
    ),
]


def latents_of(name: str, latents: str | None) -> str:
    """The latents of a decoder: the file given or, for a run folder, the folder itself."""
    if latents is not None:
        return latents
    if not is_run(name):
        raise InputError(f"LATENTS must be given, since {name!r} is not a run folder with latents of its own")
    return name


def is_run(name: str) -> bool:
    """Whether a name is that of a folder of `congruence train`."""
    return (Path(name) / "config.json").is_file()


def load_decoder(name: str) -> Any:
    """Import a decoder, which may be anything callable, or load that of a run folder."""
    if is_run(name):
        return _load_run(name)
    decoder = load_named(name, "decoder")
    if not callable(decoder):
        raise InputError(f"{name} must return a callable decoder; got {type(decoder).__name__}")
    return decoder


def _load_run(folder: str) -> Any:
    """The decoder of a training, as a torch module."""
    import torch

    from congruence.experiments.training import load_model

    class Decoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, codes: Any) -> Any:
            return self.model.decode(codes)

    return Decoder(load_model(folder)).eval()


def load_named(name: str, what: str) -> Any:
    """Import the module, look up the attribute, and call it unless it is a torch module."""
    form = FORM.format(what)
    module_name, _, attribute = name.rpartition(":")
    is_file = module_name.endswith(".py")
    invalid = not is_file and (module_name.startswith(".") or "/" in module_name)
    if invalid or not (module_name and attribute):
        raise InputError(f"cannot find a {what} called {name!r}; {form}")
    target = _import_file(module_name) if is_file else _import_module(module_name)
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise InputError(f"{module_name} has no {attribute!r}; {form}")
        target = getattr(target, part)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.nn.Module):
        return target
    if not callable(target):
        raise InputError(f"{name} must be a function; got {type(target).__name__}; {form}")
    result = _call(name, target, form)
    if result is None:
        raise InputError(f"{name} returned nothing; it must return the {what}")
    return result


def _import_module(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    with _import_errors(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                raise InputError(f"there is no module {name!r}, neither in {here} nor installed") from error
            raise


def _import_file(path: str) -> Any:
    """Run a Python file as a module; files next to it can be imported."""
    if not Path(path).is_file():
        raise InputError(f"there is no file {path!r}")
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _import_errors(path):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _import_errors(name: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(f"the module {name} needs {error.name}, which is not installed") from error
    except CongruenceError:
        raise
    except (Exception, SystemExit) as error:  # a script may exit on import
        raise InputError(f"the module {name} cannot be imported: {type(error).__name__}: {error}") from error


def _call(name: str, function: Any, form: str) -> Any:
    try:
        return function()
    except CongruenceError:
        raise
    except (Exception, SystemExit) as error:  # a script may exit when called
        hint = f"; {form}" if isinstance(error, TypeError) else ""
        raise InputError(f"{name} fails when called: {type(error).__name__}: {error}{hint}") from error
