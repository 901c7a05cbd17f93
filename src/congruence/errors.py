"""The exceptions and warnings of this package.

Every message names the argument or file, the value received and what is expected. The command line
prints the message alone and exits with code 2.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from unicodedata import category

LONGEST = 1500  # characters of a message; names from a damaged file may be of any length


class CongruenceError(Exception):
    """Base of the errors of this package; the message is one sentence."""

    def __init__(self, message: str = "") -> None:
        text = printable(message)
        super().__init__(text if len(text) <= LONGEST else text[: LONGEST - 4] + " ...")


class Terminated(SystemExit):
    """The process received SIGTERM or SIGHUP; the exit code is 143 or 129."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(128 + number)
        self.number = number


class InputError(CongruenceError, ValueError):
    """An argument or an array cannot be used as it is."""


class UnknownKeyError(InputError, KeyError):
    """A result has nothing under this key; the message lists the keys it has."""

    __str__ = Exception.__str__  # KeyError would print the message in quotes


class TableError(InputError):
    """A file cannot be read as, joined into or written as an embedding table."""


def is_failure(error: BaseException) -> bool:
    """Whether it is an error, and not an interruption: libraries in Rust, and scripts that exit, raise others, too."""
    return not isinstance(error, KeyboardInterrupt | GeneratorExit | Terminated)


@contextlib.contextmanager
def one_sentence(
    failure: str, reason: Callable[[BaseException], str] | None = None, kind: type[InputError] = InputError
) -> Iterator[None]:
    """Turn what a library or a user's function raises into one sentence; errors of congruence stay as they are.

    The sentence is the `failure` and the `reason` of an error, by default its type and message.
    """
    try:
        yield
    except CongruenceError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        text = f"{type(error).__name__}: {error}" if reason is None else reason(error)
        raise kind(f"{failure}: {text}") from error


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Add the name of a table to an error about its rows: sums of rows, here or on workers, do not know it."""
    try:
        yield
    except InputError as error:
        if re.search(rf"(?<!\w){re.escape(printable(name))}(?!\w)", str(error)):
            raise
        raise type(error)(f"{name}: {error}") from error


class NotInvertibleError(CongruenceError, ArithmeticError):
    """The map loses information, so it has no inverse."""


class MissingDependencyError(CongruenceError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""


class CongruenceWarning(UserWarning):
    """Base of the warnings of this package."""

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class NotConvergedWarning(CongruenceWarning):
    """An iterative method stopped at its limit, so its result depends on where it started."""


class CollapsedWarning(CongruenceWarning):
    """Some latents or components of a trained model carry no information about the data, so they are not assessed."""


class FewRowsWarning(CongruenceWarning):
    """There are too few rows for the width of the data, so a number is less certain than it seems."""


class FewOutputsWarning(CongruenceWarning):
    """The decoder does not have more outputs than latents, so criteria at a point hold for any decoder."""


class PairedByPositionWarning(CongruenceWarning):
    """Some runs have row ids and others do not, so rows are paired by their position."""


class InputWarning(CongruenceWarning):
    """A column was taken as the row id or left out, or rows were left out, without the user having named them."""


def warn_caller(message: str, kind: type[Warning]) -> None:
    """Issue a warning that points to the line which called this package, not to a line of the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "congruence":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)


def _code(character: str) -> str:
    return character.encode("unicode_escape").decode()


def printable(text: str, escape: Callable[[str], str] = _code) -> str:
    """Return a text with control characters escaped: names from a file may hold line breaks and terminal codes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or category(c) == "Zs" else escape(c) for c in text)


def printable_lines(text: str, escape: Callable[[str], str] = _code) -> str:
    """Return a text of several lines with all control characters but the line breaks escaped."""
    return "\n".join(printable(line, escape) for line in text.split("\n"))
