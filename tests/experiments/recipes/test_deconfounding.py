"""The claims about deconfounding follow the numbers, in both directions, and the recipe runs."""

import dataclasses
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.experiments.data.screen import GENES, simulate_screen
from congruence.experiments.recipes import reproduce
from congruence.experiments.recipes.deconfounding.claims import judge, make_tables
from congruence.experiments.recipes.deconfounding.run import DialExperiment, parts_of_screens
from congruence.experiments.recipes.deconfounding.screen import (
    CONDITIONS,
    UNUSED,
    ScreenScores,
    estimate_difference,
    match_axes,
    tree_labels,
)
from congruence.parts import Parts

GUIDES = tuple(f"{gene}_guide_1" for gene in GENES)


def measured(dial, auroc, match, taint, rng):
    """A screen where all is as given, by condition, but for a little noise."""

    def around(values, shape, spread=0.002):
        return {name: value + spread * rng.normal(size=shape) for name, value in zip(CONDITIONS, values, strict=True)}

    return ScreenScores(
        dial=dial,
        bound=np.inf,
        constant={"median": 1.0 + dial / 2, "max": 1.0 + dial},
        guides=GUIDES,
        auroc=around(auroc, (6, 5)),
        sparsity=around((0.1, 0.2, 0.3, 0.1), (6, 5)),
        top=around((0.6, 0.7, 0.8, 0.6), (1, 6, 5)),
        rest=around((0.55, 0.55, 0.55, 0.55), (1, 6, 5)),
        match=around((0.2, 0.7, match, 0.2), 10),
        taint=around((0.3, 0.1, taint, 0.3), 10),
    )


@pytest.fixture
def found(rng):
    """What the theory predicts."""
    near = measured(0.0, (0.6, 0.65, 0.75, 0.6), 0.95, 0.01, rng)
    far = measured(1.5, (0.55, 0.55, 0.55, 0.55), 0.2, 0.2, rng)
    return DialExperiment(near, (near, far), (0.25,))


def statuses(found):
    return [claim.status for claim in judge(found)]


def test_all_claims_hold_where_all_is_as_predicted(found):
    assert statuses(found) == ["holds"] * 8


@pytest.mark.parametrize(
    ("part", "condition", "fallen"),
    [("auroc", "whitened", [0]), ("auroc", "ica", [1, 2]), ("sparsity", "ica", [3])],
)
def test_a_claim_of_the_tables_falls_with_its_numbers(part, condition, fallen, found):
    values = getattr(found.table, part)
    worse = dataclasses.replace(found.table, **{part: {**values, condition: values[condition] - 0.3}})
    claims = statuses(dataclasses.replace(found, table=worse))
    assert [i for i, claim in enumerate(claims) if claim == "fails"][: len(fallen)] == fallen


def test_a_gain_that_does_not_fade_and_factors_that_are_not_found_fail(found):
    near, far = found.curve
    stays = dataclasses.replace(far, auroc={**far.auroc, "ica": near.auroc["ica"] + 0.1})
    assert statuses(dataclasses.replace(found, curve=(near, stays)))[6] == "fails"
    lost = dataclasses.replace(near, match={**near.match, "ica": near.match["ica"] - 0.1})
    assert statuses(dataclasses.replace(found, table=lost, curve=(lost, far)))[5] == "fails"
    leaks = dataclasses.replace(near, taint={**near.taint, "ica": near.taint["ica"] + 0.6})
    assert statuses(dataclasses.replace(found, table=leaks, curve=(leaks, far)))[7] == "fails"
    spread = dataclasses.replace(near, top={**near.top, "ica": near.top["ica"] - 0.2})
    assert statuses(dataclasses.replace(found, table=spread, curve=(spread, far)))[4] == "fails"


def test_what_noise_could_have_made_is_ambiguous(found, rng):
    noisy = {name: 0.6 + 0.1 * rng.normal(size=(6, 5)) for name in CONDITIONS}
    assert statuses(dataclasses.replace(found, table=dataclasses.replace(found.table, auroc=noisy)))[0] == "ambiguous"


def test_intervals_know_that_folds_share_their_training_rows():
    one = estimate_difference(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert one.value == 3
    assert_allclose(one.high - one.value, 2.7764451 * np.sqrt(0.45 * 2.5), rtol=1e-6)
    assert np.isnan(estimate_difference(np.array([1.0, 2.0])).low)
    assert str(estimate_difference(np.array([0.1, 0.1]))) == "+0.100"


def test_genes_count_alike_however_many_guides_they_have(found):
    guides = ("A_guide_1", "B_guide_1", "B_guide_2", "B_guide_3")
    values = np.repeat([[1.0], [2.0], [3.0], [4.0]], 5, axis=1)
    assert_allclose(dataclasses.replace(found.table, guides=guides).by_fold(values), [2.0] * 5)


def test_the_papers_numbers_stand_beside_ours(found):
    auroc, sparsity, concentration, dial = make_tables(found)
    assert (auroc.rows[4][0], auroc.rows[4][1].text, auroc.rows[4][1].value) == ("PLK1 (6)", "0.803", 0.803)
    assert auroc.rows[4][2].text.startswith("0.60")
    assert sparsity.rows[0][5].text == "0.237"
    assert concentration.rows[3][1:4] == (0.287, 0.280, 0.235)
    assert [row[0] for row in dial.rows] == ["0", "1.5"]
    assert "ours are simulated" in auroc.note


def test_trees_see_the_guides_and_controls_they_are_meant_to():
    screen = simulate_screen(1000, 24, 10, 0.0, 1, share=0.02)
    labels = tree_labels(screen, 1, 100, 0)
    assert (labels == "control").sum() == 100
    assert screen.is_control[labels == "control"].all()
    assert set(screen.guide[labels == "MTOR"]) == {"MTOR_guide_1"}
    assert (labels == UNUSED).sum() == 1000 - 100 - 6 * 20
    assert (tree_labels(screen, 6, None, 0) == screen.gene).all()


def test_near_an_isometry_independent_components_are_the_biology_and_free_of_plates():
    near, far = (match_axes(simulate_screen(6000, 24, 40, dial, 2, share=0.01), 0, "cpu") for dial in (0.0, 1.5))
    assert np.median(near["match.ica"]) > 0.95 > near["match.rotated"].max()
    assert near["taint.ica"].mean() < 0.02 < near["taint.base"].mean()
    assert far["match.ica"].mean() < 0.4


def test_the_recipe_writes_its_result(tmp_path):
    done = reproduce("deconfounding", tmp_path / "a", scale="smoke", device="cpu")
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert len(result["findings"]) == 8
    assert result["numbers"]["paper"]["auroc"]["PLK1"]["base"] == 0.803
    assert [one["dial"] for one in done.ours["curve"]] == [0.1, 1.5]
    assert (tmp_path / "a" / "gain-by-dial.svg").exists()
    assert "Base, paper" in (tmp_path / "a" / "table.md").read_text()
    assert "simulated" in result["notes"][0]


def test_a_part_is_kept_for_other_dials_or_devices_and_not_for_another_screen(tmp_path):
    settings = {"n": 100, "dials": [0.0, 1.5], "device": "cuda", "guides": 6, "rounds": 10}

    def parts(shares=(), **changes):
        return parts_of_screens(Parts(tmp_path, settings | changes), shares)

    parts().put("dial0-guides1-axes", {"found": np.ones(1)})
    for kept in (parts(), parts(dials=[0.0]), parts(device="cpu"), parts(guides=1)):
        assert kept.find("dial0-guides1-axes") is not None
    for other in (parts(n=200), parts(rounds=20), parts((0.5,))):
        assert other.find("dial0-guides1-axes") is None
