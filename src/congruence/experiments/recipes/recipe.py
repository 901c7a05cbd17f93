"""What a recipe is, and the list of all recipes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from congruence.errors import InputError
from congruence.experiments.recipes.claims import read_text
from congruence.progress import Progress

if TYPE_CHECKING:
    from congruence.experiments.recipes.result import Presentation, RecipeFigure
    from congruence.parts import Parts

SCALES = {
    "smoke": "seconds, a check that it runs",
    "small": "minutes on two cores",
    "paper": "minutes on one large GPU",
    "full": "the published budget, or our best estimate of it; not run by us",
}


@dataclass(frozen=True)
class RecipeJob:
    """What a recipe receives: its size, seed and device, and the parts that were computed before."""

    seed: int
    device: str  # "cpu", "cuda" or "cuda:1"
    parameters: Mapping[str, Any]  # those of the scale
    parts: Parts
    progress: Progress
    drawn: list[RecipeFigure] = field(default_factory=list)  # figures of what is too large to keep as numbers


class Method(Protocol):
    """The module of a recipe: the parameters of each scale, an edition, and two functions.

    `compute` trains and measures; `present` makes sentences, findings, tables and figures of nothing but the numbers
    that `compute` returned and the settings, so that they can be made again without training.

    `EDITION` grows whenever the same settings would give other numbers, so that old parts are not reused. A recipe
    that works with several data sets lists them in `DATA`, and the one of a scale is its parameter "data"; `DATA` maps
    them to their parameters by scale where these differ. If it takes several at once ("rooms,sprites"), it has
    `SEVERAL = True`. An optional function `plan(parameters, device, parts)`
    returns a sentence about what will be computed and how long that takes.
    """

    EDITION: int
    PARAMETERS: Mapping[str, Mapping[str, Any]]  # by scale; all that JSON can hold

    def compute(self, job: RecipeJob) -> Mapping[str, Any]:
        """Return all numbers of the experiment, as plain data or what `as_numbers` turns into it."""

    def present(self, ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
        """Judge the claims, and make the tables and figures."""


@dataclass(frozen=True)
class Recipe:
    """One table, figure or example of a paper that can be reproduced."""

    name: str
    question: str
    sentence: str  # what it does, for the list
    source: str  # what it reproduces
    module: str
    notes: tuple[str, ...] = ()  # choices of ours that the paper does not state, with placeholders for settings
    terms: tuple[tuple[str, str], ...] = ()  # words of the tables and figures, with their meaning
    paper: Mapping[str, Any] = field(default_factory=dict)  # what the paper says

    def method(self) -> Method:
        """Load the code of the recipe; only now are heavy packages imported."""
        return cast(Method, import_module(self.module))


NAMES = (
    "statistical-versus-structural", "sprite-isometry", "mnist-bilipschitz", "isometry-regularisers", "deconfounding",
    "disentanglement", "metric-validity", "dictionary-stability", "model-pairs", "mechanistic-overlap",
    "mixture-likelihood", "mixture-pinwheel", "mixture-mnist",
)  # fmt: skip


def _read_recipe(name: str) -> Recipe:
    text, module = read_text(name), name.replace("-", "_")
    words = {key: text[key] for key in ("question", "sentence", "source")}
    home = f"{__package__}.{module}" + (".run" if Path(__file__).with_name(module).is_dir() else "")
    said = {"notes": tuple(text["notes"]), "terms": tuple(text["terms"].items()), "paper": text.get("paper", {})}
    return Recipe(name, **words, module=home, **said)


RECIPES = tuple(map(_read_recipe, NAMES))


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name; an unknown name is refused with similar names."""
    by_name = {recipe.name: recipe for recipe in RECIPES}
    if name in by_name:
        return by_name[name]
    near = [n for n in by_name if name and name in n] or difflib.get_close_matches(name, by_name, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(by_name)}"
    raise InputError(f"there is no recipe {name!r}; {hint}")
