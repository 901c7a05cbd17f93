"""Limits of the numbers of a pair, such as ``similarity=0.3``, as gates of `compare`, and the gates of `check`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from congruence.align._options import ALLOWED, CheckOptions
from congruence.errors import InputError
from congruence.gates import Gate, check_statuses, status_gates
from congruence.maps._names import GROUPS

if TYPE_CHECKING:
    from congruence.align.comparison import Comparison, Pair
    from congruence.maps.nearness import Nearness

QUANTITIES: dict[str, tuple[str, Callable[[Nearness], float]]] = {  # of --fail-above: name in messages, and the number
    "": ("the held-out error as a share of chance", lambda near: near.of_chance.mean),
    "unexplained": ("the unexplained share of the variance", lambda near: 1 - near.r2.mean),
    "diameter": ("the held-out error as a share of the diameter", lambda near: near.held_out.mean),
    "r2": ("held-out R²", lambda near: near.r2.mean),
}


@dataclass(frozen=True)
class Limit:
    """A limit given with --fail-above: a minimum for R², of which more is better, and a maximum for all others."""

    group: str
    quantity: str
    value: float

    @property
    def name(self) -> str:
        """The group and the quantity as they are written on the command line."""
        return f"{self.group}.{self.quantity}".rstrip(".")

    def gate(self, pair: Pair) -> Gate:
        """The limit applied to one pair; an undefined number exceeds every limit."""
        of, (title, read) = f"{pair.source} -> {pair.target}", QUANTITIES[self.quantity]
        value = float(read(pair.groups[self.group]))
        passes, side = (value >= self.value, "below") if self.quantity == "r2" else (value <= self.value, "above")
        is_known = "is undefined" if math.isnan(value) else f"is {value:.4g}, {side} the limit {self.value:g}"
        message = f"{of}: {self.group}: {title} {is_known}"
        return Gate(self.name, of, self.value, value, not passes, message)


def parse_limits(texts: Iterable[str], groups: Sequence[str], nulls: int = 1) -> list[Limit]:
    """The limits written as ``GROUP=LIMIT`` or ``GROUP.QUANTITY=LIMIT``, on these groups."""
    limits: list[Limit] = []
    for text in texts:
        name, _, number = text.partition("=")
        group, _, quantity = name.partition(".")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if quantity not in QUANTITIES or name.endswith(".") or not math.isfinite(value) or value < 0:
            known = ", ".join(f"similarity.{one}" for one in QUANTITIES if one)
            raise InputError(f"--fail-above takes GROUP=LIMIT such as similarity=0.3, or {known}; got {text!r}")
        if group not in groups:
            raise InputError(f"--fail-above takes one of the groups {','.join(groups)}; got {group!r}")
        if name in [limit.name for limit in limits]:
            raise InputError(f"--fail-above takes each number once; got {name!r} twice")
        if not quantity and nulls == 0:
            raise InputError(f"--fail-above {text} is a share of the null; set --nulls to at least 1")
        limits.append(Limit(group, quantity, value))
    return limits


@dataclass(frozen=True)
class CheckGates:
    """The gates of a check: statuses that are not accepted, and limits. `options` are those that the limits need."""

    options: CheckOptions
    statuses: tuple[str, ...]
    limits: tuple[Limit, ...]

    def apply(self, result: Comparison) -> list[Gate]:
        """The gates for the result of a check."""
        return [*status_gates(result, self.statuses), *(one.gate(pair) for pair in result.pairs for one in self.limits)]


def check_gates(
    options: CheckOptions, fail_above: Iterable[str], fail_on: Iterable[str] | None, allow_unknown: bool
) -> CheckGates:
    """The gates of a check: every status but "holds" fails; with limits, these decide, and only "unknown" fails.

    Limits allow the largest of their groups, unless `allow` is given.
    """
    limits = tuple(parse_limits(fail_above, GROUPS))
    if limits:
        limited = {limit.group for limit in limits}
        largest = [group for group in ALLOWED if group in limited]
        allow = ALLOWED[-1] if limited - set(ALLOWED) else largest[-1]
        fitted = GROUPS if options.groups == "all" else dict.fromkeys([*options.groups, *limited])
        options = replace(options, allow=options.allow or allow, groups=tuple(fitted))
    if fail_on is None:
        fail_on = ("unknown",) if limits else ("fails", "ambiguous", "unknown")
    statuses = check_statuses(fail_on)
    return CheckGates(options, tuple(s for s in statuses if not (allow_unknown and s == "unknown")), limits)
