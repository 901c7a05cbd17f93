"""Where metrics err: the grid runs at a tiny size, and errors follow from the numbers."""

import numpy as np
import pytest

from congruence.experiments.recipes import reproduce
from congruence.experiments.recipes.metric_validity import (
    ENCODERS,
    GENERATORS,
    Grid,
    draw_factors,
    judge,
    make_tables,
    name_cells,
    present,
    rotate_pairs,
)


def test_rotations_turn_pairs_and_keep_lengths(rng):
    s = rng.normal(size=(50, 3))
    z = rotate_pairs(s, 20)
    assert np.linalg.norm(z) == pytest.approx(np.linalg.norm(s))
    assert z[:, 0] == pytest.approx(np.cos(np.pi / 9) * s[:, 0] + np.sin(np.pi / 9) * s[:, 1])
    assert np.array_equal(rotate_pairs(s, 0), s)


def test_factors_are_as_correlated_as_they_should_be(rng):
    for law, kind in GENERATORS:
        raw, s = draw_factors(rng, law, kind, 4000, 3)
        assert len(np.unique(raw)) == (5 if kind == "discrete" else 12_000)
        off = np.corrcoef(s.T)[0, 1]
        assert abs(off) < 0.06 if law == "independent" else 0.7 < off < 0.85


def by_hand(**changed):
    """A grid of two scores that are always right, except where they are changed."""
    values = np.ones((len(GENERATORS), len(ENCODERS), 3))
    values[:, -4:, :2] = [[0.5], [0.1], [0.5], [0.0]]
    values[:, -2:, 2] = [0.5, 0.0]
    for place, value in changed.get("at", {}).items():
        values[place] = value
    return Grid(("own_codes", "mig", "mcc_weak"), values)


def test_scores_that_are_always_right_do_not_err():
    grid = by_hand()
    assert not grid.errors.any()
    assert [claim.status for claim in judge(grid)] == ["holds", "fails", "fails"]
    assert grid.rescaled[0, 0].tolist() == [1.0, 1.0, 1.0]


def test_a_right_encoder_may_be_too_low_and_a_wrong_one_too_high():
    grid = by_hand(at={(2, 0, 0): 0.3, (3, 6, 1): 0.95, (2, 6, 2): 0.2})
    assert grid.errors[2, 0, 0] == -1
    assert grid.errors[3, 6, 1] == 1
    assert grid.errors[2, 6, 2] == -1  # a score of content should not notice a rotation
    assert np.abs(grid.errors).sum() == 3
    assert [claim.status for claim in judge(grid)] == ["fails", "holds", "holds"]
    summary = make_tables(grid)[0]
    assert summary.rows[1][1:] == (1, "", "rotated 20° (correlated discrete)")


def test_cells_are_named_by_what_they_have_in_common():
    chosen = np.zeros((len(GENERATORS), len(ENCODERS)), dtype=bool)
    chosen[:, 0], chosen[2:, 1], chosen[[0, 2], 2], chosen[[0, 3], 3] = True, True, True, True
    assert list(name_cells(chosen)) == [
        "identity",
        "permuted, scaled (correlated)",
        "monotone (continuous)",
        "copies (independent continuous, correlated discrete)",
    ]


def test_the_recipe_runs_and_own_codes_follow_the_truth(tmp_path):
    done = reproduce("metric-validity", tmp_path / "grid", scale="smoke", device="cpu")
    made = present(done.ours, done.settings)
    assert made.findings[0].status == "holds"
    assert "published scores misjudge an encoder" in made.headlines[0]
    assert np.shape(done.ours["values"]) == (len(GENERATORS), len(ENCODERS), len(done.ours["scores"]))
    assert (tmp_path / "grid" / "grid.svg").exists()
