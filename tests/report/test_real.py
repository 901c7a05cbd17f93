"""Once with real numbers: what `compare` returns is what the report takes."""

import numpy as np

from congruence.align.compare import compare
from congruence.report import render, to_csv, to_latex


def test_a_rotated_run_is_reported_as_one():
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(300, 4))
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    comparison = compare({"old": x, "new": 2 * x @ rotation + 1}, nulls=3, bootstrap=20)
    page = render(comparison)
    assert comparison.pairs[0].verdict.headline in page
    assert "badge holds" in page
    assert "nan %" not in page
    assert to_csv(comparison).count("\n") == 1 + len(comparison.pairs[0].groups)
    assert r"old $\to$ new" in to_latex(comparison)
