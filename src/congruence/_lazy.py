"""Load the public names of a package when they are first used.

The stub ``__init__.pyi`` of a package is the one list of its public names, read by type checkers and by `attach`. A
name imported there is loaded from its module on first use, so that ``import congruence`` stays light.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(
    package: str, file: str, check: Callable[[], Any] = lambda: None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the imports of its stub.

    `check` is called before a name is loaded, and raises an error if a library is missing.
    """
    homes = _homes(Path(file).with_suffix(".pyi"))

    def getattr_(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        check()
        if homes[name] == package:  # a module of its own, such as congruence.tl
            return import_module(f"{package}.{name}")
        home = import_module(homes[name])
        value = getattr(home, name) if hasattr(home, name) else import_module(f"{homes[name]}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return getattr_, lambda: sorted(homes), sorted(homes)


def _homes(stub: Path) -> dict[str, str]:
    """The module of each name that the stub imports as itself (``from m import name as name``)."""
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    return {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if alias.asname == alias.name
    }
