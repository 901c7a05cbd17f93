"""Import a decoder or a model by its name, `mypackage.model:load`, in the current folder or an installed package."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any

import typer

from congruence.errors import CongruenceError, InputError

FORM = "name a {0} as package.module:function, where the function takes no arguments and returns the {0}"
DecoderName = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="A function without arguments that returns the decoder, or a torch module.",
        show_default=False,
    ),
]
LatentsFile = Annotated[
    str, typer.Argument(metavar="LATENTS", help="Table of latents (.npy .csv .parquet ...).", show_default=False)
]


def load_decoder(name: str) -> Any:
    """Import a decoder, which may be anything callable."""
    decoder = load_named(name, "decoder")
    if not callable(decoder):
        raise InputError(f"{name} must return a callable decoder; got {type(decoder).__name__}")
    return decoder


def load_named(name: str, what: str) -> Any:
    """Import the module, look up the attribute, and call it unless it is a torch module."""
    form = FORM.format(what)
    module_name, colon, attribute = name.partition(":")
    invalid = module_name.startswith(".") or module_name.endswith((".py", "/")) or "/" in module_name
    if invalid or not (module_name and colon and attribute):
        raise InputError(f"cannot find a {what} called {name!r}; {form}")
    target = _import_module(module_name)
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
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InputError(f"there is no module {name!r}, neither in {here} nor installed") from error
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
