"""Let the reference show the real signature and docstring of functions that take the fields of an options object."""

from __future__ import annotations

import inspect
from typing import Any

import griffe


class TakesOptions(griffe.Extension):
    """Read functions decorated with `takes` from the running package instead of from their source."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace docstring and parameters of such a function."""
        if not any(str(decorator.value).startswith("takes(") for decorator in func.decorators):
            return
        verb = griffe.dynamic_import(func.path)
        func.docstring = griffe.Docstring(inspect.getdoc(verb) or "", parent=func, parser="numpy")
        func.parameters = griffe.Parameters(*map(_parameter, inspect.signature(verb).parameters.values()))


def _parameter(one: inspect.Parameter) -> griffe.Parameter:
    kind = griffe.ParameterKind[one.kind.name.lower()]
    default = None if one.default is one.empty else repr(one.default)
    return griffe.Parameter(one.name, annotation=str(one.annotation), kind=kind, default=default)
