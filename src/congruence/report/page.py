"""Filling a template: every page shares one frame, one style, one script and one way to write numbers."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata, resources
from typing import Any

from congruence.report import words
from congruence.report.figures.svg import PALETTE


def fill(template: str, **values: Any) -> str:
    """Return the page that a template of this folder makes of `values`; text is escaped, names must be known."""
    return str(_environment().get_template(template).render(values))


@cache
def _environment() -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "between": words.between,
        "percent": words.percent,
        "setting": words.setting,
        "prose": words.prose,
        "step": words.step,
    }
    environment.globals |= {
        "palette": PALETTE,
        "marks": words.RESOLUTIONS | words.STATUSES,
        "meanings": words.GROUPS,
        "undefined": words.UNDEFINED,
        "versions": _versions(),
    }
    return environment


def _read(name: str) -> str:
    return resources.files("congruence.report").joinpath(name).read_text(encoding="utf-8")


def _versions() -> list[tuple[str, str]]:
    from congruence import __version__

    found: list[tuple[str, str]] = [("python", platform.python_version()), ("congruence", __version__)]
    for name in ("numpy", "scipy", "scikit-learn"):
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    return found
