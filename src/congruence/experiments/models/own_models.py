"""Models of your own: torch modules with `loss`, `encode` and `decode`, given as objects, as classes or by name."""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from congruence.activations.layers import evaluating
from congruence.errors import CongruenceWarning, InputError, one_sentence, warn_caller
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
    with evaluating(model), GENERATORS, torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
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
    with one_sentence(f"{type(model).__name__}.{name} fails on {' and '.join(map(_describe, batch))}"):
        return getattr(model, name)(*batch)


def _describe(value: Any) -> str:
    if not hasattr(value, "shape"):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


def own_config(maker: Any, shape: Sequence[int], given: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a model of the user's, without its seed: the name of its class, and a checksum of its file.

    `maker` is a class, function, module or name; `given` are arguments that it must have parameters for. The file is
    named without its folder, and a config is never enough to run it.
    """
    target = find_named(maker, "model") if isinstance(maker, str) else maker
    name, file = _name_and_file(maker)
    accepted = parameters_of(target)
    for option in given:
        if option not in accepted:
            raise InputError(f"{option} is not an option of {name}, which has {', '.join(accepted) or 'none'}")
    code = {} if file is None else {"code": _digest(file)}
    return {"model": name, **code, "shape": list(shape), **given}


def build_own(config: Mapping[str, Any], maker: Any) -> Any:
    """Make a model of the user's: a class or function, or one of that name, is called; a module is returned as it is.

    The class gets those of the arguments in the config, `shape` and `seed` among them, that it has parameters for.
    torch's generator has the seed while it is called, so that a class without a parameter `seed` can do without.
    """
    import torch

    target = find_named(maker, "model") if isinstance(maker, str) else maker
    arguments = {name: value for name, value in config.items() if name not in RECORDS}
    with GENERATORS, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(config.get("seed", 0)))
        model = call_named(target, str(config["model"]), "model", arguments)
    if isinstance(model, torch.nn.Module):
        _configs[model] = dict(config)
    return model


def describe_model(model: Any, shape: Sequence[int]) -> dict[str, Any]:
    """The config of a model: the one it was built from, its own `config()`, or the name of its class."""
    if model in _configs:
        return _configs[model]
    if callable(getattr(model, "config", None)):
        return dict(model.config())
    return own_config(model, shape, {}) | {"parameters": sum(weight.numel() for weight in model.parameters())}


def check_code(config: Mapping[str, Any], code: Any, folder: Path) -> None:
    """Warn if the file of a class has changed since a run folder was trained with it."""
    _, file = _name_and_file(code)
    if file is not None and config.get("code", _digest(file)) != _digest(file):
        warn_caller(f"{file} has changed since {folder} was trained", CongruenceWarning)


def is_module(model: Any) -> bool:
    """Whether this is a torch module, and not a class of these."""
    return hasattr(model, "state_dict") and not isinstance(model, type)


def _name_and_file(maker: Any) -> tuple[str, Path | None]:
    """The name of a class or function (of a module, its class), and the file that it is in, if that is known."""
    if isinstance(maker, str):
        module, _, name = maker.rpartition(":")
        file = Path(module) if module.endswith(".py") else None
    else:
        kind = type(maker) if is_module(maker) else maker
        name, module = getattr(kind, "__qualname__", type(kind).__name__), getattr(kind, "__module__", "")
        path = getattr(sys.modules.get(module), "__file__", None)
        file = Path(path) if path and "<" not in name else None  # not of a notebook, and not local
    if file is not None and file.is_file():
        return f"{file.name}:{name}", file
    return (maker if isinstance(maker, str) else name), None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
