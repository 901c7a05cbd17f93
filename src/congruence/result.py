"""`Finding` and `Result`, which every verb returns.

A `Finding` is one claim with its status and the evidence for it; a `Result` holds the findings of one verb, describes
itself once as a `Document`, and turns into JSON, a tidy table, a figure, an HTML page or a notebook cell.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import math
import platform
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, get_args

import numpy as np

from congruence.checks import check_choice
from congruence.errors import InputError, MissingDependencyError, UnknownKeyError, printable, printable_lines
from congruence.files import InputFile, check_writable, write_text

if TYPE_CHECKING:
    from congruence.document import Document

SCHEMA_VERSION = 1  # of JSON results and saved files; increases with every incompatible change
SIGNIFICANT_DIGITS = 10  # of floats in JSON: more than users need, fewer than those that thread scheduling changes

Status = Literal["fails", "ambiguous", "unknown", "holds"]  # the worst first
Basis = Literal["certified", "supported", "not refuted", "refuted", "premise fails"]
STATUSES = cast(tuple[Status, ...], get_args(Status))
ALLOWED: Mapping[Status, tuple[Basis, ...]] = {
    "holds": ("certified", "supported"),
    "fails": ("refuted",),
    "ambiguous": ("not refuted", "premise fails"),
    "unknown": ("not refuted", "premise fails"),
}
DEFAULT: Mapping[Status, Basis] = {
    "holds": "supported",
    "fails": "refuted",
    "ambiguous": "not refuted",
    "unknown": "not refuted",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A claim, its status and the evidence for it.

    Parameters
    ----------
    name : str
        A short key, stable across versions.
    claim : str
        What is claimed, as one sentence.
    status : {"holds", "fails", "ambiguous", "unknown"}
        "ambiguous": only partly true, or the interval allows both; "unknown": too little data to decide.
    basis : {"certified", "supported", "not refuted", "refuted", "premise fails"}, optional
        "certified" holds for all inputs, "supported" held on the samples. By default it follows from the status.
    evidence : str, default ""
        The measurement, in words.
    number : float, optional
        The measured value.
    interval : pair of floats, optional
        Its interval.
    null : float, optional
        Its value under the null hypothesis.
    premises : tuple of Finding, default ()
        The premises of a theorem; see `conclude`.
    """

    name: str
    claim: str
    status: Status
    basis: Basis | None = None
    evidence: str = ""
    number: float | None = None
    interval: tuple[float, float] | None = None
    null: float | None = None
    premises: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        if self.status not in ALLOWED:
            raise InputError(f"the status of a finding is one of {', '.join(STATUSES)}, not {self.status!r}")
        if self.basis is None:
            object.__setattr__(self, "basis", DEFAULT[self.status])
        elif self.basis not in ALLOWED[self.status]:
            raise InputError(f"a finding that {self.status!r} cannot have the basis {self.basis!r}")

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain data; a finding without premises has no such entry."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(Finding) if f.name != "premises"}
        values["interval"] = None if self.interval is None else list(self.interval)
        return values | ({"premises": [p.to_dict() for p in self.premises]} if self.premises else {})


class Record:
    """A part of a result: a dataclass that turns into plain data.

    `NAMES` are its attributes in the JSON, by default all fields.
    """

    NAMES: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> Any:
        """The numbers, as in the JSON: arrays and tuples are lists, and parts are as in their own `to_dict`."""
        names = self.NAMES or [field.name for field in dataclasses.fields(cast(Any, self))]
        return {name: as_data(getattr(self, name)) for name in names}


def as_data(value: Any) -> Any:
    """Arrays and tuples as lists, mappings as dicts, objects with `to_dict` as what it returns; others unchanged."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: as_data(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [as_data(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def combine(findings: Iterable[Finding | Status]) -> Status:
    """Return the status of the claim that all findings hold: that of the worst, or "unknown" without findings."""
    present = {f.status if isinstance(f, Finding) else f for f in findings}
    return next((status for status in STATUSES if status in present), "unknown")


def status_above(low: float, high: float, limit: float = 0.0) -> Status:
    """Whether an interval lies above a limit; "ambiguous" if it contains the limit, "unknown" if an end is NaN."""
    if math.isnan(low) or math.isnan(high):
        return "unknown"
    return "holds" if low > limit else "fails" if high < limit else "ambiguous"


def conclude(name: str, claim: str, premises: Sequence[Finding], **more: Any) -> Finding:
    """Return the conclusion of a theorem: a finding whose status is never better than its premises.

    A premise that fails leaves the conclusion unknown ("premise fails"), since the theorem then does not apply.
    """
    worst = combine(premises)
    basis: Basis = "not refuted"
    if worst == "fails":
        worst, basis = "unknown", "premise fails"
    elif worst == "holds":
        basis = "certified" if all(p.basis == "certified" for p in premises) else "supported"
    return Finding(name, claim, worst, basis, premises=tuple(premises), **more)


class Result:
    """The result of a verb. Subclasses are frozen dataclasses with the fields below and further data.

    They implement `numbers` (the data of the JSON) and `rows` (one row of the tidy table at a time).
    """

    if TYPE_CHECKING:  # fields or properties of the subclasses

        @property
        def headlines(self) -> tuple[str, ...]:
            """The sentences of the answer; the first can stand alone."""

        @property
        def findings(self) -> tuple[Finding, ...]:
            """The claims that were tested."""

        @property
        def notes(self) -> tuple[str, ...]:
            """Limits of the answer, and how to make it more certain."""

        @property
        def settings(self) -> Mapping[str, Any]:
            """The options, the seed, the input files and, on the command line, the command."""

    @property
    def verdict(self) -> str:
        """The answer in a few sentences."""
        return " ".join(self.headlines)

    @property
    def status(self) -> Status:
        """Whether the main claim holds, fails, is ambiguous or unknown: the worst of the findings."""
        return combine(self.findings)

    def numbers(self) -> Mapping[str, Any]:
        """All measurements as plain data; the types are those of the JSON schema."""
        raise NotImplementedError

    def rows(self) -> Iterable[Mapping[str, Any]]:
        """The main numbers as rows with the same keys: a tidy table."""
        raise NotImplementedError

    def document(self) -> Document:
        """The result as headline, tables, figures and glossary, for any renderer.

        By default, what the function `describe` in the file ``_document.py`` of the same package returns.
        """
        room = type(self).__module__.rpartition(".")[0]
        return cast("Document", import_module(f"{room}._document").describe(self))

    def parts(self) -> Mapping[Any, Any]:
        """The values of ``result[key]`` by key: the findings, unless a subclass overrides it."""
        return {finding.name: finding for finding in self.findings}

    def __getitem__(self, key: Any) -> Any:
        parts = self.parts()
        if key not in self:
            raise UnknownKeyError(f"there is no {key!r} in this {type(self).__name__}; the keys are {_listed(parts)}")
        return parts[key]

    def _ipython_key_completions_(self) -> list[Any]:
        return list(self.parts())

    def __contains__(self, key: Any) -> bool:
        return isinstance(key, Hashable) and key in self.parts()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts())

    def to_dict(self) -> dict[str, Any]:
        """The whole result as plain data, `status` first."""
        return {
            "status": self.status,
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "numbers": dict(self.numbers()),
            "notes": list(self.notes),
            "settings": dict(self.settings),
            "versions": versions(),
            "kind": type(self).__name__,
            "schema_version": SCHEMA_VERSION,
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as JSON text, and write it to `path` if given; undefined numbers are null."""
        return _written(json_text(self.to_dict()), path)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the tidy table as CSV text, and write it to `path` if given; undefined numbers are empty."""
        return _written(_csv_text([dict(row) for row in self.rows()]), path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Return the document as Markdown text without its figures, and write it to `path` if given."""
        from congruence.report.markdown import render_markdown

        return _written(render_markdown(self.document()), path)

    def to_frame(self, backend: str = "pandas") -> Any:
        """Return the tidy table as a data frame of "pandas", "polars" or "pyarrow"."""
        rows = [dict(row) for row in self.rows()]
        columns = {name: [row.get(name) for row in rows] for name in (rows[0] if rows else {})}
        return as_frame(columns, backend)

    def report(self, path: str | Path) -> Path:
        """Write the result as one self-contained HTML page."""
        from congruence.report.html import render_html

        if not isinstance(path, str | Path):
            raise InputError(f"path must be a str or Path; got {path!r}")
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"path must end in .html; got {str(path)!r}")
        check_writable(path)
        write_text(path, render_html(self.document()))
        return path

    def plot(self, ax: Any = None) -> Any:
        """Draw the main figure on matplotlib axes (new ones unless given) and return the axes."""
        from congruence.report.figures import plot_main

        return plot_main(self.document(), ax)

    def with_command(self, command: str) -> Self:
        """Return the result with the command line among its settings."""
        return cast(Self, dataclasses.replace(cast(Any, self), settings={**self.settings, "command": command}))

    def _repr_html_(self) -> str:
        from congruence.report.html import render_cell

        return render_cell(self.document())

    def __str__(self) -> str:
        from congruence.report.terminal import render_text

        return render_text(self.document())

    def __repr__(self) -> str:
        line = f"<{type(self).__name__} {self.status}: {printable(' '.join(self.verdict.split()))}>"
        return line if len(line) <= 120 else line[:115] + " ...>"


def as_frame(columns: Mapping[str, Any], backend: str) -> Any:
    """Return columns as a data frame of the library named."""
    import narwhals as nw

    check_choice("backend", backend, ("pandas", "polars", "pyarrow"))
    try:
        import_module(backend)
        return nw.from_dict(dict(columns), backend=cast(Any, backend)).to_native()
    except ImportError as error:
        raise MissingDependencyError(f"to_frame needs {backend}: pip install {backend}") from error


def recorded(files: Iterable[InputFile]) -> dict[str, Any]:
    """The entry "inputs" of the settings: the input files of a result; empty without files."""
    entries = [dataclasses.asdict(file) for file in files]
    return {"inputs": entries} if entries else {}


@cache
def versions() -> dict[str, str]:
    """The versions of Python, of this package and of the libraries that affect the numbers of a result."""
    from congruence import __version__

    found = installed("numpy", "scipy", "scikit-learn", "torch", "lightgbm")
    own = {"python": platform.python_version(), "congruence": __version__}
    return own | {name: version for name, version in found.items() if version is not None}


def installed(*names: str) -> dict[str, str | None]:
    """The versions of packages, None of those that are not installed."""
    found: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def json_text(result: Mapping[str, Any]) -> str:
    """Write plain data as JSON; NaN and infinity, which JSON does not have, become null."""
    text = json.dumps(_plain(result), indent=2, allow_nan=False, ensure_ascii=False)
    return printable_lines(text, lambda character: json.dumps(character)[1:-1]) + "\n"


def _csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys as CSV, floats in full precision, undefined numbers empty."""
    out = io.StringIO()
    if rows:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(map(_exact, rows[0]))
        writer.writerows([_exact(value) for value in row.values()] for row in rows)
    return out.getvalue()


def _exact(value: Any) -> str:
    if isinstance(value, str):
        text = f"'{value}" if _is_formula(value) else value
        return printable_lines(text)  # a line break is quoted, as csv has it
    plain = value.item() if hasattr(value, "item") else value  # numpy scalars print their type
    return "" if plain is None or plain != plain else repr(plain)


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet would compute a cell with this text; an apostrophe before it prevents that."""
    if not text.startswith(("=", "+", "-", "@")):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return str(value) if isinstance(value, Path) else value


def _written(text: str, path: str | Path | None) -> str:
    if path is not None:
        write_text(check_writable(path), text)
    return text


def _listed(keys: Iterable[Any], most: int = 12) -> str:
    texts = [repr(key) for key in keys]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
