import numpy as np
import pytest

from congruence import compare, compare_layers

QUICK = {"groups": ["similarity"], "nulls": 5, "bootstrap": 20}


def series(rng, memory, n=600, d=8):
    """Rows that depend on the ones before."""
    rows = rng.normal(size=(n, d))
    for i in range(1, n):
        rows[i] = memory * rows[i - 1] + np.sqrt(1 - memory**2) * rows[i]
    return rows


def clusters(rng, label, spread=0.3, d=8):
    return rng.normal(size=(label.max() + 1, d))[label] + spread * rng.normal(size=(len(label), d))


def dependence(x, y):
    return compare(x, y, **QUICK).pairs[0].dependence


def test_independent_rows_agree_in_all_three_errors(rng):
    x = rng.normal(size=(600, 8))
    for y in (rng.normal(size=x.shape), x + rng.normal(size=x.shape)):
        found = dependence(x, y)
        assert not found.matters
        np.testing.assert_allclose([found.consecutive, found.neighbours], found.scattered, rtol=0.05)


def test_a_series_is_noticed_and_judged_once_its_blocks_are_given(rng):
    x, y = series(rng, 0.97), series(rng, 0.97)
    result = compare(x, y, **QUICK)
    assert result.pairs[0].dependence.ordered
    assert result.status == "unknown"
    assert "order_blocks (--order-blocks)" in result.verdict
    given = compare(x, y, order_blocks=60, groups=["similarity"], nulls=19)
    assert given.pairs[0].dependence is None
    assert given.pairs[0].groups["similarity"].p > 0.05
    related = compare(x, x + 0.3 * rng.normal(size=x.shape), order_blocks=60, groups=["similarity"], nulls=19)
    assert related.pairs[0].groups["similarity"].p == 0.05
    assert related.status in ("holds", "ambiguous")


def test_hidden_clusters_are_noticed_and_judged_once_they_are_given(rng):
    label = rng.integers(30, size=600)
    x, y = clusters(rng, label), clusters(rng, label)
    found = dependence(x, y)
    assert found.clustered
    assert not found.ordered
    given = compare(x, y, cluster=label, groups=["similarity"])
    assert given.pairs[0].verdict.group == "none"


def test_copies_are_counted_and_a_few_are_left_out(rng):
    x, y = rng.normal(size=(2, 400, 4))
    y += 3 * x
    few = compare(np.r_[x, x[:8]], np.r_[y, y[:8]], **QUICK)
    assert few.pairs[0].dependence.copies.tolist() == list(range(400, 408))
    assert any("8 rows of" in note and "repeat others; without, the held-out error" in note for note in few.notes)
    many = compare(np.r_[x, x], np.r_[y, y], **QUICK)
    assert many.status == "unknown"
    assert "400 of 800 rows are copies of others" in many.verdict


def test_a_copy_of_a_series_is_still_a_copy(rng):
    x = series(rng, 0.98)
    result = compare(x, x[:, ::-1] + 1e-3 * rng.normal(size=x.shape), **QUICK)
    assert result.status == "holds"


def test_layers_of_a_series_are_not_judged(rng):
    a, b = ({str(i): series(rng, 0.97) for i in range(2)} for _ in range(2))
    result = compare_layers(a, b, measure="cka")
    assert result.status == "unknown"
    assert result.dependence.matters
    assert "depend on each other" in result.verdict
    assert compare_layers(a, b, measure="cka", order_blocks=60).dependence is None


def test_blocks_and_clusters_exclude_each_other(rng):
    from congruence.errors import InputError

    x = rng.normal(size=(100, 3))
    with pytest.raises(InputError, match="exclude each other"):
        compare(x, x, order_blocks=5, cluster=np.arange(100) // 2)
    with pytest.raises(InputError, match="at most a quarter"):
        compare(x, x, order_blocks=40)
