import sys
import types

import numpy as np
import pytest

from congruence.report.figures.svg import draw
from congruence.reproduce import recipe as recipes
from congruence.reproduce.recipe import Claim, Figure, NumberTable, Outcome, Recipe


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

    def run(job):
        first = job.parts.get("first", lambda: part("first", job))
        job.progress("half", 1, 2)
        if method.fail is not None:
            raise method.fail
        second = job.parts.get("second", lambda: part("second", job))
        mean = float(first["values"].mean() + second["one"])
        svg = draw(lambda figure: figure.subplots().plot([0, 1]), (300, 200), key="toy", label="a line from 0 to 1")
        claims = (
            Claim("It | holds.", True, f"{mean:.3f}"),
            Claim("It fails.", False, "no"),
            Claim("?", None, "few rows"),
        )
        table = NumberTable("Means", ("what", "paper", "ours"), (("mean", 0.5, mean), ("none", None, "a | b")), "In 1.")
        return Outcome("It is so.", {"mean": 0.5}, {"mean": mean}, claims, (table,), (Figure("line", "A line.", svg),))

    method.run = run
    monkeypatch.setitem(sys.modules, "toy_recipe", method)
    recipe = Recipe("toy", "Is it so?", "A toy.", "Nobody 2026", "toy_recipe")
    monkeypatch.setattr(recipes, "RECIPES", (*recipes.RECIPES, recipe))
    return method
