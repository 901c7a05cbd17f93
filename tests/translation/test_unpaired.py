"""Without paired rows, a rotation is found where the rows determine it, and nothing is claimed where they do not."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congruence.errors import InputError
from congruence.translation import load_translator, translate
from congruence.translation._rotation_search import agreement, permute_columns, rearrange, swap_pairs
from congruence.translation._unpaired_verdict import LEAD, failed_checks, judge_matching
from congruence.translation.result import INSIDE, RowMatching

torch = pytest.importorskip("torch")
QUICK = {"unpaired": True, "starts": 32, "splits": 1, "nulls": 4}
BARE = {"unpaired": True, "starts": 8, "splits": 0, "nulls": 0}


def rotation(d, rng):
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def clusters(n, rng, d=10, count=12, spread=0.35):
    """Rows of clusters at random places with random weights, elongated along one direction each."""
    centres = rng.normal(size=(count, d)) * np.linspace(1.5, 0.5, d)
    shapes = spread * rng.normal(size=(count, d, d)) / np.sqrt(d)
    member = rng.choice(count, size=n, p=rng.dirichlet(np.full(count, 3.0)))
    return centres[member] + np.einsum("ni,nij->nj", rng.gamma(1.0, size=(n, d)) - 1, shapes[member])


def explained(found, old, new):
    """R² of translated rows, by paired rows that the fit did not see."""
    return 1 - np.square(found.translator(new) - old).sum() / np.square(old - old.mean(0)).sum()


@pytest.fixture(scope="module")
def related():
    """One population and two models: the new one is turned, scaled, moved, wider and noisy. No row in common."""
    rng = np.random.default_rng(1)
    old = clusters(1200, rng)
    new = 3 * np.pad(old, ((0, 0), (0, 2))) @ rotation(12, rng) + 7 + 0.05 * rng.normal(size=(1200, 12))
    return old, new, translate(old[::2], new[1::2], **QUICK | {"starts": 128})


def test_a_rotation_is_recovered_from_disjoint_rows(related, tmp_path):
    old, new, found = related
    assert found.status == "holds"
    assert explained(found, old, new) > 0.95
    assert found.matching.p < 0.01
    assert found.matching.same_model < found.matching.residual < found.matching.null
    assert found.matching.mean_agreement > 0.9
    found.save(tmp_path / "map.safetensors")
    assert np.array_equal(load_translator(tmp_path / "map.safetensors")(new), found.translator(new))


def test_it_is_never_a_go_and_says_that_pairs_are_needed(related):
    found = related[2]
    assert found.verdict.startswith("Without paired rows, one map from new to old vectors stands out.")
    assert found.document().status_text == ""
    assert found.notes[0].startswith("Experimental: only paired rows can confirm this map.")
    assert found.finding.basis == "supported"


def test_json_and_table_have_every_measurement(related):
    read = json.loads(related[2].to_json())["numbers"]["matching"]
    assert set(read["nulls"]) == {"permuted", "rearranged", "rearranged within clusters"}
    assert read["p"] == pytest.approx(related[2].matching.p)
    rows = {row["score"]: row["value"] for row in related[2].rows()}
    assert rows["residual"] < rows["null rearranged"]
    assert list(related[2]) == []


def unrelated(kind, n, rng):
    """Two tables whose rows do not determine a map."""
    d = 8
    if kind == "gaussian":
        x = rng.normal(size=(2 * n, d)) * np.linspace(2, 0.5, d)
    elif kind == "sphere":
        x = rng.normal(size=(2 * n, d))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    elif kind == "simplex":  # every permutation of the clusters is a symmetry
        x = 3 * np.eye(d)[rng.integers(d, size=2 * n)] + 0.3 * rng.normal(size=(2 * n, d))
    elif kind == "cube":
        x = rng.choice([-1.0, 1.0], size=(2 * n, d)) * np.linspace(2, 0.5, d) + 0.2 * rng.normal(size=(2 * n, d))
    elif kind == "destroyed":
        x = clusters(2 * n, rng, d)
        axes = np.linalg.svd(x - x.mean(0), full_matrices=False)[2]
        return x[:n], permute_columns((x[n:] - x.mean(0)) @ axes.T, rng)
    else:
        return clusters(n, rng, d), clusters(n, rng, d)  # other clusters
    return x[:n], x[n:] @ rotation(d, rng)


@pytest.mark.parametrize("kind", ["gaussian", "sphere", "simplex", "cube", "destroyed", "other population"])
def test_rows_that_do_not_determine_a_map_are_unknown(kind, rng, tmp_path):
    found = translate(*unrelated(kind, 200, rng), **QUICK | {"starts": 16})
    assert found.status == "unknown"
    assert "the map from new to old vectors is not determined" in found.verdict
    with pytest.raises(InputError, match="the map is not determined"):
        found.save(tmp_path / "map.safetensors")


def test_clusters_in_the_same_places_with_unrelated_rows_inside_are_unknown(rng):
    centres = 4 * rng.normal(size=(5, 3))
    tables = []
    for _ in range(2):
        member = rng.integers(5, size=400)
        tables.append(np.hstack([centres[member], np.zeros((400, 9))]) + rng.normal(size=(400, 12)))
    found = translate(tables[0], tables[1] @ rotation(12, rng), **QUICK | {"starts": 16})
    assert found.status == "unknown"


@pytest.mark.parametrize("seed", range(3))
def test_a_mirrored_map_is_found_as_a_rival_although_the_means_of_the_samples_differ(seed):
    rng = np.random.default_rng(seed)
    x = clusters(600, rng, 6)
    x[:, 0] = 2 * np.abs(x[:, 0]) * rng.choice([-1.0, 1.0], size=600)
    found = translate(x[::2], x[1::2] @ rotation(6, rng), unpaired=True, starts=64, nulls=0, splits=0)
    assert found.matching.lead < LEAD
    assert "A different map fits as well: the data may be symmetric." in found.verdict


def evidence(**changes):
    fields = {
        "residual": 0.30,
        "same_model": 0.25,
        "nulls": {"permuted": (0.5, 0.501, 0.499), "rearranged": (0.45, 0.451, 0.449)},
        "agreement": (0.9, 0.8),
        "agreement_within": (0.8, 0.6),
        "rival": 0.4,
        "lead": 20.0,
        "rows": 500,
        "directions": 10,
        "explained": 0.99,
    }
    return RowMatching(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"residual": 0.449}, "is not clearly below that of rows without shared structure, 0.45"),
        ({"residual": 0.41}, "lies only 20.0 % of the way from that of rows without shared structure to"),
        (
            {"nulls": {"rearranged": (0.45, 0.451), INSIDE: (0.31, 0.32)}},
            "below that of rows rearranged within their clusters",
        ),
        ({"agreement": (0.9, 0.3)}, "disagree (R² 0.60; 0.7 is required)"),
        ({"agreement_within": (0.5, 0.1)}, "agree on clusters but not within them (R² 0.30"),
        ({"lead": 1.0}, "A different map fits as well"),
        ({"residual": np.nan}, "is not clearly below"),
        ({"agreement": (np.nan,)}, "disagree"),
    ],
)
def test_each_check_alone_makes_it_unknown_and_is_named(changes, reason):
    assert judge_matching(evidence())[0].status == "holds"
    finding, headlines, _ = judge_matching(evidence(**changes))
    assert finding.status == "unknown"
    assert reason in headlines[1]
    assert len(failed_checks(evidence(**changes))) == 1


def test_without_nulls_or_halves_nothing_is_claimed(rng):
    x = clusters(300, rng, 4)
    found = translate(x[::2], x[1::2], **BARE | {"starts": 64})
    assert found.status == "unknown"
    assert "No null was searched (nulls is 0). No halves were compared (splits is 0)." in found.verdict
    assert json.loads(found.to_json())["numbers"]["matching"]["p"] is None


def test_p_is_the_largest_of_all_nulls_and_shared_is_relative_to_the_nearer_one():
    from scipy.stats import t

    matching = evidence()
    assert matching.p == pytest.approx(t.sf(0.15 / (0.001 * np.sqrt(4 / 3)), 2))
    assert matching.shared == pytest.approx(0.15 / 0.20)
    assert evidence(nulls={"permuted": (0.5, 0.5)}).p == 0
    assert evidence(nulls={"permuted": (0.3, 0.3)}).p == 1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 20))
def test_nulls_keep_what_they_promise(seed, d):
    rng = np.random.default_rng(seed)
    x = rng.gamma(1.0, size=(60, d)) @ rng.normal(size=(d, d))
    x = (x - x.mean(0)) @ np.linalg.svd(x - x.mean(0))[2].T  # principal scores
    np.testing.assert_allclose(np.sort(permute_columns(x, rng), axis=0), np.sort(x, axis=0))
    scale = np.square(x).sum()
    means = x[rng.integers(4, size=60)]
    for around in (x.mean(0), means):
        turned = rearrange(x, around, rng)
        np.testing.assert_allclose(covariance(turned, around) / scale, covariance(x, around) / scale, atol=1e-9)
    assert np.abs(rearrange(x, x, rng) - x).max() < 1e-9 * np.abs(x).max()


def covariance(x, means):
    return (x - means).T @ (x - means)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_no_exchange_of_two_matched_centres_improves_the_match(seed):
    rng = np.random.default_rng(seed)
    a, b = (centres @ centres.T for centres in rng.normal(size=(2, 7, 3)))
    start = rng.permutation(7)
    order = swap_pairs(a, b, start)

    def match(order):
        return np.sum(a * b[np.ix_(order, order)])

    exchanged = [np.where(order == i, j, np.where(order == j, i, order)) for i in range(7) for j in range(i)]
    assert sorted(order) == list(range(7))
    assert match(order) >= max(match(start), *map(match, exchanged)) - 1e-6


def test_agreement_is_one_for_the_same_map_and_minus_three_for_the_opposite_one(rng):
    x, q = torch.tensor(rng.normal(size=(50, 4))), torch.tensor(rotation(4, rng))
    assert agreement(x, q, q) == 1
    assert agreement(x, q, -q) == pytest.approx(-3)


def test_the_same_seed_gives_the_same_result(rng):
    old, new = clusters(200, rng, 4), clusters(200, rng, 4)
    first, again, other = (translate(old, new, seed=seed, **BARE).to_json() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20, 1e160])
def test_the_unit_of_the_data_does_not_matter(scale, rng):
    x = clusters(240, rng, 4)
    x[:, 3] = 2.5  # a constant column
    found = translate(x[::2], scale * x[1::2], **BARE)
    assert found.matching.directions == 3
    assert found.matching.residual == pytest.approx(translate(x[::2], x[1::2], **BARE).matching.residual, rel=0.05)
    assert np.isfinite(found.translator(scale * x)).all()


def test_fewer_rows_than_columns_are_allowed(rng):
    x = clusters(240, rng, 3) @ rng.normal(size=(3, 150))
    found = translate(x[::2], x[1::2], **BARE)
    assert found.matching.directions == 3
    assert found.translator(x).shape == x.shape


def test_rows_on_the_sphere_stay_there_and_missing_ones_are_left_out(rng):
    old, new = clusters(150, rng, 4), clusters(150, rng, 4)
    new[3, 1] = np.nan
    with pytest.raises(InputError, match="new has NaN"):
        translate(old, new, **BARE)
    found = translate(old, new, normalize="cosine", drop_missing=True, **BARE)
    assert found.n_new == 149
    np.testing.assert_allclose(np.linalg.norm(found.translator(new[:3]), axis=1), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": 0}, "starts must be an integer of at least 1; got 0"),
        ({"splits": 1.5}, "splits must be an integer"),
        ({"nulls": 1}, "nulls must be 0 or at least 2 for an unpaired translation; got 1"),
        ({"normalize": "sphere"}, "normalize must be"),
        ({"device": "tpu"}, "device must be"),
        ({"group": "rigid"}, "group needs rows that both models embedded"),
    ],
)
def test_options_are_checked(change, message, rng):
    with pytest.raises(InputError, match=message):
        translate(rng.normal(size=(150, 3)), rng.normal(size=(150, 3)), unpaired=True, **change)


@pytest.mark.parametrize(
    ("old", "message"),
    [
        (np.ones((150, 3)), "all rows of old are equal"),
        (np.eye(3), "old must have at least 100 rows for a translation without pairs; got 3"),
    ],
)
def test_tables_that_cannot_be_matched_are_refused(old, message, rng):
    with pytest.raises(InputError, match=message):
        translate(old, rng.normal(size=(150, 3)), unpaired=True)


def test_two_trainings_of_one_network_are_aligned_without_pairs(model_pair):
    """Each model sees its own half of the molecules; the paired truth, which the fit does not see, is the judge."""
    old, new = (x.astype(float) for x in model_pair)
    mine, other = np.array_split(np.random.default_rng(0).permutation(len(old)), 2)
    found = translate(old[mine], new[other], unpaired=True, splits=1, nulls=0)
    assert failed_checks(found.matching) == ["No null was searched (nulls is 0)."]
    assert explained(found, old[other], new[other]) > 0.8
