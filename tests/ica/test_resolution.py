import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.ica.components import independent_components
from congruence.ica.portraits import EXTREMES, PORTRAYED
from congruence.ica.profile import EDGES
from congruence.ica.resolution import resolution_of
from congruence.tables import Table


def mixed(rng, *, laplace=3, gaussian=2, n=4000):
    sources = np.column_stack([rng.laplace(size=(n, laplace)), rng.normal(size=(n, gaussian))])
    return sources @ rng.normal(size=(laplace + gaussian,) * 2) + 3


@pytest.fixture
def table(rng):
    x = mixed(rng)
    ids = np.array([f"r{i}" for i in range(len(x))])
    return Table(x, "run", ids, {"plate": np.arange(len(x)) % 7, "day": np.array(["2020-01-01"] * len(x), "M8[D]")})


@pytest.fixture
def result(table):
    found = independent_components(table.values, starts=3)
    return resolution_of(table, found, settings={"seed": 0})


def changed(result, **changes):
    found = replace(result.components.unmixing, **changes)
    return replace(result, components=replace(result.components, unmixing=found))


def stability_by_hand(result, holds, low=0.95):
    agreement = SimpleNamespace(
        median=np.full(result.k, 0.99),
        low=np.full(result.k, low),
        high=np.ones(result.k),
        holds=lambda: np.array(holds),
    )
    settings = {"bootstrap": 20, "clusters": None}
    return SimpleNamespace(components=result.components, agreement=agreement, notes=("Mind this.",), settings=settings)


def test_identified_components_are_counted_and_the_others_explained(result):
    assert (result.n, result.d, result.rank, result.k, result.identified) == (4000, 5, 5, 5, 3)
    assert result.status == "partly"
    assert result.verdict == (
        "3 of 5 components are identified: they come back from every start and can be told from noise; the other 2 are "
        "as good as Gaussian, and their axes may be arbitrary."
    )
    assert [row["lost_to"] for row in result.table()] == [None, None, None, "noise", "noise"]
    assert result.advice == []


def test_the_verdict_has_the_right_grammar_for_every_count(result):
    def verdict(*sure, noise=(0,) * 5, **more):
        return changed(result, identified=np.array(sure, bool), noise=np.array(noise, bool), **more).verdict

    assert verdict(1, 1, 1, 1, 1).startswith("All 5 components are identified: they come back from every start")
    assert "1 of 5 components is identified: it comes back" in verdict(1, 0, 0, 0, 0)
    assert "the other 1 depends on where the solver starts, and its axis may be arbitrary" in verdict(1, 1, 1, 1, 0)
    mixed = verdict(1, 1, 0, 0, 0, noise=(0, 0, 0, 1, 1))
    assert "of the other 3, 2 are as good as Gaussian and 1 depends on where the solver starts" in mixed
    none = verdict(0, 0, 0, 0, 0, noise=(1,) * 5)
    assert none == "No component is identified: all 5 are as good as Gaussian, and their axes may be arbitrary."
    assert "identified: they can be told from noise" in verdict(1, 1, 1, 1, 1, agreement=None)
    unjudged = verdict(1, 1, 1, 1, 1, sampling_error=np.full(5, np.nan))
    assert unjudged == "All 5 components are identified: they come back from every start."


def test_the_status_follows_the_components(result):
    assert changed(result, identified=np.ones(5, bool)).status == "holds"
    assert changed(result, identified=np.zeros(5, bool)).status == "fails"
    assert changed(result, converged=False, reason="cap").status == "unknown"


def test_what_to_mind_is_said(result):
    assert "max_iter" in changed(result, converged=False, reason="cap").advice[0]
    assert "fewer components or more rows" in changed(result, identified=np.zeros(5, bool)).advice[0]
    assert "there was one start" in changed(result, agreement=None).advice[0]
    assert "could not be told from noise" in changed(result, sampling_error=np.full(5, np.nan)).advice[0]
    spiky = changed(result, kurtosis=np.array([1300.0, 3, 3, 0, 0])).advice[0]
    assert spiky.startswith("1 component is made by fewer than 10 rows (ica0)")


def test_a_component_that_few_rows_make_is_noticed(rng):
    x = rng.normal(size=(2000, 3))
    x[:4, 0] = 300
    result = resolution_of(Table(x, "x"), independent_components(x))
    assert any("made by fewer than 10 rows (ica0)" in note for note in result.advice)
    assert {one.row for one in result.portraits[0].highest[:4]} == {0, 1, 2, 3}


def test_resamples_decide_what_comes_back(result):
    measured = replace(result, stability=stability_by_hand(result, [True, True, False, True, True]))
    assert (measured.identified, measured.returning, measured.status) == (3, 2, "partly")
    assert measured.verdict.endswith(" On 20 resamples of the rows, 2 of the 3 come back.")
    assert measured.advice == ["Mind this."]
    row = measured.table()[0]
    assert (row["median"], row["low"], row["high"], row["stable"]) == (0.99, 0.95, 1.0, True)
    every = replace(result, stability=stability_by_hand(result, [True] * 5))
    assert every.verdict.endswith(" On 20 resamples of the rows, they come back as well.")


def test_stability_of_another_fit_is_refused(result, table):
    stability = stability_by_hand(result, [True] * 5)
    assert resolution_of(table, result.components, stability=stability).returning == 3
    with pytest.raises(InputError, match="stability is that of another fit"):
        resolution_of(table, independent_components(table.values), stability=stability)


def test_portraits_agree_with_the_components_themselves(result, table, monkeypatch):
    monkeypatch.setattr("congruence.arrays.CHUNK_BYTES", 8 * 5 * 300)  # several chunks
    found = result.components.unmixing
    again = resolution_of(table, result.components)
    s = (table.values - found.mean) @ found.unmixing.T
    for j, one in enumerate(again.portraits):
        assert_allclose(one.counts, np.histogram(np.clip(s[:, j], EDGES[0], EDGES[-1]), EDGES)[0])
        order = np.argsort(s[:, j])
        assert [end.row for end in one.highest] == order[: -EXTREMES - 1 : -1].tolist()
        assert [end.row for end in one.lowest] == order[:EXTREMES].tolist()
        assert_allclose([end.value for end in one.lowest], s[order[:EXTREMES], j])
    first = again.portraits[0].highest[0]
    assert first.id == f"r{first.row}"
    assert first.metadata == {"plate": first.row % 7, "day": "2020-01-01"}


def test_only_the_first_components_are_portrayed(rng):
    x = rng.laplace(size=(300, PORTRAYED + 3))
    found = independent_components(x)
    assert len(resolution_of(Table(x, "wide"), found).portraits) == PORTRAYED


def test_the_result_is_json(result):
    plain = json.loads(result.to_json())
    assert plain["identified"] == 3
    assert len(plain["components"]) == 5
    assert plain["components"][0]["component"] == "ica0"
    assert len(plain["variances"]) == 5
    assert len(plain["changes"]) == len(plain["gradients"]) == result.components.unmixing.iterations
    assert sum(plain["portraits"][0]["counts"]) == 4000
    assert len(plain["edges"]) == len(plain["portraits"][0]["counts"]) + 1
    assert plain["stability"] is None
    assert plain["settings"] == {"seed": 0}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_any_dtype_can_be_portrayed(rng, dtype):
    x = (10 * rng.laplace(size=(500, 2))).astype(dtype)
    result = resolution_of(Table(x, "x"), independent_components(x))
    assert sum(result.portraits[0].counts) == 500
