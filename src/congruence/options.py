"""Options of a verb: one frozen dataclass defines the keywords of the function and the flags of the command.

A field made by `option` carries its default, its help text and the panel of ``--help`` it belongs to. `takes` makes
a verb accept the fields as keywords and completes its docstring; `congruence.cli` builds the flags from these fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

DATA, METHOD, OUTPUT = "Input", "Method", "Output"  # panels of --help
ELSEWHERE = {"random_state": "seed", "n_splits": "folds", "n_folds": "folds"}  # names that scikit-learn uses
R = TypeVar("R")


def option(
    default: Any,
    help: str,
    *,
    panel: str = METHOD,
    flag: str | None = None,
    metavar: str | None = None,
    in_shell: bool = True,
) -> Any:
    """Declare one option of a verb: a dataclass field with its default and its help text.

    `flag` names the command-line flag if it differs from the field (with dashes for underscores). An option that
    exists only in Python (a callable, an array) has ``in_shell=False``.
    """
    metadata = {"help": help, "panel": panel, "flag": flag, "metavar": metavar, "in_shell": in_shell}
    if isinstance(default, list | dict | set):
        raise TypeError("an option needs an immutable default")
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """How rows are read; most verbs have these options."""

    id: str | None = option(None, "Column with row ids, by which rows are paired.", panel=DATA)
    features: str | Sequence[str] | None = option(None, "Columns with the values, e.g. 'emb_*'.", panel=DATA)
    metadata: str | Sequence[str] | None = option(
        None, "Columns with metadata, not values, e.g. 'plate,well'.", panel=DATA
    )
    key: str | None = option(None, "Array to read from a file with several, e.g. an obsm key.", panel=DATA)
    delimiter: str | None = option(None, "Between the cells of csv files, e.g. ';' or tab; else detected.", panel=DATA)
    header: bool | None = option(None, "Whether csv files begin with column names; else detected.", panel=DATA)


def reading(options: Any) -> dict[str, Any]:
    """The options for reading a table, as keywords of `congruence.tables.as_table`."""
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(ReadOptions)}


def takes(options: type) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Make a function with a parameter `options` accept the fields of the dataclass as keywords.

    Options that its docstring does not describe are added to it, with type, default and help text.
    """
    fields = {f.name: f for f in dataclasses.fields(options)}

    def decorate(verb: Callable[..., R]) -> Callable[..., R]:
        own = inspect.signature(verb)
        others = [p for p in own.parameters.values() if p.name != "options"]
        added = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
            for f in fields.values()
        ]

        @functools.wraps(verb)
        def call(*args: Any, options: Any = None, **keywords: Any) -> R:
            picked = {name: keywords.pop(name) for name in list(keywords) if name in fields}
            unknown = [name for name in keywords if name not in own.parameters]
            if unknown:
                known = [*fields, *(p.name for p in others if p.kind is not p.VAR_POSITIONAL)]
                near = [one for one in (ELSEWHERE.get(unknown[0]),) if one in known]
                near = near or difflib.get_close_matches(unknown[0], known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
                raise TypeError(f"{verb.__name__}() got an unexpected keyword argument {unknown[0]!r}; {hint}")
            chosen = defaults() if options is None else options
            return verb(*args, options=dataclasses.replace(chosen, **picked), **keywords)

        defaults = options
        call.__signature__ = own.replace(parameters=[*others, *added])  # type: ignore[attr-defined]
        call.__doc__ = _describe(inspect.getdoc(verb) or "", list(fields.values()))
        return call

    return decorate


def _describe(doc: str, fields: Sequence[Any]) -> str:
    """Add an entry for each option that is missing from the section "Parameters" of a docstring in numpy style."""
    section = re.search(r"(?<=Parameters\n----------\n).*?(?=\n\n[A-Z][a-z]+\n---|\Z)", doc, re.DOTALL)
    if section is None:
        return doc
    written = set(re.findall(r"^(\w+) :", section[0], re.MULTILINE))
    entries = [
        f"\n{field.name} : {field.type}, default {field.default!r}\n    {field.metadata['help']}"
        for field in fields
        if field.name not in written
    ]
    return doc[: section.end()] + "".join(entries) + doc[section.end() :]
