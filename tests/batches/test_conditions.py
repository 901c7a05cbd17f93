import sys
from types import SimpleNamespace

import numpy as np
import pytest

from congruence.batches._folds import screen_of
from congruence.batches._scoring import embed
from congruence.batches.conditions import (
    NAMES,
    Base,
    Harmonised,
    Independent,
    Rotated,
    Standardised,
    TypicalVariation,
    Whitened,
    check_conditions,
    condition_named,
    count_components,
)
from congruence.errors import InputError, MissingDependencyError

STRICT = [name for name in NAMES if name != "harmony"]


@pytest.fixture
def plates(rng):
    """Rows on eight plates, each moved and stretched in its own way; every other row is a control."""
    batch = np.repeat(np.arange(8), 50)
    x = rng.normal(size=(400, 4)) * rng.uniform(0.5, 2, size=(8, 4))[batch] + 3 * rng.normal(size=(8, 4))[batch]
    return x, batch, np.arange(400) % 2 == 0


@pytest.mark.parametrize("make", [Whitened, Independent, Rotated])
def test_what_is_white_is_white(make, plates):
    z = make().fit(*plates).transform(*plates)
    np.testing.assert_allclose(np.cov(z, rowvar=False, bias=True), np.eye(4), atol=1e-5)


def test_a_random_rotation_is_one_and_depends_on_its_seed(plates):
    white = Whitened().fit(*plates).transform(*plates)
    one, again, other = (Rotated(seed=seed).fit(*plates).transform(*plates) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1
    np.testing.assert_allclose(one @ one.T, white @ white.T, atol=1e-8)
    assert np.abs(one - white).max() > 0.1


def test_standardised_controls_have_mean_0_and_deviation_1_on_every_plate(plates):
    _x, batch, control = plates
    z = Standardised().fit(*plates).transform(*plates)
    for number in range(8):
        here = z[(batch == number) & control]
        np.testing.assert_allclose(here.mean(0), 0, atol=1e-12)
        np.testing.assert_allclose(here.std(0), 1, atol=1e-12)


def test_typical_variation_centres_every_plate_and_brings_its_variances_towards_1(plates):
    """Whitened by the controls; then a variance v of a plate's controls becomes 2 v / (1 + v)."""
    x, batch, control = plates
    condition = TypicalVariation().fit(*plates)
    white, z = np.asarray(condition.whitener.transform(x)), condition.transform(*plates)
    np.testing.assert_allclose(np.cov(white[control], rowvar=False, bias=True), np.eye(4), atol=1e-8)
    for number in range(8):
        here = (batch == number) & control
        np.testing.assert_allclose(z[here].mean(0), 0, atol=1e-8)
        before, after = (np.linalg.eigvalsh(np.cov(rows[here], rowvar=False, bias=True)) for rows in (white, z))
        np.testing.assert_allclose(after, 2 * before / (1 + before), atol=1e-8)


def test_a_plate_with_too_few_controls_borrows_all_of_them_and_says_so(plates):
    x, batch, control = plates
    control = control & (batch != 3)
    condition = Standardised().fit(x, batch, control)
    z = condition.transform(x, batch, control)
    expected = (x[batch == 3] - x[control].mean(0)) / x[control].std(0)
    np.testing.assert_allclose(z[batch == 3], expected)
    assert condition.notes == ["1 batches have fewer than 3 controls, so all controls are used for them."]


def test_a_column_that_is_constant_among_controls_is_not_blown_up(plates):
    x, batch, control = plates
    x = x.copy()
    x[(batch == 0) & control, 1] = 7.0
    assert np.abs(Standardised().fit(x, batch, control).transform(x, batch, control)).max() < 50


@pytest.mark.parametrize("name", STRICT)
def test_the_strict_fit_sees_training_rows_only(name, plates):
    """Rows of held-out batches are poisoned: what the fit makes of training rows does not change by a bit."""
    x, batch, control = plates
    train = batch < 6
    gene = np.where(control, "none", "gene")
    poisoned = np.where(train[:, None], x, 1e6 * np.random.default_rng(5).normal(size=x.shape))
    clean, other = (
        embed(screen_of(rows, gene, batch, "none"), condition_named(name, None, 0, 0, "cpu"), train)[train]
        for rows in (x, poisoned)
    )
    np.testing.assert_array_equal(clean, other)


@pytest.mark.parametrize("name", ["whitened", "ica", "rotated", "tvn"])
def test_the_same_test_fails_where_all_rows_are_fitted_on(name, plates):
    x, batch, control = plates
    gene = np.where(control, "none", "gene")
    moved = np.where((batch < 6)[:, None], x, x[:, ::-1] * [9, 5, 1, 1])
    everything = np.ones(len(x), dtype=bool)
    clean, other = (
        embed(screen_of(rows, gene, batch, "none"), condition_named(name, None, 0, 0, "cpu"), everything)[batch < 6]
        for rows in (x, moved)
    )
    assert np.abs(clean - other).max() > 0.01


def test_base_is_as_it_was(plates):
    assert Base().fit(*plates).transform(*plates) is plates[0]


def test_how_many_components_are_kept():
    assert count_components("auto", 1000, 384) == 50
    assert count_components("auto", 10**6, 384) == 384
    assert count_components(64, 1000, 32) == 32
    assert count_components(64, 40, 384) == 39
    assert count_components(0.9, 1000, 384) == 0.9
    assert count_components(None, 1000, 384) is None
    with pytest.raises(InputError, match="components must be a number, a share below 1, 'auto' or None, not 'many'"):
        count_components("many", 1000, 384)


def test_conditions_are_checked_before_any_work(monkeypatch):
    assert check_conditions(("ica", "base")) == ("base", "ica")
    with pytest.raises(InputError, match="conditions must be some of base, .* not 'pca'"):
        check_conditions("pca")
    monkeypatch.setitem(sys.modules, "harmonypy", None)
    with pytest.raises(MissingDependencyError, match="pip install harmonypy"):
        check_conditions(("harmony",))


def test_conditions_that_need_controls_say_so(plates):
    x, batch, _ = plates
    with pytest.raises(InputError, match="'tvn' needs at least 3 controls to fit on, not 0"):
        TypicalVariation().fit(x, batch, np.zeros(400, dtype=bool))


@pytest.mark.parametrize("turned", [False, True])
def test_harmony_gets_principal_components_and_batches(turned, plates, monkeypatch):
    """What it is called with; releases hand the result back as (n, k) or as (k, n)."""
    pytest.importorskip("pandas")
    calls = []

    def run_harmony(rows, frame, column, random_state, verbose):
        calls.append((rows, frame, column, random_state))
        moved = rows + 1
        return SimpleNamespace(Z_corr=moved.T if turned else moved)

    monkeypatch.setitem(sys.modules, "harmonypy", SimpleNamespace(run_harmony=run_harmony))
    x, batch, control = plates
    z = Harmonised(seed=4).fit(*plates).transform(*plates)
    rows, frame, column, seed = calls[0]
    assert list(frame[column]) == [str(number) for number in batch]
    assert seed == 4
    variances = np.linalg.eigvalsh(np.cov(x, rowvar=False, bias=True))[::-1]
    np.testing.assert_allclose(rows.var(0), variances, rtol=1e-6)
    np.testing.assert_array_equal(z, rows + 1)
    with pytest.raises(
        InputError, match="harmony cannot transform new rows: it was fitted on 400 rows, but 10 are given"
    ):
        Harmonised(seed=4).fit(*plates).transform(x[:10], batch[:10], control[:10])
