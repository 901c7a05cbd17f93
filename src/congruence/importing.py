"""Import a model or a decoder by its name: `mypackage.model:load` or `path/to/file.py:load`. Its code is run."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from congruence.errors import CongruenceError, InputError, is_failure

FORM = (
    "name a {0} as package.module:function or path/to/file.py:function, where the function takes no arguments and "
    "returns the {0}"
)


def load_named(name: str, what: str) -> Any:
    """Import the module, look up the attribute, and call it unless it is a torch module."""
    return call_named(find_named(name, what), name, what)


def find_named(name: str, what: str) -> Any:
    """Import the module and look up the attribute, which is a torch module or a function or class that makes one."""
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
    if not callable(target):
        raise InputError(f"{name} must be a function; got {type(target).__name__}; {form}")
    return target


def call_named(target: Any, name: str, what: str, offered: Mapping[str, Any] | None = None) -> Any:
    """Call a function or class with those of the offered arguments that it has; a torch module is returned as it is."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.nn.Module):
        return target
    form = FORM.format(what)
    given = {key: value for key, value in (offered or {}).items() if key in parameters_of(target)}
    try:
        result = target(**given)
    except CongruenceError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        hint = f"; {form}" if isinstance(error, TypeError) else ""
        raise InputError(f"{name} fails when called: {type(error).__name__}: {error}{hint}") from error
    if result is None:
        raise InputError(f"{name} returned nothing; it must return the {what}")
    return result


def parameters_of(target: Any) -> tuple[str, ...]:
    """The names of the parameters of a function or class."""
    try:
        return tuple(inspect.signature(target).parameters)
    except (TypeError, ValueError):  # of some built-in ones nothing is known
        return ()


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
    except BaseException as error:
        if not is_failure(error):
            raise
        raise InputError(f"the module {name} cannot be imported: {type(error).__name__}: {error}") from error
