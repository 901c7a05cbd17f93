"""Models of your own: torch modules with `loss`, `encode` and `decode`, given as objects, as classes or by name."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from congruence.errors import CongruenceError, CongruenceWarning, InputError
from congruence.importing import call_named, find_named, parameters_of
from congruence.rows.devices import GENERATORS

RECORDS = ("model", "code", "parameters")  # entries of a config that are no arguments of the class
_configs: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()  # of models built here


@runtime_checkable
class Trainable(Protocol):
    """What a torch module needs so that it can be trained and leaves a complete run folder.

    Inputs x are rows (n, p) or images (n, channels, height, width), as floats of the type of the weights; images are in
    [0, 1]. A model with a method `pixels` or `numbers` gets images as they are stored, uint8 if they are.
    """

    def loss(self, x: Any) -> Any:
        """A scalar to minimise, or a mapping of named scalars of which "loss" is minimised and all are logged."""

    def encode(self, x: Any) -> Any:
        """The codes of inputs, (n, d)."""

    def decode(self, codes: Any) -> Any:
        """The inputs that codes stand for, of the shape of x."""


METHODS = ("loss", "encode", "decode")


def check_trainable(model: Any, rows: Sequence[Any]) -> None:
    """Refuse, before a folder is made, a model that `Trainable` does not describe; `rows` are a few rows of its input.

    The three methods are called once, in evaluation mode; weights and random numbers stay as they are.
    """
    import torch

    kind = type(model).__name__
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model must be a torch module with loss, encode and decode; got a {kind}")
    missing = [name for name in METHODS if not callable(getattr(model, name, None))]
    if missing:
        raise InputError(
            f"model must have the methods loss, encode and decode; {kind} has no {missing[0]}; "
            "congruence.experiments.training.loop.optimise trains any module with a loss"
        )
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        raise InputError(f"model must have weights to train; {kind} has none that require a gradient")
    device = weights[0].device
    batch = [torch.as_tensor(row).to(device) for row in rows]
    shape = tuple(batch[0].shape)
    with _evaluating(model), GENERATORS, torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        found = _call(model, "loss", batch)
        loss: Any = found.get("loss") if isinstance(found, Mapping) else found
        if not torch.is_tensor(loss) or loss.ndim or not loss.requires_grad:
            wanted = 'a scalar tensor that depends on the weights, or a mapping with one called "loss"'
            raise InputError(f"{kind}.loss must return {wanted}; got {_describe(loss)}")
        with torch.no_grad():
            codes = _call(model, "encode", batch)
            stored = _call(model, "evaluated", batch) if hasattr(model, "evaluated") else codes
            if not torch.is_tensor(stored) or stored.ndim != 2 or len(stored) != shape[0]:
                raise InputError(f"{kind}.encode must return codes of shape ({shape[0]}, d); got {_describe(stored)}")
            decoded = _call(model, "decode", [codes])
            if not torch.is_tensor(decoded) or tuple(decoded.shape) != shape:
                raise InputError(
                    f"{kind}.decode must return the shape of the inputs, {shape}; got {_describe(decoded)}"
                )


def _call(model: Any, name: str, batch: Sequence[Any]) -> Any:
    try:
        return getattr(model, name)(*batch)
    except CongruenceError:
        raise
    except Exception as error:
        given = " and ".join(_describe(one) for one in batch)
        raise InputError(f"{type(model).__name__}.{name} fails on {given}: {type(error).__name__}: {error}") from error


def _describe(value: Any) -> str:
    if not hasattr(value, "shape"):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def is_own(config: Mapping[str, Any]) -> bool:
    """Whether the config of a model names code of the user's: `file.py:Class` or `package.module:function`."""
    return ":" in str(config.get("model"))


def name_of(maker: Any) -> str:
    """The name by which a class or function can be imported again; one without a file has no colon in it."""
    name, module = getattr(maker, "__qualname__", type(maker).__name__), getattr(maker, "__module__", "__main__")
    file = getattr(sys.modules.get(module), "__file__", None)
    if "<" in name or module == "__main__" or not file:  # local, or of a script or notebook
        return name
    return f"{module}:{name}" if "." in module else f"{Path(file).resolve()}:{name}"


def own_config(name: str, shape: Sequence[int], given: Mapping[str, Any], maker: Any = None) -> dict[str, Any]:
    """The config of a model of the user's, without its seed; `given` are arguments that the class must have."""
    accepted = () if maker is None else parameters_of(maker)
    for option in given:
        if option not in accepted:
            raise InputError(f"{option} is not an option of {name}, which has {', '.join(accepted) or 'none'}")
    file, colon, attribute = name.rpartition(":")
    code = {}
    if file.endswith(".py"):
        path = Path(file).resolve()
        name, code = f"{path}{colon}{attribute}", {"code": _digest(path)}
    return {"model": name, **code, "shape": list(shape), **given}


def build_own(config: Mapping[str, Any], maker: Any = None) -> Any:
    """Make a model of the user's from its config: a class or function is called, a module is returned as it is.

    The class gets those of the arguments in the config, `shape` and `seed` among them, that it has parameters for.
    torch's generator has the seed while it is called, so that a class without a parameter `seed` can do without.
    """
    import torch

    name = str(config["model"])
    target = find_named(name, "model") if maker is None else maker
    with GENERATORS, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(config.get("seed", 0)))
        model = call_named(target, name, "model", {k: v for k, v in config.items() if k not in RECORDS})
    if isinstance(model, torch.nn.Module):
        _configs[model] = dict(config)
    return model


def describe_model(model: Any, shape: Sequence[int]) -> dict[str, Any]:
    """The config of a model: its own `config()`, the one it was built from, or the name of its class."""
    if model in _configs:
        return _configs[model]
    if callable(getattr(model, "config", None)):
        return dict(model.config())
    count = sum(weight.numel() for weight in model.parameters())
    return own_config(name_of(type(model)), shape, {}) | {"parameters": count}


def relative_to_run(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A config in which the file of a model is named relative to the run folder, so that both can be moved."""
    return _with_file(config, lambda path: os.path.relpath(path, folder.resolve()))


def located(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The inverse of `relative_to_run`; a file inside the run folder, which may come from elsewhere, is refused."""
    found = _with_file(config, lambda path: str((folder.resolve() / path).resolve()))
    file = Path(str(found.get("model")).rpartition(":")[0])
    if file.is_relative_to(folder.resolve()):
        raise InputError(f"{folder} names code inside itself, {file.name}, which is not run; move the file")
    if "code" in found and file.is_file() and _digest(file) != found["code"]:
        warnings.warn(f"{file} has changed since {folder} was trained", CongruenceWarning, stacklevel=3)
    return found


def _with_file(config: Mapping[str, Any], change: Any) -> dict[str, Any]:
    file, colon, attribute = str(config.get("model")).rpartition(":")
    return dict(config) | ({"model": f"{change(file)}{colon}{attribute}"} if file.endswith(".py") else {})


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""
