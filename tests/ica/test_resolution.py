import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.errors import InputError
from congruence.ica import ICA, Resolution, component_stability, resolve
from congruence.ica.profiles import EDGES, EXTREMES, PROFILED, first_profiles
from congruence.tables import Table, write_table

NONE = np.zeros(5, bool)


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
    return resolve(table)


def changed(result, **changes):
    found = replace(result.components.unmixing, **changes)
    return replace(result, ica=ICA.from_components(replace(result.components, unmixing=found)))


def stability_by_hand(result, stable, low=0.95):
    agreement = SimpleNamespace(
        median=np.full(result.k, 0.99),
        low=np.full(result.k, low),
        high=np.ones(result.k),
        stable=np.array(stable),
    )
    settings = {"bootstrap": 20, "clusters": None}
    return SimpleNamespace(components=result.components, agreement=agreement, notes=("Mind this.",), settings=settings)


def test_identified_components_are_counted_and_the_others_explained(result):
    assert (result.n, result.d, result.rank, result.k, result.identified) == (4000, 5, 5, 5, 3)
    assert result.status == "ambiguous"
    assert result.verdict == (
        "3 of 5 components are identified. Not identified: 2 indistinguishable from Gaussian noise. These axes may be "
        "arbitrary."
    )
    assert result.problems == [None, None, None, "gaussian", "gaussian"]
    assert result.notes == ()


def test_the_verdict_has_the_right_grammar_for_every_count(result):
    def verdict(*sure, noise=(0,) * 5, **more):
        more = {"agreement": np.zeros(5)} | more
        return changed(result, identified=np.array(sure, bool), noise=np.array(noise, bool), **more).verdict

    assert verdict(1, 1, 1, 1, 1) == "All 5 components are identified."
    assert verdict(1, 0, 0, 0, 0).startswith("1 of 5 components is identified. Not identified: 4 dependent on")
    one = "Not identified: 1 dependent on the random start. This axis may be arbitrary."
    assert verdict(1, 1, 1, 1, 0).endswith(one)
    both = "Not identified: 2 indistinguishable from Gaussian noise, 1 dependent on the random start."
    assert both in verdict(1, 1, 0, 0, 0, noise=(0, 0, 0, 1, 1))
    assert verdict(0, 0, 0, 0, 0, noise=(1,) * 5).startswith("No component is identified.")
    cut = verdict(1, 1, 1, 1, 0, converged=False, reason="cap")
    assert cut.startswith("ICA did not converge. 4 of 5 components are identified. Not identified: 1 not converged.")


def test_the_status_follows_the_components(result):
    assert changed(result, identified=np.ones(5, bool)).status == "holds"
    assert changed(result, identified=np.zeros(5, bool)).status == "fails"
    assert changed(result, converged=False, reason="cap").status == "unknown"


def test_there_is_a_finding_for_what_was_measured(result):
    (identified,) = result.findings
    assert (identified.name, identified.status, identified.number) == ("identified", "ambiguous", 0.6)
    assert identified.evidence == "3 of 5 components are identified."
    measured = replace(result, stability=stability_by_hand(result, [False] * 5))
    assert [(f.name, f.status, f.number) for f in measured.findings] == [
        ("identified", "ambiguous", 0.6),
        ("stable", "fails", 0.0),
    ]


def test_limits_are_noted(result):
    assert "max_iter" in changed(result, converged=False, reason="cap").notes[0]
    assert "Fewer components or more rows" in changed(result, identified=NONE, agreement=np.zeros(5)).notes[0]
    assert "not checked on disjoint halves" in changed(result, returned=None).notes[0]
    assert changed(result, agreement=None).notes[0].startswith("There was one start")
    assert "were not compared with Gaussian noise" in changed(result, sampling_error=np.full(5, np.nan)).notes[0]
    spiky = changed(result, kurtosis=np.array([1300.0, 3, 3, 0, 0])).notes[0]
    assert spiky.startswith("Dominated by fewer than 10 rows: ica0.")


def test_a_component_that_few_rows_dominate_is_noted(rng):
    x = rng.normal(size=(2000, 3))
    x[:4, 0] = 300
    result = resolve(x)
    assert any("Dominated by fewer than 10 rows: ica0." in note for note in result.notes)
    assert {one.row for one in result.profiles[0].highest[:4]} == {0, 1, 2, 3}


def test_resamples_decide_what_is_stable(result):
    measured = replace(result, stability=stability_by_hand(result, [True, True, False, True, True]))
    assert (measured.identified, measured.stable, measured.status) == (3, 2, "ambiguous")
    assert "2 of these 3 components are stable across 20 bootstrap resamples." in measured.verdict
    assert measured.problems == [None, None, "resamples", "gaussian", "gaussian"]
    assert measured.notes == ("Mind this.",)
    row = measured[0]
    assert (row["median"], row["low"], row["high"], row["stable"]) == (0.99, 0.95, 1.0, True)
    every = replace(result, stability=stability_by_hand(result, [True] * 5))
    assert "They are stable across 20 bootstrap resamples." in every.verdict


def test_one_identified_component_is_stable_or_not(result):
    only = changed(result, identified=np.array([1, 0, 0, 0, 0], bool))
    for stable, words in ((True, "It is stable across"), (False, "It is not stable across")):
        assert words in replace(only, stability=stability_by_hand(only, [stable] * 5)).verdict


def test_stability_of_another_fit_is_refused(result, table):
    stability = stability_by_hand(result, [True] * 5)
    assert replace(result, stability=stability).stable == 3
    with pytest.raises(InputError, match="stability is that of another fit"):
        replace(result, ica=ICA().fit(table.values), stability=stability)


def test_components_are_found_by_name_and_number(result):
    assert result[0] == result["ica0"]
    assert result["ica4"]["problem"] == "gaussian"
    assert [row["status"] for row in result.rows()] == ["holds"] * 3 + ["fails"] * 2
    with pytest.raises(InputError, match=r"there is no 'ic0' in this Resolution; the keys are 'ica0', 'ica1'"):
        result["ic0"]


def test_profiles_agree_with_the_components_themselves(result, table, monkeypatch):
    monkeypatch.setattr("congruence.arrays.CHUNK_BYTES", 8 * 5 * 300)  # several chunks
    found = result.components.unmixing
    s = (table.values - found.mean) @ found.unmixing.T
    again = first_profiles(table, result.components)
    for j, one in enumerate(again):
        assert_allclose(one.counts, np.histogram(np.clip(s[:, j], EDGES[0], EDGES[-1]), EDGES)[0])
        order = np.argsort(s[:, j])
        assert [end.row for end in one.highest] == order[: -EXTREMES - 1 : -1].tolist()
        assert [end.row for end in one.lowest] == order[:EXTREMES].tolist()
        assert_allclose([end.value for end in one.lowest], s[order[:EXTREMES], j])
    first = again[0].highest[0]
    assert first.id == f"r{first.row}"
    assert first.metadata == {"plate": first.row % 7, "day": "2020-01-01"}


def test_only_the_first_components_have_profiles(rng):
    assert len(resolve(rng.laplace(size=(2000, PROFILED + 3))).profiles) == PROFILED


def test_the_result_is_json(result):
    plain = json.loads(result.to_json())
    numbers = plain["numbers"]
    assert next(iter(plain)) == "status"
    assert (numbers["identified"], numbers["stable"], len(numbers["components"])) == (3, None, 5)
    assert numbers["components"][0]["component"] == "ica0"
    assert len(numbers["variances"]) == 5
    assert len(numbers["changes"]) == len(numbers["gradients"]) == result.components.unmixing.iterations
    assert sum(numbers["profiles"][0]["counts"]) == 4000
    assert len(numbers["edges"]) == len(numbers["profiles"][0]["counts"]) + 1
    assert numbers["stability"] is None
    assert (plain["settings"]["seed"], plain["settings"]["starts"]) == (0, 3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_any_dtype_is_resolved(rng, dtype):
    result = resolve((10 * rng.laplace(size=(500, 2))).astype(dtype))
    assert sum(result.profiles[0].counts) == 500


def test_the_verb_gives_what_the_estimator_and_the_stability_give(table):
    result = resolve(table, components=4, stability=3, cluster="plate", seed=2)
    ica = ICA(4, starts=3, random_state=2).fit(table.values)
    assert_allclose(result.ica.components_, ica.components_)
    cluster = table.metadata["plate"]
    again = component_stability(
        table.values, n_components=4, restarts=0, bootstrap=3, cluster=cluster, seed=2, found=ica.found_
    )
    assert_allclose(result.stability.agreement.bootstrap, again.agreement.bootstrap)
    assert result.stability.settings["clusters"] == 7


@pytest.mark.parametrize("kind", ["array", "frame", "path", "pattern", "tensor"])
def test_every_kind_of_input_gives_the_same_components(kind, table, tmp_path):
    import pandas as pd

    write_table(table, tmp_path / "run.parquet")
    given = {
        "array": lambda: table.values,
        "frame": lambda: pd.DataFrame(table.values, columns=list("abcde")),
        "path": lambda: tmp_path / "run.parquet",
        "pattern": lambda: str(tmp_path / "*.parquet"),
        "tensor": lambda: pytest.importorskip("torch").from_numpy(table.values),
    }[kind]()
    result = resolve(given, starts=2)
    assert isinstance(result, Resolution)
    assert_allclose(result.ica.components_, resolve(table, starts=2).ica.components_)
    names = {"frame": list("abcde"), "path": list(table.feature_names), "pattern": list(table.feature_names)}.get(kind)
    assert list(getattr(result.ica, "feature_names_in_", [])) == (names or [])


def test_rows_that_are_left_out_are_noted(table):
    x = table.values.copy()
    x[[3, 9], 1] = np.nan
    with pytest.raises(InputError, match=r"NaN or infinite values: x in 2 rows of 4000 \(row 3, 9\)"):
        resolve(x)
    labels = np.arange(4000) // 10
    result = resolve(x, drop_missing=True, cluster=labels, stability=2)
    assert result.notes[0] == "2 of 4000 rows have NaN or infinite values and were left out."
    assert (result.n, result.stability.settings["clusters"]) == (3998, 400)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"components": 2.5}, "components must be a positive integer or a share of the variance below 1; got 2.5"),
        ({"components": True}, "got True"),
        ({"stability": 1}, "stability must be 0 or an integer of at least 2; got 1"),
        ({"curve": (0,)}, r"curve\[0\] must be an integer of at least 1; got 0"),
        ({"curve": 3}, "curve must be a sequence of numbers of components; got 3"),
        ({"curve": (2,), "stability": 0}, "curve needs resamples"),
        ({"seed": -1}, "seed must be an integer from 0 to 4294967295; got -1"),
        (
            {"cluster": "plate", "check": False},
            "cluster keeps rows together in halves and resamples, but there are none",
        ),
        ({"cluster": "well", "stability": 5}, "run has no metadata column 'well'; it has plate, day"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, message, table):
    with pytest.raises(InputError, match=message):
        resolve(table, **options)


def test_a_misspelt_option_is_named(table):
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'component'; did you mean 'components'\?"):
        resolve(table, component=4)


def test_files_and_columns_that_were_not_asked_for_are_named(table, tmp_path):
    import pandas as pd

    frame = pd.DataFrame(table.values, columns=list("abcde"))
    frame["cell_id"] = np.arange(4000) + 17
    frame.to_parquet(tmp_path / "run.parquet", index=False)
    result = resolve(tmp_path / "run.parquet", starts=1)
    assert (result.n, result.d, list(result.ica.feature_names_in_)) == (4000, 5, list("abcde"))
    assert any("cell_id" in note for note in result.notes)
    first = result.profiles[0].highest[0]
    assert first.id == first.row + 17
    (file,) = result.settings["inputs"]
    assert file["path"] == str(tmp_path / "run.parquet")
    assert (file["bytes"], len(file["sha256"])) == ((tmp_path / "run.parquet").stat().st_size, 64)
    frame.to_parquet(tmp_path / "more.parquet", index=False)
    paths = [tmp_path / "run.parquet", tmp_path / "more.parquet"]
    several = resolve(paths, features="[a-c]", metadata="cell_id", starts=1)
    assert (several.n, several.d, len(several.settings["inputs"])) == (8000, 3, 2)


def test_a_table_may_be_given_another_id(table):
    result = resolve(table, id="plate", starts=1)
    first = result.profiles[0].highest[0]
    assert first.id == first.row % 7
    with pytest.raises(InputError, match=r"has no metadata column 'well' for id \(--id\)"):
        resolve(table, id="well")
