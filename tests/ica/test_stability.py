import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from congruence import Table, component_stability, write_table
from congruence.errors import InputError, NotConvergedWarning
from congruence.ica._icasso import cluster_components, quality_index
from congruence.ica._unmixing import prepare_rows
from congruence.ica.components import independent_components
from congruence.ica.profiles import profile_components
from congruence.ica.results import Agreement
from congruence.ica.stability import chance_agreement, directions, matched_to, whitened_space
from congruence.maps.matching import strong_mcc
from congruence.stats.resampling import units_of

FEW = {"restarts": 3, "bootstrap": 6}


def mixture(rng, n=3000, gaussian=0):
    sources = np.column_stack(
        [rng.laplace(size=n), rng.uniform(-1, 1, n), rng.exponential(size=n), rng.normal(size=(n, gaussian))]
    )
    return sources, sources @ rng.normal(size=(3 + gaussian,) * 2) + 4


def unit_rows(rng, k, r):
    rows = rng.normal(size=(k, r))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_components_of_a_mixture_are_stable(rng):
    sources, x = mixture(rng)
    found = component_stability(x, **FEW)
    assert found.status == "holds"
    assert found.stable.all()
    assert found.agreement.restarts_min.min() > 0.9999
    assert found.agreement.low.min() > 0.98
    assert found.quality.min() > 0.9
    assert strong_mcc((x - x.mean(0)) @ found.components.unmixing.unmixing.T, sources) > 0.99


def test_gaussian_sources_are_noise_and_the_others_stay_stable(rng):
    _, x = mixture(rng, n=6000, gaussian=3)
    found = component_stability(x, **FEW)
    assert found.problems == [None] * 3 + ["gaussian"] * 3
    assert found.stable.tolist() == [True] * 3 + [False] * 3
    assert (
        found.agreement.median[:3].min() > found.agreement.median[3:].max() > 0.9
    )  # resamples share the noise that was fitted
    assert found.status == "ambiguous"
    assert found.verdict == "3 of 6 components are stable. Not stable: 3 indistinguishable from Gaussian noise."


def test_axes_of_a_ring_are_not_gaussian_and_yet_unstable(rng):
    angle = rng.uniform(0, 2 * np.pi, 2000)  # every pair of axes of a ring is as good as any other
    x = np.column_stack([np.cos(angle), np.sin(angle), rng.laplace(size=2000)]) @ rng.normal(size=(3, 3))
    found = component_stability(x, restarts=5, bootstrap=20)
    assert not found.components.unmixing.noise.any()
    assert sorted(map(str, found.problems)) == ["None", "resamples", "resamples"]
    ring = ~found.stable
    assert found.quality[ring].max() < found.quality[~ring].min() - 0.1


def test_a_stable_component_is_reproduced_by_every_restart_and_nearly_every_resample():
    draws = np.ones((20, 3))
    draws[:2, 2] = 0.5
    agreement = Agreement(restarts=np.array([[1.0, 0.8, 1.0], [1.0, 1.0, 1.0]]), bootstrap=draws)
    assert agreement.stable.tolist() == [True, False, False]
    assert_allclose([agreement.restarts_min[1], agreement.restarts_mean[1], agreement.median[2]], [0.8, 0.9, 1])


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(rng):
    _, x = mixture(rng, n=500)
    assert component_stability(x, **FEW).to_json() == component_stability(x, **FEW).to_json()
    other = component_stability(x, **FEW, seed=1)
    assert not np.array_equal(component_stability(x, **FEW).agreement.bootstrap, other.agreement.bootstrap)


def test_more_fits_do_not_change_the_first_ones(rng):
    _, x = mixture(rng, n=500)
    few, more = component_stability(x, restarts=1, bootstrap=2), component_stability(x, restarts=2, bootstrap=4)
    assert_array_equal(few.agreement.restarts, more.agreement.restarts[:1])
    assert_array_equal(few.agreement.bootstrap, more.agreement.bootstrap[:2])


def test_the_order_of_rows_does_not_matter_up_to_the_luck_of_the_draw(rng):
    _, x = mixture(rng)
    first, second = (component_stability(rows, restarts=1, bootstrap=10) for rows in (x, rng.permutation(x)))
    assert_allclose(first.agreement.median, second.agreement.median, atol=0.005)
    assert_array_equal(first.stable, second.stable)


def test_repeated_rows_look_certain_until_they_are_drawn_together(rng):
    _, x = mixture(rng, n=300)
    copies = np.repeat(np.arange(300), 8)
    apart = component_stability(x[copies], restarts=0, bootstrap=20).agreement
    together = component_stability(x[copies], restarts=0, bootstrap=20, cluster=copies).agreement
    once = component_stability(x, restarts=0, bootstrap=20).agreement
    assert ((1 - together.median) > 3 * (1 - apart.median)).all()
    assert ((together.high - together.low) > 2 * (apart.high - apart.low)).all()
    assert_allclose(together.median, once.median, atol=0.02)


def test_rows_of_a_cluster_are_drawn_as_often_as_each_other(rng):
    labels = np.array(["b", "a", "b", "c", "a", "c", "c"])
    times = np.bincount(units_of(labels, 7).draw(rng), minlength=7)
    for label in "abc":
        assert len(set(times[labels == label])) == 1
    assert (times[[0, 1, 3]].sum(), np.unique(labels).size) == (3, 3)


def test_of_chosen_rows_only_these_are_drawn(rng):
    _, x = mixture(rng, n=2000)
    found = component_stability(x, **FEW, rows=800)
    assert found.settings["rows"] == found.components.unmixing.n == 800
    drawn = units_of(None, len(x)).within(found.components.rows).draw(rng)
    assert len(drawn) == 800
    assert set(drawn) <= set(found.components.rows)
    assert found.agreement.restarts_min.min() > 0.999


def test_correlations_of_components_need_no_second_pass(rng):
    _, x = mixture(rng)
    prepared = prepare_rows(x, n_components=2, contrast="logcosh", whiten=True, device="cpu")
    a, b = rng.normal(size=(2, 3)), rng.normal(size=(4, 3))
    space = whitened_space(prepared)
    assert_allclose(
        directions(a, space) @ directions(b, space).T, np.corrcoef(x @ a.T, x @ b.T, rowvar=False)[:2, 2:], atol=1e-10
    )


def test_correlations_stay_exact_where_the_covariance_has_lost_a_direction(rng):
    x = rng.laplace(size=(2000, 3)) * [1e6, 1.0, 1e-3]
    prepared = prepare_rows(x, n_components=None, contrast="logcosh", whiten=True, device="cpu")
    found = independent_components(x).unmixing.unmixing
    own = directions(found, whitened_space(prepared))
    assert_allclose(own @ own.T, np.eye(3), atol=1e-6)


def test_components_without_a_partner_are_not_reproduced():
    assert_allclose(matched_to(np.eye(3), np.eye(3)[[2, 0]]), [1, 0, 1])


def test_chance_is_that_of_random_rotations():
    angle = np.linspace(-np.pi / 4, np.pi / 4, 10001)  # in a plane, partners are never more than 45 degrees apart
    assert_allclose(chance_agreement(2), np.cos(angle).mean(), atol=0.01)
    assert chance_agreement(1) == 1
    assert chance_agreement(64) < 0.4


def test_the_quality_index_is_that_of_himberg(rng):
    every = unit_rows(rng, 30, 4)
    label = rng.permutation(np.r_[np.zeros(10), np.ones(12), np.full(7, 2), 3].astype(int))
    quality, size = quality_index(every, label)
    for c in range(4):
        members, rest = np.flatnonzero(label == c), np.flatnonzero(label != c)
        inside = [abs(every[i] @ every[j]) for i in members for j in members if i != j]
        outside = [abs(every[i] @ every[j]) for i in members for j in rest]
        assert_allclose(quality[c], (np.mean(inside) if inside else 0) - np.mean(outside), atol=1e-6)
        assert size[c] == len(members)


def test_identical_fits_make_perfect_clusters(rng):
    base = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    clusters = cluster_components([base, -base[::-1], base[[2, 0, 1, 4, 3]]])
    assert_allclose(clusters.quality, 1, atol=1e-6)
    assert_array_equal(clusters.size, 3)
    assert not clusters.shared.any()
    assert (clusters.strays, clusters.runs) == (0, 3)


def test_a_component_that_is_never_reproduced_shares_or_lacks_a_cluster():
    e = np.eye(5)
    near = (e[0] + 0.1 * e[1]) / np.sqrt(1.01)
    others = [e[[0, 2, 3]], e[[0, 2, 3]]]
    clusters = cluster_components([np.array([e[0], near, e[2]]), *others])
    assert clusters.shared.tolist() == [True, True, False]
    assert clusters.strays == 1
    alone = cluster_components([e[[0, 1, 2]], e[[0, 2, 2]], e[[0, 2, 2]]])
    assert_allclose(alone.quality[1], 0, atol=1e-6)  # and not 1, its similarity to itself


def test_where_memory_is_short_fewer_fits_are_clustered(rng):
    runs = [unit_rows(rng, 10, 10) for _ in range(9)]
    assert cluster_components(runs).runs == 9
    assert cluster_components(runs, largest=50).runs == 5
    assert cluster_components(runs, largest=29) is None
    assert cluster_components(runs[:2]) is None


def test_fits_left_out_of_the_clusters_are_noted(rng, monkeypatch):
    _, x = mixture(rng, n=300)
    for largest, note in ((12, "Only 4 of 10 fits"), (8, "too many components to be clustered")):
        monkeypatch.setattr(cluster_components, "__defaults__", (largest,))
        found = component_stability(x, **FEW)
        assert any(note in text for text in found.notes)
    assert found.clusters is None
    assert found.quality is None
    assert found[0]["quality"] is None


def test_the_curve_shows_where_stability_ends(rng):
    n = 4000
    x = (
        np.column_stack([rng.laplace(size=(n, 3)) * 3, rng.normal(size=(n, 3))])
        @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
    )
    curve = component_stability(x, n_components=3, **FEW, curve=(1, 3, 6)).curve
    assert [point.n_components for point in curve] == [1, 3, 6]
    assert [point.stable for point in curve[1:]] == [3, 3]
    assert curve[2].identified == 3
    assert curve[1].bootstrap > 0.98 > curve[2].bootstrap
    assert_allclose(curve[2].variance_share, 1)
    assert curve[1].chance > curve[2].chance


@pytest.mark.parametrize("scale", [1.0, 1.2])
def test_rows_that_are_not_to_be_whitened_are_only_rotated(scale, rng):
    sources = rng.laplace(size=(4000, 3))
    sources = (sources - sources.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(sources.T, bias=True))).T
    x = sources * [1, 1, scale] @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    found = component_stability(x, whiten=False, n_components=2, **FEW)
    assert found.k == 2
    rotation = found.components.unmixing.unmixing
    assert_allclose(rotation @ rotation.T, np.eye(2), atol=1e-10)
    assert found.agreement.restarts.max(0).min() > 0.999


def test_a_profile_names_the_rows_at_either_end(rng, monkeypatch):
    _, x = mixture(rng, n=700)
    found = independent_components(x).unmixing
    s = (x - found.mean) @ found.unmixing.T
    monkeypatch.setattr("congruence.arrays.CHUNK_BYTES", 8 * 3 * 100)  # seven chunks
    profile = profile_components(x, found, rows=4)
    assert_array_equal(profile.highest, np.argsort(-s, axis=0, kind="stable")[:4].T)
    assert_array_equal(profile.lowest, np.argsort(s, axis=0, kind="stable")[:4].T)
    assert_allclose(profile.highest_values, -np.sort(-s, axis=0)[:4].T)
    assert_array_equal(profile.counts.sum(1), 700)
    inside = np.clip(s[:, 0], -5.99, 5.99)
    assert_array_equal(profile.counts[0], np.histogram(inside, profile.edges)[0])


def test_the_table_and_json_are_tidy(rng):
    _, x = mixture(rng, n=400)
    found = component_stability(x, restarts=2, bootstrap=0, curve=(2,))
    rows = list(found.rows())
    assert [row["component"] for row in rows] == ["ica0", "ica1", "ica2"]
    assert_allclose(sum(row["variance_share"] for row in rows), 1)
    plain = json.loads(found.to_json())
    assert plain["numbers"]["components"][0]["low"] is None  # there was no bootstrap
    assert (plain["status"], plain["numbers"]["components"][0]["status"]) == (
        "unknown",
        "holds",
    )  # restarts alone say nothing of other rows
    assert plain["numbers"]["curve"][0]["n_components"] == 2
    assert plain["settings"]["bootstrap"] == 0
    assert "ica2        ✓ stable" in str(found)
    assert (found["ica2"]["component"], found[2]["component"]) == ("ica2", "ica2")
    with pytest.raises(InputError, match=r"no 'ica9' in this ComponentStability; the keys are 'ica0', 'ica1'"):
        found["ica9"]


def test_tables_bring_ids_and_clusters(rng, tmp_path):
    _, x = mixture(rng, n=400)
    plates = np.array([f"p{i % 20}" for i in range(400)])
    table = Table(x, "run", ids=np.arange(400) + 7, metadata={"Metadata_plate": plates})
    write_table(table, tmp_path / "run.parquet")
    named = component_stability(tmp_path / "run.parquet", **FEW, cluster="plate")
    given = component_stability(x, **FEW, cluster=plates)
    assert named.to_json() == given.to_json() == component_stability(table, **FEW, cluster=plates).to_json()
    assert named.ids[0] == 7
    assert named.settings["clusters"] == 20
    with pytest.raises(InputError, match="no metadata column 'patient'; it has Metadata_plate"):
        component_stability(table, cluster="patient")


@pytest.mark.parametrize("kind", ["tensor", "memmap", "chunks"])
def test_every_kind_of_rows_gives_the_same_numbers(kind, rng, tmp_path):
    _, x = mixture(rng, n=400)
    if kind == "tensor":
        given = pytest.importorskip("torch").from_numpy(x)
    elif kind == "memmap":
        np.save(tmp_path / "x.npy", x)
        given = np.load(tmp_path / "x.npy", mmap_mode="r")
    else:
        given = iter([x[:150], x[150:]])
    assert_allclose(component_stability(given, **FEW).agreement.median, component_stability(x, **FEW).agreement.median)


def test_progress_is_reported_to_the_end(rng):
    _, x = mixture(rng, n=300)
    seen = []
    component_stability(x, restarts=4, bootstrap=2, curve=(2,), progress=lambda *step: seen.append(step))
    assert [done for _, done, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][1] == seen[-1][2] == 1 + 4 + 2 + (1 + 3 + 2)


def test_few_clusters_and_fits_that_did_not_converge_are_noted(rng):
    _, x = mixture(rng, n=300)
    with pytest.warns(NotConvergedWarning):
        found = component_stability(x, **FEW, cluster=np.arange(300) % 4, max_iter=1)
    assert "There are only 4 clusters, so the bootstrap has that few independent cases." in found.notes
    assert any("had not converged" in note for note in found.notes)


def test_fewer_drawn_directions_than_components_are_no_obstacle(rng):
    x = rng.laplace(size=(30, 28))  # a draw has about 19 distinct rows
    with pytest.warns(NotConvergedWarning):
        found = component_stability(x, restarts=1, bootstrap=3)
    assert (found.agreement.bootstrap == 0).any()
    assert found.status == "fails"
    assert not found.stable.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bootstrap": -1}, "bootstrap must be an integer of at least 0; got -1"),
        ({"restarts": 2.5}, "restarts must be an integer of at least 0; got 2.5"),
        ({"seed": True}, "seed must be an integer of at least 0; got True"),
        ({"restarts": 0, "bootstrap": 0}, "both 0, so there is nothing to compare"),
        ({"cluster": np.zeros(5)}, r"cluster must have one label per row, shape \(50,\), but has shape \(5,\)"),
        ({"cluster": np.zeros(50)}, "all rows belong to one cluster, so no clusters can be drawn"),
        ({"cluster": "plate"}, "cluster='plate' names a metadata column, but X has none"),
        ({"cluster": [None] + ["a"] * 49}, r"cluster has missing labels \(row 0\)"),
        ({"curve": 4}, "curve must be a sequence of numbers of components; got 4"),
        ({"curve": (2, 9)}, r"curve\[1\] must be an integer from 1 to 3; got 9"),
        ({"curve": (0.5,)}, "got 0.5"),
        ({"curve": (2,), "whiten": False}, "needs whiten=True"),
        ({"contrast": "cosine"}, "contrast must be one of"),
        ({"rows": "some"}, "rows must be 'all', 'auto' or an integer"),
        ({"tol": 0}, "tol must be a finite number above 0; got 0"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(options, message, rng):
    with pytest.raises(InputError, match=message):
        component_stability(mixture(rng, n=50)[1], **options)


def test_rows_with_nan_are_named(rng):
    x = mixture(rng, n=50)[1]
    x[17, 1] = np.nan
    with pytest.raises(InputError, match=r"X has NaN or infinite values in 1 row of 50 \(row 17\)"):
        component_stability(x)


def test_a_trained_network_has_few_stable_axes(model_pair):
    found = component_stability(model_pair[0], n_components=16, restarts=3, bootstrap=10)
    assert not found.components.unmixing.noise.any()
    assert 0 < found.stable.sum() < 16
    assert found.agreement.median.min() > found.chance / 2
    assert found.agreement.median.mean() > found.chance + 0.2


def test_components_that_were_found_before_can_be_assessed(rng):
    _, x = mixture(rng, gaussian=2)
    best = independent_components(x, starts=3, seed=5)
    stability = component_stability(x, found=best, **FEW)
    assert stability.components is best
    assert stability.problems == [None] * 3 + ["gaussian"] * 2


@pytest.mark.parametrize("change", [{"n_components": 2}, {"whiten": False}])
def test_components_of_something_else_are_refused(rng, change):
    _, x = mixture(rng)
    with pytest.raises(InputError, match="found holds components of other rows"):
        component_stability(x, found=independent_components(x, **change), **FEW)
    with pytest.raises(InputError, match="found holds components of other rows"):
        component_stability(x, found=independent_components(x[:2000]), **FEW)
