"""Once with real numbers: what `compare` and `translate` return is what the report takes."""

import numpy as np

from congruence.align._compare import compare
from congruence.translation import translate


def test_a_rotated_run_is_reported_as_one(render):
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(300, 4))
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    comparison = compare({"old": x, "new": 2 * x @ rotation + 1}, nulls=3, bootstrap=20)
    page = render(comparison)
    assert comparison.pairs[0].verdict.headline in page
    assert "badge holds" in page
    assert "nan %" not in page
    assert comparison.to_csv().count("\n") == 1 + len(comparison.pairs[0].groups)
    assert r"old $\to$ new" in comparison.to_latex()


def test_a_rotated_model_can_be_translated(render):
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(300, 4))
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    translation = translate(x, 2 * x @ rotation + 1, nulls=2, bootstrap=20, labels=(x[:, 0] > 0).astype(int))
    page = render(translation)
    assert "✓</span> go</span>" in page
    assert "The residual of the best linear map is rounding" in page
    assert "The accuracy of a linear probe" in page


def test_checkpoints_and_moved_rows_are_reported(render_figures):
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(300, 4))
    runs = {name: x + scale * rng.normal(size=x.shape) for name, scale in (("a", 1.0), ("b", 0.3), ("c", 0.0))}
    comparison = compare(runs, groups=("rigid", "similarity"), nulls=2, bootstrap=20, steps=[1, 10, 1000])
    page = render_figures(comparison)
    assert "after the best rotation and scale, falls from" in page
    assert "The 20 rows that differ most" in page
