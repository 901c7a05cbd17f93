"""The headline, the tables, the page and the JSON of `deconfound` agree, and error rates are as stated.

All through the public function, its JSON and its document.
"""

import dataclasses
import inspect
import json
import re

import numpy as np
import pytest
import typer

from congruence import ICA, deconfound, resolve
from congruence.batches._options import DeconfoundOptions
from congruence.cli import deconfound as deconfound_command
from congruence.cli import resolve as resolve_command
from congruence.document import Table
from congruence.formatting import UNDEFINED
from congruence.ica._options import ResolveOptions

FAST = {"control": "none", "rounds": 8, "concentration": (), "rotations": 1}
BARE = {"leakage": False, "retrieval": False, "profiles": False}


def numbers_of(result):
    return json.loads(result.to_json())["numbers"]


def plates(seed, genes=2, plates=10, d=6, shift=0.7, effect=0.0, wells=4):
    """Gaussian wells: 8 controls and 4 wells of each gene on each plate."""
    rng = np.random.default_rng(seed)
    names = [f"g{i:02}" for i in range(genes)]
    gene = np.tile(np.repeat(["none", *names], [8, *[wells] * genes]), plates)
    plate = np.repeat(np.arange(plates), 8 + wells * genes)
    x = rng.normal(size=(len(gene), d)) + shift * rng.normal(size=(plates, d))[plate]
    for i, name in enumerate(names):
        x[gene == name, i % d] += effect
    return x, gene.astype(object), plate


@pytest.fixture(scope="module")
def uneven():
    """One gene is on all plates, another on three of them only, a third on plates of one week."""
    x, gene, plate = plates(3, genes=3, plates=9, effect=1.5)
    keep = ~((gene == "g01") & (plate > 2)) & ~((gene == "g02") & (plate > 1))
    week = plate // 3
    x += 1.5 * np.random.default_rng(0).normal(size=(3, x.shape[1]))[week]
    frame = {f"emb_{i}": x[keep, i] for i in range(x.shape[1])}
    frame |= {"gene": gene[keep].astype(str), "plate": plate[keep], "week": week[keep]}
    return frame


@pytest.fixture(scope="module")
def judged(uneven):
    import pandas as pd

    frame = pd.DataFrame(uneven)
    return deconfound(frame, batch="plate", target="gene", features="emb_*", conditions=("ica",), **FAST)


@pytest.fixture(scope="module")
def by_week(uneven):
    import pandas as pd

    frame = pd.DataFrame(uneven)
    asked = {"batch": "plate", "cluster": "week", "target": "gene", "features": "emb_*", "conditions": ("ica",)}
    return deconfound(frame, **asked, **FAST)


def test_the_difference_in_the_headline_is_that_of_the_means_in_the_table(judged):
    numbers = numbers_of(judged)
    means = {
        name: np.mean([one["scores"][name]["mean"] for one in numbers["targets"] if one["scores"][name]["mean"]])
        for name in ("base", "ica")
    }
    assert numbers["overall"]["ica"]["difference"] == pytest.approx(means["ica"] - means["base"])
    shown = re.search(r"base (0\.\d+), ICA (0\.\d+)", judged.verdict)
    said = float(re.search(r"AUROC ([−+][\d.]+)", judged.verdict).group(1).replace("−", "-"))
    assert float(shown.group(2)) - float(shown.group(1)) == pytest.approx(said, abs=0.0011)  # rounded


def test_only_targets_with_a_score_are_counted(by_week):
    """The third gene is on one week, which is held out whole, so that it has no score."""
    scored = [one for one in numbers_of(by_week)["targets"] if one["scores"]["base"]["mean"] is not None]
    assert len(scored) == 1
    assert re.search(r"Mean AUROC over (\d+)", by_week.verdict).group(1) == "1"


def test_twelve_targets_without_effect_get_no_mark():
    """Uncorrected, 28 % of such screens show at least one target as better or worse."""
    marked = 0
    for seed in range(6):
        x, gene, plate = plates([1, seed], genes=12, effect=0.0)
        result = deconfound(x, target=gene, batch=plate, conditions=("whitened",), **FAST, **BARE)
        statuses = [one["paired"]["whitened"]["status"] for one in numbers_of(result)["targets"]]
        marked += any(status in ("holds", "fails") for status in statuses)
    assert marked == 0


def test_the_error_of_a_target_is_that_between_screens():
    """Folds share training rows, and the wells of a plate its shift: errors over folds alone are too small."""
    squares, errors = [], []
    for seed in range(20):
        x, gene, plate = plates([2, seed], genes=4, plates=12)
        result = deconfound(x, target=gene, batch=plate, conditions=(), **FAST, **BARE)
        scores = [one["scores"]["base"] for one in numbers_of(result)["targets"]]
        squares += [(score["mean"] - 0.5) ** 2 for score in scores]
        errors += [score["error"] ** 2 for score in scores]
    assert np.mean(squares) / np.mean(errors) < 1.5


def test_the_chance_line_is_that_of_the_largest_value_which_is_drawn():
    x, gene, plate = plates(4, genes=12, d=150, effect=0.0)
    asked = {"conditions": (), "leakage": False, "retrieval": False}
    profile = numbers_of(deconfound(x, target=gene, batch=plate, **FAST, **asked))["profiles"]["base"]
    line = profile.get("level", np.median(profile["noise"]))  # of earlier versions, which drew the median
    assert np.mean(np.max(profile["biological"], axis=0) > line) < 0.1


def test_reservations_are_said_before_the_tables(judged, by_week):
    """Nested batches, batch variance, too few batches; the ceiling has a test of its own."""
    said = " ".join(judged.headlines)
    assert "(week)" in said
    share = re.search(r"Batches explain ([\d.]+) % of the variance of controls", said)
    assert 0.4 < float(share.group(1)) / 100 < 0.9
    assert "1 target scored on fewer than 3 batches has no interval: g02" in said
    assert "g01" in by_week.headlines[1]
    assert "g02" in by_week.headlines[1]


def test_a_ceiling_is_said_before_the_tables():
    x, gene, plate = plates(5, effect=9.0, wells=8)
    result = deconfound(x, target=gene, batch=plate, conditions=("whitened",), **FAST | {"rounds": 30}, **BARE)
    assert min(one.scores["base"].mean for one in result.targets) > 0.97
    assert any("2 of 2 targets have an AUROC of at least 0.97" in line for line in result.headlines)


def test_replicates_have_a_mean_average_precision_and_a_p_value(judged):
    row = json.loads(judged.to_frame().to_json(orient="records"))[0]
    assert {"map", "map_p"} <= set(row)
    assert 0 <= row["map"] <= 1
    assert 0 < row["map_p"] <= 1


def tables_in(blocks):
    for block in blocks:
        if isinstance(block, Table):
            yield block
        else:
            yield from tables_in(getattr(block, "blocks", ()))


@pytest.mark.parametrize("which", ["judged", "by_week"])
def test_every_dash_has_a_reason(which, request):
    """Some table of the results has a dash, and the note below each of them explains it."""
    document = request.getfixturevalue(which).document()
    dashed = [
        table
        for section in document.sections
        for table in tables_in(section.blocks)
        if any(getattr(cell, "text", cell) == UNDEFINED for row in table.rows for cell in row)
    ]
    assert dashed
    assert [table.label for table in dashed if UNDEFINED not in table.note] == []


def shell_defaults(command):
    """The defaults of the flags of a command, by name."""
    parameters = inspect.signature(command).parameters.values()
    plain = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    return {name: one.default if isinstance(one, typer.models.OptionInfo) else one for name, one in plain.items()}


@pytest.mark.parametrize(
    ("command", "verb", "options"),
    [
        (deconfound_command.deconfound, deconfound, DeconfoundOptions),
        (resolve_command.resolve, resolve, ResolveOptions),
    ],
)
def test_python_and_the_shell_have_the_same_defaults(command, verb, options):
    in_shell, in_python = shell_defaults(command), inspect.signature(verb).parameters
    checked = 0
    for field in dataclasses.fields(options):
        if field.name in in_shell and field.metadata.get("in_shell", True):
            default = in_python[field.name].default
            as_text = (",".join(map(str, default)) or None) if isinstance(default, tuple) else default
            assert in_shell[field.name] == as_text, field.name
            checked += 1
    assert checked > 10


def test_the_estimator_has_the_defaults_of_resolve():
    estimator, verb = ICA().get_params(), inspect.signature(resolve).parameters
    names = {name: name for name in estimator if name in verb} | {"n_components": "components"}
    assert len(names) >= 8
    assert {name: estimator[name] for name in names} == {name: verb[other].default for name, other in names.items()}


def test_no_value_for_components_means_the_default_of_the_command():
    """On raw plates, keeping all components instead has an AUROC of 0.466 instead of 0.940."""
    x, gene, plate = plates(6, d=40)
    asked = {"target": gene, "batch": plate, "conditions": ("whitened",)} | FAST | BARE
    in_shell = shell_defaults(deconfound_command.deconfound)["components"]
    results = [numbers_of(deconfound(x, **asked, components=value)) for value in (None, in_shell)]
    assert results[0]["overall"] == results[1]["overall"]
