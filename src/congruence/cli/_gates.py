"""Flags for gates, and the exit code 1 where one is exceeded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Optional

import typer

from congruence import gates
from congruence.cli import _command as cli
from congruence.gates import Gate
from congruence.gates import record_gates as record_gates
from congruence.gates import status_gates as status_gates
from congruence.options import OUTPUT

FailOn = Annotated[
    Optional[str],
    cli.flag(
        help="Exit with 1 if the result, or a part of it, has one of these statuses: fails, ambiguous, unknown, holds.",
        panel=OUTPUT,
        metavar="STATUS,...",
    ),
]
FailAbove = Annotated[
    Optional[list[str]],
    cli.flag(
        help="Exit with 1 if the held-out error of a pair is above this share of chance; may be repeated. "
        "GROUP.unexplained is the share of the variance, GROUP.diameter that of the diameter; GROUP.r2 is a "
        "minimum of R².",
        panel=OUTPUT,
        metavar="GROUP=LIMIT",
    ),
]


def check_statuses(fail_on: str | None) -> tuple[str, ...]:
    """The statuses given with --fail-on, before any work is done."""
    return () if fail_on is None else gates.check_statuses(cli.listed(fail_on))


def exit_by_gates(gates: Iterable[Gate]) -> None:
    """Print which gates are exceeded, and exit with code 1 if any is."""
    exceeded = [gate for gate in gates if gate.exceeded]
    for gate in exceeded:
        cli.say(gate.message)
    if exceeded:
        raise typer.Exit(1)
