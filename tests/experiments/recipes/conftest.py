import sys
import types

import numpy as np
import pytest

from congruence.document import share
from congruence.experiments.recipes import recipe as recipes
from congruence.experiments.recipes.claims import Claim, Estimate, Rule
from congruence.experiments.recipes.recipe import Recipe
from congruence.experiments.recipes.result import Presentation, RecipeFigure, number_table
from congruence.report.figures.svg import Drawing
from congruence.result import Finding


@pytest.fixture
def toy(monkeypatch):
    """A recipe of two parts that counts how often each is computed; `fail` stops it before the second."""
    method = types.ModuleType("toy_recipe")
    method.EDITION = 1
    method.PARAMETERS = {scale: {"rows": 3} for scale in recipes.SCALES}
    method.computed, method.fail = [], None

    def part(name, job):
        method.computed.append(name)
        return {"values": np.random.default_rng(job.seed).normal(size=job.parameters["rows"]), "one": 1.5}

    def compute(job):
        first = job.parts.get("first", lambda: part("first", job))
        job.progress("half", 1, 2)
        if method.fail is not None:
            raise method.fail
        second = job.parts.get("second", lambda: part("second", job))
        return {"mean": float(first["values"].mean() + second["one"])}

    def present(ours, settings):
        mean = ours["mean"]
        drawing = Drawing(lambda axes: axes.plot([0, 1]), (300, 200), "a line from 0 to 1", "toy")
        findings = (
            Claim("holds", "It | holds.", "Nobody 2026, section 1", (Rule("the mean", low=0.0),), "none").judge(
                Estimate(mean, 0.5, 3.0), evidence=f"{mean:.3f}", null=0.0
            ),
            Finding("fails", "It fails.", "fails", evidence="no"),
            Finding("unknown", "?", "unknown", evidence="few rows", number=float("nan")),
        )
        rows = (("mean", 0.5, mean), ("none", None, "a | b"), ("share", "few", share(0.25)), ("no", 1, float("nan")))
        return Presentation(
            headlines=("It is so.", "Mostly."),
            findings=findings,
            paper={"mean": 0.5},
            tables=(number_table("Means", ("what", "paper", "ours"), rows, "In 1."),),
            figures=(RecipeFigure("line", "A line.", drawing),),
            words={"curve": "The curve"},
        )

    method.compute, method.present = compute, present
    monkeypatch.setitem(sys.modules, "toy_recipe", method)
    notes, terms = ("{curve} is ours.",), (("mean", "the sum over the count"),)
    recipe = Recipe("toy", "Is it so?", "A toy.", "Nobody 2026", "toy_recipe", notes, terms)
    monkeypatch.setattr(recipes, "RECIPES", (*recipes.RECIPES, recipe))
    return method
