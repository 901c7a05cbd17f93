"""Checks of arguments: each returns the value, or raises an error that names the argument and what is expected."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import Any

from congruence.errors import InputError, MissingDependencyError


def check_integer(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """An integer from `least` to `most`; True and False are refused."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputError(f"{name} must be an integer of at least {least}; got {value!r}")
    number = int(value)
    if number < least or (most is not None and number > most):
        limit = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name} must be an integer {limit}; got {value!r}")
    return number


def check_integers(least: int, **values: Any) -> None:
    """Several arguments, each an integer of at least `least`."""
    for name, value in values.items():
        check_integer(name, value, least)


def check_seed(value: Any, name: str = "seed") -> int:
    """An integer that numpy, scikit-learn and torch all accept as a seed."""
    return check_integer(name, value, 0, 2**32 - 1)


def check_number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, open_low: bool = False
) -> float:
    """A finite number from `low` to `high`; `open_low` excludes `low` itself."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or not low <= value <= high or (open_low and value == low):
        raise InputError(f"{name} must be {_range(low, high, open_low)}; got {value!r}")
    return float(value)


def _range(low: float, high: float, open_low: bool) -> str:
    above = f"above {low:g}" if open_low else f"at least {low:g}"
    if math.isinf(low) and math.isinf(high):
        return "a finite number"
    if math.isinf(high):
        return f"a finite number {above}"
    return f"a number at most {high:g}" if math.isinf(low) else f"a number {above} and at most {high:g}"


def check_choice(name: str, value: Any, allowed: Collection[Any]) -> Any:
    """One of the allowed values."""
    if not any(value is one or (type(value) is type(one) and value == one) for one in allowed):
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def check_names(
    name: str,
    values: Any,
    allowed: Collection[str],
    *,
    shortcuts: Mapping[str, Collection[str]] | None = None,
    least: int = 1,
) -> tuple[str, ...]:
    """At least `least` different names among those allowed; a shortcut, such as "all", expands to several."""
    shortcuts = shortcuts or {}
    known = f"{''.join(f'{one!r} or ' for one in shortcuts)}a list of names from {', '.join(allowed)}"
    if isinstance(values, str) and values in shortcuts:
        values = [values]
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be {known}; got {values!r}")
    names = tuple(values)
    if len(names) == 1 and names[0] in shortcuts:
        return tuple(shortcuts[names[0]])
    if len(names) < least or any(one not in allowed for one in names):
        wrong = next((one for one in names if one not in allowed), list(names))
        raise InputError(f"{name} must be {known}; got {wrong!r}")
    if len(set(names)) < len(names):
        raise InputError(f"{name} must not repeat a name; got {', '.join(names)}")
    return names


def require(module: str, what: str, extra: str) -> Any:
    """Import an optional library, or raise an error that names the feature and the command to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise MissingDependencyError(f"{what} needs {package}: pip install 'congruence[{extra}]'") from error
