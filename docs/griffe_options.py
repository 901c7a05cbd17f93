"""Let the reference show real signatures: the fields of options objects, and the values of constants."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe


class TakesOptions(griffe.Extension):
    """Read functions decorated with `takes` from the running package instead of from their source."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace docstring and parameters of such a function; of others the names of constants by their values."""
        if not any(str(decorator.value).startswith("takes(") for decorator in func.decorators):
            for one in func.parameters:
                if re.fullmatch("[A-Z][A-Z_]+", str(one.default)):
                    value = getattr(griffe.dynamic_import(func.module.path), str(one.default), None)
                    one.default = repr(value) if isinstance(value, int | float | str) else one.default
            return
        verb = griffe.dynamic_import(func.path)
        func.docstring = griffe.Docstring(inspect.getdoc(verb) or "", parent=func, parser="numpy")
        func.parameters = griffe.Parameters(*map(_parameter, inspect.signature(verb).parameters.values()))


def _parameter(one: inspect.Parameter) -> griffe.Parameter:
    kind = griffe.ParameterKind[one.kind.name.lower()]
    default = None if one.default is one.empty else repr(one.default)
    return griffe.Parameter(one.name, annotation=str(one.annotation), kind=kind, default=default)
