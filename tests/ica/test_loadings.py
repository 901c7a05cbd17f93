"""What components are made of: loadings, variance explained by metadata, and the notes on directions."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from congruence.ica import component_stability, resolve
from congruence.ica.profiles import FEATURES, column_correlations, explained_variance, top_loadings
from congruence.report.html import render_html
from congruence.report.terminal import render_text
from congruence.tables import Table


@pytest.fixture
def table(rng):
    """Named columns, and metadata of which one follows the first source."""
    sources = np.column_stack([rng.laplace(size=(1200, 3)), rng.uniform(-2, 2, size=(1200, 2))])
    x = sources @ rng.normal(size=(5, 6)) + rng.normal(size=6) * 10
    x = np.column_stack([x, np.full(1200, 3.0)])
    metadata = {
        "site": np.where(sources[:, 0] > 0, "right", "left"),
        "size": sources[:, 0] + 0.01 * rng.normal(size=1200),
        "batch": np.arange(1200) % 6,
        "well": np.array([f"w{i}" for i in range(1200)]),
        "same": np.full(1200, "x"),
    }
    ids = np.array([f"r{i}" for i in range(1200)])
    return Table(x, "run", ids, metadata, features=tuple("abcdefg"))


@pytest.mark.parametrize(
    "options",
    [{}, {"components": 3}, {"standardize": True}, {"normalize": "cosine"}, {"whiten": False}, {"rows": 600}],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::congruence.errors.NotConvergedWarning")
def test_loadings_are_correlations_of_columns_with_components(table, options):
    result = resolve(table, starts=1, **options)
    x = table.values / np.linalg.norm(table.values, axis=1, keepdims=True) if "normalize" in options else table.values
    s = result.ica.transform(table)
    normalize = "normalize" in options
    whiten = options.get("whiten", True)
    ours = column_correlations(table.values, result.components, whiten=whiten, scale_rows=normalize)
    live = x.std(0) > 1e-9
    assert_allclose(ours[live], np.corrcoef(x[:, live].T, s.T)[: live.sum(), live.sum() :], atol=1e-6)
    assert not ours[~live].any()
    for j, loadings in enumerate(result.loadings):
        assert [one.feature for one in loadings] == [
            table.features[i] for i in np.argsort(-np.abs(ours[:, j]), kind="stable")
        ]
        assert loadings[0].value == ours[table.features.index(loadings[0].feature), j]


def test_only_the_largest_loadings_are_listed(rng):
    correlations = rng.uniform(-1, 1, size=(40, 3))
    (first, *_) = top_loadings(correlations, [f"c{i}" for i in range(40)])
    assert len(first) == FEATURES
    assert_allclose([abs(one.value) for one in first], -np.sort(-np.abs(correlations[:, 0]))[:FEATURES])


def test_columns_without_names_are_numbered(rng):
    result = resolve(rng.laplace(size=(500, 3)), starts=1)
    assert {one.feature for one in result.loadings[0]} == {"emb_0", "emb_1", "emb_2"}


def test_metadata_explain_the_component_that_follows_them(table):
    result = resolve(table, starts=1)
    explained = [profile.explained for profile in result.profiles]
    assert set(explained[0]) == {"site", "size", "batch"}  # not one group, and not one group per row
    best = max(range(5), key=lambda j: explained[j]["site"])
    assert explained[best]["size"] > 0.8
    assert 0.3 < explained[best]["site"] < 0.7
    assert all(one["batch"] < 0.02 for one in explained)
    assert all(explained[j]["size"] < 0.05 for j in range(5) if j != best)


def test_explained_variance_is_omega_squared(table):
    result = resolve(table, starts=1)
    s, groups = result.ica.transform(table)[:, 0], table.metadata["site"]
    inside = [s[groups == name] for name in ("left", "right")]
    between = sum(len(one) * (one.mean() - s.mean()) ** 2 for one in inside)
    within = sum(((one - one.mean()) ** 2).sum() for one in inside) / (len(s) - 2)
    expected = (between - within) / (((s - s.mean()) ** 2).sum() + within)
    assert_allclose(result.profiles[0].explained["site"], max(expected, 0))


def test_rows_without_a_label_are_left_out(table, monkeypatch):
    site = table.metadata["site"].astype(object)
    site[::3] = None
    values = table.metadata["size"].copy()
    values[::3] = np.nan
    unmixing = resolve(table, starts=1).components.unmixing
    some = np.arange(1200) % 3 != 0
    few = {name: table.metadata[name][some] for name in ("site", "size")}
    expected = explained_variance(table.values[some], unmixing, few)
    monkeypatch.setattr("congruence.arrays.CHUNK_BYTES", 8 * 7 * 100)  # several chunks
    ours = explained_variance(table.values, unmixing, {"site": site, "size": values})
    for one, other in zip(ours, expected, strict=True):
        assert_allclose([one["site"], one["size"]], [other["site"], other["size"]])


def test_dask_workers_explain_the_same(table):
    da = pytest.importorskip("dask.array")
    unmixing = resolve(table, starts=1).components.unmixing
    here = explained_variance(table.values, unmixing, table.metadata)
    there = explained_variance(da.from_array(table.values, chunks=(500, 7)), unmixing, table.metadata)
    for one, other in zip(here, there, strict=True):
        assert_allclose(list(one.values()), list(other.values()))


def test_json_and_csv_have_the_loadings(table):
    result = resolve(table, starts=1)
    plain = json.loads(result.to_json())["numbers"]
    assert len(plain["loadings"]) == 5
    assert plain["loadings"][0][0]["feature"] == plain["components"][0]["feature1"] == result.loadings[0][0].feature
    assert plain["loadings"][0][0]["value"] == plain["components"][0]["loading1"]
    assert plain["profiles"][0]["explained"].keys() == {"site", "size", "batch"}
    assert "feature1,loading1,feature2,loading2,feature3,loading3" in result.to_csv().splitlines()[0]
    assert result.to_frame()["feature1"].tolist() == [row[0].feature for row in result.loadings]


def test_page_and_terminal_show_what_components_are_made_of(table):
    result = resolve(table, starts=1)
    page, screen = render_html(result.document()), render_text(result.document(), 100)
    sign = "−" if result.loadings[0][0].value < 0 else "+"
    assert f"ica0: {sign} {result.loadings[0][0].feature}, " in page
    assert page.count("Features with the largest correlations with ica") == 5
    assert "Which metadata explain them?" in page
    assert "columns with the largest correlations" in screen
    plain = resolve(table.values, starts=1)
    assert "columns with the largest correlations" not in render_text(plain.document(), 100)
    assert "Which metadata explain them?" not in render_html(plain.document())


@pytest.mark.parametrize("options", [{"components": 1}, {"components": 0.2}, {"components": 1, "stability": 2}])
def test_one_direction_is_no_success(table, options):
    result = resolve(table, starts=1, **options)
    assert (result.k, result.identified, result.status) == (1, 0, "unknown")
    assert result.verdict == "Only one direction was kept, so there is no rotation to undo."
    assert (result[0]["problem"], result[0]["status"], result[0]["identified"]) == ("single", "unknown", False)
    assert all(finding.status == "unknown" and finding.number is None for finding in result.findings)
    number = options["components"]
    assert f"1 of 5 directions that vary was kept (components={number}): the component is the first" in result.notes[0]
    assert "is identified" not in render_html(result.document())


def test_one_column_has_no_rotation(rng):
    result = resolve(rng.laplace(size=(300, 1)), starts=1)
    assert (result.status, result.identified) == ("unknown", 0)
    assert not any("principal axis" in note for note in result.notes)


def test_a_single_stable_component_is_called_a_principal_axis(table):
    stability = component_stability(table.values, n_components=1, restarts=1, bootstrap=2)
    assert stability.verdict == "The only component, the first principal axis, is stable."


@pytest.mark.filterwarnings("ignore:400 components")
def test_more_components_than_directions_are_noted(table):
    result = resolve(table, components=400, starts=1)
    assert result.notes[0] == "400 components were requested, but the rows vary in 5 directions, so there are 5."


@pytest.mark.filterwarnings("ignore::congruence.errors.NotConvergedWarning")
def test_columns_in_different_units_are_noted(rng):
    x = rng.laplace(size=(400, 40)) @ rng.normal(size=(40, 40))
    x[:, 3] *= 300

    def notes(rows, **options):
        return [note for note in resolve(rows, starts=1, max_iter=5, **options).notes if "standardize" in note]

    (note,) = notes(x, components=0.95)
    assert note.startswith("1 of 40 directions holds ")
    assert "because 1 of 40 columns varies much more than the others" in note
    assert note.endswith("This changes which directions are kept.")
    (note,) = notes(x)
    assert note.endswith("All directions were kept, so this would matter only for a smaller number of components.")
    assert not notes(x, standardize=True)
    assert not notes(x / x.std(0))
    principal = (x - x.mean(0)) @ np.linalg.svd(x - x.mean(0), full_matrices=False)[2].T
    assert not notes(principal)


@pytest.mark.filterwarnings("ignore::congruence.errors.NotConvergedWarning")
def test_real_features_in_units_are_noted_and_real_embeddings_are_not(mixtures):
    from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

    def noted(x):
        return any("--standardize" in note for note in resolve(x, components=0.95, starts=1, max_iter=5).notes)

    assert noted(load_breast_cancer().data)
    assert noted(load_wine().data)
    assert not noted(load_iris().data)  # all in centimetres
    assert not noted(load_digits().data)
    assert not noted(mixtures.network_features(800, 30))
    one_factor = mixtures.sources(800, 30) + 40 * mixtures.sources(800, 1, seed=3)  # no unit, but a common factor
    assert not noted(one_factor)


def test_a_resolution_without_loadings_is_still_shown(table):
    result = replace(resolve(table, starts=1), loadings=())
    assert result[0]["feature1"] is None
    assert "ica0: extreme rows" in render_html(result.document())


def test_the_context_of_a_token_is_shown_although_it_explains_nothing(rng):
    frame = pd.DataFrame(rng.laplace(size=(300, 3)), columns=["x", "y", "z"])
    for name, levels in {"Metadata_input": 5, "Metadata_position": 60, "Metadata_plate": 4}.items():
        frame[name] = np.arange(300) % levels
    frame["Metadata_context"] = [f"forty characters before it, or fewer [token{i}] and after" for i in range(300)]
    page = render_html(resolve(frame, starts=1, check=False).document())
    assert "forty characters before it, or fewer [token" in page
