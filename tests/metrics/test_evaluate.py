import inspect
import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ortho_group

from congruence import Evaluation, evaluate
from congruence.errors import InputError
from congruence.metrics import _scoring as scoring
from congruence.metrics._encoding import matched_order
from congruence.metrics._evaluate import SAMPLE
from congruence.metrics._registry import METRICS
from congruence.metrics._resampling import draw_repairings, draw_subsamples, number_clusters
from congruence.metrics._results import Note, merge_notes
from congruence.metrics.factors import read_factors
from congruence.stats.intervals import subsample_interval
from congruence.tables import Table

FEW = {
    "metrics": ["infomec", "mig", "mcc"],
    "resamples": 8,
    "nulls": 3,
    "structural": False,
    "infomec_version": "training",
}


@pytest.fixture(scope="module")
def made():
    """Factors of several kinds, and codes: three of them in their own code, one that is lost, and one idle code."""
    rng = np.random.default_rng(0)
    n = 300
    factors = {
        "size": rng.uniform(size=n),
        "shape": rng.choice(["ball", "cone"], n),
        "count": rng.integers(0, 4, n),
        "lost": rng.normal(size=n),
    }
    told = [factors["count"], factors["size"], factors["shape"] == "cone", rng.normal(size=n)]
    codes = np.column_stack(told) + 0.02 * rng.normal(size=(n, 4))
    return codes, factors


@pytest.fixture
def quick(monkeypatch):
    """Fewer re-pairings of infomec, and fewer steps of the search for a rotation."""
    monkeypatch.setattr("congruence.metrics._encoding.MOST_PAIRINGS", 3)
    monkeypatch.setattr("congruence.metrics._structural.STEPS", 20)


@pytest.fixture(scope="module")
def result(made):
    return evaluate(*made, **FEW | {"structural": True}, sensitivity=(5, 10))


def test_what_is_told_and_what_is_not(result):
    assert result.unexplained == ("lost",)
    assert result.idle == ("code3",)
    assert {row.factor: row.code for row in result.per_factor} == {
        "size": "code1",
        "shape": "code2",
        "count": "code0",
        "lost": "",
    }
    assert [row.factor for row in result.per_code] == ["count", "size", "shape", ""]
    assert result.order == (1, 2, 0, 3)
    assert [row.kind for row in result.per_factor] == ["continuous", "categorical", "categorical", "continuous"]
    assert [row.levels for row in result.per_factor] == [300, 2, 4, 300]
    assert result.levels == {"shape": ("ball", "cone")}


def test_every_score_has_a_level_of_chance_and_an_interval_or_a_reason_for_none(result):
    assert [score.score for score in result.scores] == [
        "infom", "infoe", "infoc", "mig", "mcc", "mcc_spearman", "mcc_weak",
    ]  # fmt: skip
    for score in result.scores:
        assert score.chance < score.value
        assert score.reason == ""
        if score.metric == "mcc":
            assert score.range[0] <= score.low <= score.value <= score.high <= score.range[1]
            assert score.no_interval == ""
        else:
            assert math.isnan(score.low)
            assert score.no_interval
    assert result["mig"].beats_chance
    assert result["mcc"].beats_chance


def test_matrices_have_a_row_for_each_factor_and_a_column_for_each_code(result):
    assert {name: matrix.shape for name, matrix in result.matrices.items()} == {"nmi": (4, 4), "correlation": (4, 4)}
    assert abs(result.matrices["correlation"][0, 1]) > 0.99
    assert result.matrices["nmi"][1].argmax() == 2


def test_structural_nearness_and_sensitivity_come_along(result):
    assert result.structural.groups["linear"].held_out.mean < result.structural.groups["linear"].null
    assert [row["bins"] for row in result.sensitivity] == [5, 10]


def test_the_metrics_are_those_called_alone(made, result):
    assert result["mig"].value == METRICS["mig"].function(*made).mig
    assert result["infom"].value == METRICS["infomec"].function(*made, version="training").modularity


def test_it_becomes_json_and_back(result):
    whole = json.loads(result.to_json())
    read = whole["numbers"]
    assert [row["score"] for row in read["scores"]] == [score.score for score in result.scores]
    assert read["scores"][3]["value"] == pytest.approx(result["mig"].value)
    assert whole["settings"]["kinds"]["shape"] == "categorical"
    assert set(read["structural"]) == {"permutation", "rigid", "similarity", "linear"}
    assert read["unexplained"] == ["lost"]
    assert isinstance(result, Evaluation)


def test_the_same_seed_gives_the_same_result(made, result):
    again = evaluate(*made, **FEW | {"structural": True}, sensitivity=(5, 10))
    assert again.to_json() == result.to_json()
    other = evaluate(*made, **FEW, seed=1)
    assert other["mig"].value == result["mig"].value
    assert other["mig"].low != result["mig"].low


def test_the_factors_themselves_score_better_than_a_mixture(rng):
    s = rng.uniform(size=(300, 4))
    found = [evaluate(codes, s, **FEW) for codes in (s, s @ ortho_group.rvs(4, random_state=0))]
    for score in ("mig", "infom", "infoc"):
        assert found[0][score].value > found[1][score].value + 0.3
    assert found[0]["mcc"].low > found[1]["mcc"].high


def test_noise_tells_nothing_and_most_of_its_intervals_cover_chance():
    covered = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        found = evaluate(rng.normal(size=(200, 4)), rng.normal(size=(200, 3)), **FEW | {"resamples": 20})
        assert found.idle == found.codes
        assert found.unexplained == found.factors
        covered += [score.low <= score.chance <= score.high for score in found.scores if score.metric == "mcc"]
    assert len(covered) == 12
    assert np.mean(covered) >= 0.75  # of 95 % intervals, whose chance is a mean of three


@pytest.mark.parametrize("n", [400, 12_000])
def test_intervals_are_as_wide_as_they_should_be(n, rng):
    """Of a mean: 1.645 standard errors to each side, from halves and from smaller parts alike."""
    x = rng.normal(size=n)
    parts = draw_subsamples(n, None, 400, seed=0)
    sizes = np.array([len(part) for part in parts], dtype=float)
    assert sizes.max() == min(n // 2, 2500)
    low, high = subsample_interval(
        x.mean(), np.array([x[part].mean() for part in parts]), sizes, n, (-math.inf, math.inf)
    )
    assert (high - low) / 2 == pytest.approx(1.645 / math.sqrt(n), rel=0.15)
    assert (high + low) / 2 == pytest.approx(x.mean(), abs=0.2 / math.sqrt(n))


@pytest.mark.parametrize("count", [5, 10, 20])
def test_intervals_cover_the_truth_as_often_as_they_say(count, rng):
    n, sizes, covered = 100, np.full(count, 50.0), []
    for seed in range(600):
        x = rng.normal(size=n)
        parts = draw_subsamples(n, None, count, seed=seed)
        low, high = subsample_interval(
            x.mean(), np.array([x[part].mean() for part in parts]), sizes, n, (-math.inf, math.inf)
        )
        covered.append(low <= 0 <= high)
    assert 0.87 < np.mean(covered) < 0.94


def test_intervals_stay_in_the_range_and_need_scores():
    scores, sizes = np.array([0.5, 1.0, 0.9, 0.6]), np.full(4, 50.0)
    assert subsample_interval(0.95, scores, sizes, 100, (0.0, 1.0))[1] == 1.0
    assert math.isnan(subsample_interval(0.5, np.array([0.5, math.nan, math.nan]), sizes[:3], 100, (0.0, 1.0))[0])
    assert math.isnan(subsample_interval(math.nan, scores, sizes, 100, (0.0, 1.0))[0])


def test_clusters_are_drawn_and_paired_whole():
    even = number_clusters(np.repeat(["a", "b", "c", "d"], 10))
    for part in draw_subsamples(40, even, 5, seed=0):
        assert set(np.bincount(even[part], minlength=4)) == {0, 10}
    for partner in draw_repairings(40, even, 5, seed=0):
        assert sorted(partner) == list(range(40))
        pairs = set(zip(even, even[partner], strict=True))
        assert len(pairs) == 4  # a cluster gets the factors of one other
        assert all(one != other for one, other in pairs)
    uneven = number_clusters(np.repeat([0, 1, 2], [5, 15, 20]))
    for partner in draw_repairings(40, uneven, 5, seed=0):
        assert (uneven != uneven[partner]).all()


def test_rows_that_repeat_make_wide_intervals_unless_they_are_one_cluster(rng):
    s = np.repeat(rng.normal(size=(40, 2)), 8, axis=0)
    z = s + np.repeat(rng.normal(size=(40, 2)), 8, axis=0)
    options = {"metrics": ["mcc"], "resamples": 30, "nulls": 0, "structural": False}
    alone = evaluate(z, s, **options)["mcc"]
    together = evaluate(z, s, cluster=np.repeat(np.arange(40), 8), **options)["mcc"]
    assert together.value == alone.value
    assert together.high - together.low > 1.7 * (alone.high - alone.low)


def test_clusters_are_held_out_whole(rng):
    """Names that every cluster has of its own can be learned by heart, but not told of clusters never seen."""
    cluster = np.repeat(np.arange(30), 10)
    z = np.repeat(rng.normal(size=(30, 3)), 10, axis=0)
    s = np.repeat(rng.normal(size=30), 10)[:, None]
    options = {"metrics": ["regression"], "resamples": 0, "nulls": 1, "slow_nulls": 0, "structural": False}
    assert evaluate(z, s, **options)["r2_nonlinear"].value > 0.9
    assert evaluate(z, s, cluster=cluster, **options)["r2_nonlinear"].value < 0.2


EDGES = {
    "one factor": lambda g: (g((30, 3)), g((30, 1))),
    "one code": lambda g: (g((30, 1)), g((30, 2))),
    "a constant factor": lambda g: (g((30, 2)), np.column_stack([g(30), np.ones(30)])),
    "constant factors": lambda g: (g((30, 2)), np.ones((30, 2))),
    "constant codes": lambda g: (np.ones((30, 2)), g((30, 2))),
    "three rows": lambda g: (g((3, 2)), g((3, 2))),
    "one row": lambda g: (g((1, 2)), g((1, 2))),
    "more codes than rows": lambda g: (g((22, 30)), g((22, 2))),
    "a rare class": lambda g: (g((40, 4)), {"w": ["a"] * 38 + ["b", "c"], "v": ["x", "y"] * 20}),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("edge", EDGES)
def test_what_cannot_be_measured_has_a_reason(edge, rng):
    quick = [name for name in METRICS if name not in ("beta_vae", "factor_vae")]  # these draw 15,000 points each
    codes, factors = EDGES[edge](lambda size: rng.normal(size=size))
    found = evaluate(codes, factors, metrics=quick, dci_model="forest", resamples=2, nulls=1, slow_nulls=0)
    assert len(found.scores) == sum(len(METRICS[name].scores) for name in quick)
    for score in found.scores:
        assert math.isfinite(score.value) != bool(score.reason), score
    for row in json.loads(found.to_json())["numbers"]["scores"]:
        assert (row["value"] is None) == bool(row["reason"]), row


def test_scores_that_cannot_be_computed_are_listed_below_the_table(rng):
    digit = np.repeat(["a", "b", "c"], 30)
    result = evaluate(rng.normal(size=(90, 2)), {"digit": digit}, metrics=["mig", "mcc"], kinds="categorical")
    table = next(one for one in result.document().blocks() if getattr(one, "label", "") == "Scores")
    assert [row[0].below for row in table.rows] == ["mig"]
    assert (
        "Not computed: mcc, mcc_spearman, mcc_weak (All factors are unordered classes, which cannot be correlated)"
        in table.note
    )


def test_without_any_score_there_is_no_table_of_scores(rng):
    digit = np.repeat(["a", "b", "c"], 30)
    result = evaluate(rng.normal(size=(90, 2)), {"digit": digit}, metrics=["mcc"], kinds="categorical")
    assert "Scores" not in [getattr(one, "label", "") for one in result.document().blocks()]
    assert "Not computed: mcc" in str(result)


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_codes_that_cannot_be_squared_are_refused(size, rng):
    with pytest.raises(InputError, match="too large or too small"):
        evaluate(size * rng.normal(size=(40, 2)), rng.normal(size=(40, 2)), metrics=["mig"], resamples=0, nulls=0)


def test_few_rows_have_no_interval_and_it_is_said(rng):
    found = evaluate(rng.normal(size=(15, 2)), rng.normal(size=(15, 2)), metrics=["mcc"])
    assert math.isnan(found["mcc"].low)
    assert "There are no intervals: 15 rows are fewer than 20." in found.notes


@pytest.mark.usefixtures("quick")
def test_many_rows_are_not_left_out_silently(rng, monkeypatch):
    monkeypatch.setattr(scoring, "SLOW_ROWS", 60)
    monkeypatch.setattr(scoring, "CHANCE_ROWS", 80)
    s = rng.normal(size=(100, 2))
    options = {"metrics": ["mig", "sis"], "resamples": 0, "nulls": 1, "structural": False}
    found = evaluate(s, s, **options)
    assert any("Measured on 60 of 100 rows, because it takes minutes (sis)." in note for note in found.notes)
    assert any("Chance was measured on 80 of 100 rows" in note for note in found.notes)
    monkeypatch.setattr(scoring, "SLOW_ROWS", 100)
    assert not any("Measured on" in note for note in evaluate(s, s, **options | {"nulls": 0}).notes)


def test_the_information_of_re_pairings_is_measured_as_often_as_needed(rng, monkeypatch):
    s = rng.normal(size=(60, 4))
    options = {"metrics": ["infomec"], "resamples": 0, "nulls": 5, "structural": False, "infomec_version": "training"}
    monkeypatch.setattr("congruence.metrics._encoding.NULL_SHARES", 32)  # of two re-pairings of 4 x 4
    asked = []
    infomec = METRICS["infomec"].function

    def count(*args, **keywords):
        asked.append(keywords.get("information", True))
        return infomec(*args, **keywords)

    count.__signature__ = inspect.signature(infomec)
    monkeypatch.setitem(METRICS, "infomec", replace(METRICS["infomec"], function=count))
    found = evaluate(s, s, **options)
    assert asked == [True] * 3 + [False] * 3  # the value, two re-pairings, three of InfoE alone
    assert found.settings["information_nulls"] == 2
    assert found.own_codes == {f"factor{k}": f"code{k}" for k in range(4)}
    asked.clear()
    assert evaluate(s, s, **options, slow_nulls=4).settings["information_nulls"] == 4
    assert sum(asked) == 5


def test_chance_of_a_regression_is_that_of_three_factors(rng, monkeypatch):
    shapes = []
    regression = METRICS["regression"].function

    def count(z, s, **keywords):
        shapes.append(s.names)
        return regression(z, s, nonlinear="kernel", **keywords)

    monkeypatch.setitem(METRICS, "regression", replace(METRICS["regression"], function=count))
    s = {name: rng.normal(size=80) for name in "abcde"} | {"constant": np.ones(80)}
    codes = np.column_stack([s[name] for name in "abcde"])
    options = {"metrics": ["regression"], "resamples": 0, "nulls": 1, "slow_nulls": 6, "structural": False}
    found = evaluate(codes, s, **options)
    assert [len(names) for names in shapes] == [6, *[3] * 6]
    assert set().union(*shapes[1:]) == set("abcde")
    assert found["r2_linear"].chance < 0.1 < found["r2_linear"].value


def test_the_sample_for_plots_is_small(rng):
    s = rng.normal(size=(SAMPLE + 5, 1))
    found = evaluate(np.hstack([s, s]), s, metrics=["mig"], resamples=0, nulls=0, structural=False)
    codes, factors = found.sample
    assert (codes.shape, factors.shape) == ((SAMPLE, 2), (SAMPLE, 1))
    assert (codes[:, 0] == factors[:, 0]).all()


def test_names_may_be_given(rng):
    pd = pytest.importorskip("pandas")
    s, options = rng.normal(size=(30, 2)), {"metrics": ["mig"], "resamples": 0, "nulls": 0, "structural": False}
    named = evaluate(s, s, code_names=["a", "b"], factor_names=["hue", "size"], name="run", **options)
    assert (named.name, named.codes, named.factors) == ("run", ("a", "b"), ("hue", "size"))
    assert "hue, size: 30 distinct values, taken as continuous." in named.notes
    assert evaluate(pd.DataFrame(s, columns=["x", "y"]), s, **options).codes == ("x", "y")


def test_notes_of_several_metrics_are_said_once():
    s = read_factors({"hue": np.arange(30.0), "hue size": np.arange(30.0)})
    cut = (Note("cut", ["hue"]), Note("cut", ["hue size"]))
    notes = merge_notes(s.notes, {"mig": (*s.notes, *cut), "modularity": (*s.notes, *cut, Note("Slow"))})
    assert notes == (
        "hue, hue size: 30 distinct values, taken as continuous.",
        "hue, hue size: cut (mig, modularity).",
        "Slow (modularity).",
    )
    assert notes[1].to_dict() == {"text": "cut", "factors": ["hue", "hue size"], "metrics": ["mig", "modularity"]}
    assert pickle.loads(pickle.dumps(notes[1])).factors == ("hue", "hue size")


def test_matched_codes_come_first_in_the_order_of_factors():
    assert matched_order(np.array([[0.1, 0.9, 0.8], [0.0, 0.9, 0.1]])) == (2, 1, 0)
    assert matched_order(np.array([[0.9], [math.nan]])) == (0,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metrics": ["nothing"]}, "got 'nothing'"),
        ({"infomec_version": "new"}, "infomec_version must be one of"),
        ({"dci_model": "tree"}, "dci_model must be one of"),
        ({"resamples": 1}, "at least 2"),
        ({"nulls": -1}, "nulls must be an integer of at least 0; got -1"),
        ({"seed": 2**32}, "seed must be an integer from 0 to 4294967295; got 4294967296"),
        ({"cluster": [1, 2]}, "cluster must have one label per row"),
        ({"cluster": np.zeros(30)}, "all rows belong to one cluster"),
        ({"code_names": ["a"]}, "one name for each of 3 codes"),
        ({"factor_names": ["a", "a"]}, "2 different names"),
        ({"metrics": ["block_score"], "blocks": 2}, "cannot be cut into 2 blocks"),
    ],
)
def test_wrong_arguments_are_named(options, words, rng):
    with pytest.raises(InputError, match=words):
        evaluate(rng.normal(size=(30, 3)), rng.normal(size=(30, 2)), **options)


QUICK = {"metrics": ["mig"], "resamples": 0, "nulls": 0, "structural": False}


def test_files_frames_and_tables_give_what_arrays_give(made, tmp_path):
    pd = pytest.importorskip("pandas")
    codes, factors = made
    np.save(tmp_path / "codes.npy", codes)
    frame = pd.DataFrame(factors)
    frame.to_csv(tmp_path / "factors.csv", index=False)
    expected = evaluate(codes, factors, **QUICK)["mig"].value
    files = evaluate(tmp_path / "codes.npy", tmp_path / "factors.csv", **QUICK)
    assert files["mig"].value == expected
    assert (files.name, files.codes[0]) == ("codes", "code0")
    assert [Path(file["path"]).name for file in files.settings["inputs"]] == ["codes.npy", "factors.csv"]
    shuffled = evaluate(pd.DataFrame(codes), frame.sample(frac=1, random_state=0), **QUICK)
    assert shuffled["mig"].value == expected
    assert shuffled.settings["paired"] == "by id"
    table = Table(codes, "run", metadata=factors)
    named = evaluate(table, factor_columns="s*, count,lost", **QUICK)
    assert (named.name, named.factors) == ("run", ("size", "shape", "count", "lost"))
    assert named["mig"].value == expected


def test_factors_may_be_labels(made):
    codes, factors = made
    found = evaluate(codes, factors["shape"], **QUICK)
    assert found.factors == ("factor0",)
    assert found.levels == {"factor0": ("ball", "cone")}
    assert found["factor0"].code == "code2"


def test_kinds_may_be_text(made):
    found = evaluate(*made, **QUICK, kinds="count=ordinal, lost=continuous")
    assert found.settings["kinds"]["count"] == "ordinal"
    with pytest.raises(InputError, match="but has 'shape'"):
        evaluate(*made, **QUICK, kinds="count=ordinal,shape")


@pytest.mark.usefixtures("quick")
def test_components_are_compared_with_the_codes_and_each_has_its_pictures(rng):
    s = rng.integers(0, 9, size=(400, 2))
    turned = (s + 0.1 * rng.normal(size=s.shape)) @ np.array([[1.0, -1.0], [1.0, 1.0]])
    options = {"metrics": ["infomec"], "resamples": 0, "nulls": 1, "structural": False}
    found = evaluate(turned, s, ica=True, name="run", pictures=lambda components=None: components, **options)
    before = found.compared[0]
    assert [one.name for one in (found, *found.compared)] == [
        "run + ICA",
        "run",
        "run + ICA, not centred",
        "run + ICA, whitened",
    ]
    assert before["infom"].value < 0.3 < 0.8 < found["infom"].value
    assert (before.status, found.status) == ("fails", "holds")
    assert before.pictures is None
    assert found.pictures.way == "centred"
    with pytest.raises(InputError, match="the codes of run are classes"):
        evaluate(turned, s, ica=True, discrete_codes=True, name="run", **options)


@pytest.mark.parametrize("n", [5, 8, 12])
def test_a_few_rows_leave_the_verdict_unknown(n):
    factors = np.random.default_rng(0).normal(size=(n, 3))
    found = evaluate(factors, factors, metrics=["mcc"], resamples=5)
    assert found.status == "unknown"
    assert f"{n} rows are too few" in found.verdict
