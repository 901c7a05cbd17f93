"""What `resolve` and `ICA` say at their default settings, where the truth is known."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from congruence import ICA, resolve
from congruence.errors import InputError


def spherical(rng, df=5.0):
    return rng.normal(size=(2000, 5)) / np.sqrt(rng.chisquare(df, size=(2000, 1)) / df)


def scale_mixture(rng):
    return rng.normal(size=(2000, 5)) * np.where(rng.random((2000, 1)) < 0.2, 3.0, 1.0)


def repeated(rng):
    return np.repeat(rng.normal(size=(400, 5)), 5, axis=0)[rng.permutation(2000)]


def series(rng):
    return lfilter([1.0], [1.0, -0.98], rng.normal(size=(2200, 5)), axis=0)[200:]


def mixture(rng, n, d):
    sources = np.column_stack([rng.laplace(size=(n, d // 2)), rng.uniform(-1, 1, size=(n, d - d // 2))])
    return sources, sources @ rng.normal(size=(d, d))


@pytest.fixture(scope="module")
def tumours():
    from sklearn.datasets import load_breast_cancer

    x = load_breast_cancer().data
    return (x - x.mean(0)) / x.std(0)


@pytest.mark.filterwarnings("ignore:No component is distinguishable")
@pytest.mark.parametrize("draw", [spherical, scale_mixture, repeated, series])
def test_rows_without_axes_have_no_identified_component(draw):
    found = [ICA(random_state=seed).fit(draw(np.random.default_rng(seed))).identified_ for seed in range(5)]
    assert np.mean(found) <= 0.05


def test_two_components_of_few_rows_with_heavy_tails_are_not_identified():
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(500, 2)) / np.sqrt(rng.chisquare(3, size=(500, 1)))
        found.append(ICA(random_state=seed).fit(x).identified_)
    assert np.mean(found) <= 0.05


def test_the_number_of_identified_components_moves_by_at_most_one_over_six_seeds(tumours):
    counts = [resolve(tumours, components=10, seed=seed).identified for seed in range(6)]
    assert max(counts) - min(counts) <= 1


def test_the_page_states_one_limit_of_correlations(tumours):
    glossary = dict(resolve(tumours, components=4, stability=2).document().glossary)
    text = " ".join(glossary[term] for term in ("identified", "resamples"))
    assert set(re.findall(r"0\.\d+", text)) == {"0.9"}


def test_the_page_states_the_limit_towards_one_component(tumours):
    """A component whose error in all is within the stated limit may still be noise in one direction."""
    result = resolve(tumours, components=10, seed=0)
    rows = [row for row in result.rows() if row["problem"] == "gaussian"]
    assert rows
    text = dict(result.document().glossary)["identified"]
    assert "any one other component" in text


def test_errors_of_axes_do_not_assume_independent_components():
    """On spherical rows any axis is as good as another, so its error is no small angle."""
    errors = [ICA(random_state=0).fit(spherical(np.random.default_rng(seed))).sampling_error_ for seed in range(4)]
    assert np.median(errors) > 0.2


def test_the_error_left_is_an_upper_limit():
    exceeded = 0
    for seed in range(12):
        sources, x = mixture(np.random.default_rng(seed), 20_000, 4)
        ica = ICA(rows="auto", random_state=seed).fit(x)
        match = np.abs(np.corrcoef(ica.transform(x), sources, rowvar=False)[:4, 4:]).max(1)
        exceeded += np.quantile(np.arccos(np.minimum(match, 1)), 0.9) > ica.error_left_
    assert exceeded <= 1


def test_a_single_direction_is_no_success(rng):
    result = resolve(rng.laplace(size=(500, 3)) * [100.0, 1.0, 1.0], components=1)
    assert result.status == "unknown"
    assert "is identified" not in result.verdict


def test_all_of_the_variance_and_one_component_are_not_confused(rng):
    with pytest.raises(InputError, match="1.0"):
        ICA(n_components=1.0).fit(rng.laplace(size=(300, 3)))


@pytest.mark.filterwarnings("ignore:400 components were requested")
def test_more_components_than_directions_are_announced(rng):
    notes = " ".join(resolve(rng.laplace(size=(2000, 4)), components=400).notes)
    assert "400 components were requested" in notes
    assert "4 directions" in notes


def test_columns_in_different_units_are_pointed_to_standardize(rng):
    x = rng.laplace(size=(2000, 20)) @ rng.normal(size=(20, 20))
    x[:, 3] *= 1000
    assert "--standardize" in " ".join(resolve(x, components=0.95).notes)


def test_the_result_says_what_a_component_is_made_of(rng):
    sources, _ = mixture(rng, 2000, 3)
    frame = pd.DataFrame(sources, columns=["height", "weight", "age"])
    result = resolve(frame)
    for text in (result.to_json(), str(result.document())):
        assert all(name in text for name in frame.columns)
