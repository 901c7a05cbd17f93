"""Write what users can import, with signatures: ``python tests/contracts/make_public_api.py`` after a wanted change."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import congruence

SNAPSHOT = Path(__file__).with_name("public_api.txt")
ROOMS = (
    "activations",
    "align",
    "batches",
    "decoder",
    "features",
    "ica",
    "maps",
    "mechanism",
    "metrics",
    "mixture",
    "tables",
)
ROOMS += ("translation",)


def describe() -> str:
    """One line for each public name, with its signature; classes with their public members."""
    lines = []
    for module in ("congruence", *(f"congruence.{room}" for room in ROOMS)):
        package = importlib.import_module(module)
        lines += [line for name in sorted(package.__all__) for line in _lines(module, name, getattr(package, name))]
    return "\n".join(lines) + "\n"


def _lines(module: str, name: str, thing: object) -> list[str]:
    if inspect.isclass(thing):
        members = [n for n in dir(thing) if not n.startswith("_")] if module == "congruence" else []
        return [f"{module}.{name}: class", *(f"{module}.{name}.{member}" for member in members)]
    if inspect.ismodule(thing):
        functions = inspect.getmembers(thing, lambda one: inspect.isfunction(one) and one.__module__ == thing.__name__)
        public = [(inner, one) for inner, one in functions if not inner.startswith("_")]
        return [line for inner, one in public for line in _lines(f"{module}.{name}", inner, one)]
    if not callable(thing):
        return [f"{module}.{name}"]
    parameters = inspect.signature(thing).parameters.values()
    return [f"{module}.{name}({', '.join(_parameter(p) for p in parameters)})"]


def _parameter(parameter: inspect.Parameter) -> str:
    return str(parameter.replace(annotation=inspect.Parameter.empty))


if __name__ == "__main__":
    SNAPSHOT.write_text(describe(), encoding="utf-8")
    print(f"{len(congruence.__all__)} names at the top level")
