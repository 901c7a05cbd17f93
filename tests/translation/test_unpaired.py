"""Without paired rows, components are matched by their shapes, and what is not determined is not claimed."""

import json

import numpy as np
import pytest
from scipy.stats import ortho_group

from congruence.errors import InputError
from congruence.translation import load_translator, translate
from congruence.translation._unpaired import LEVELS, _match_shapes

pytestmark = pytest.mark.filterwarnings("ignore::congruence.errors.NotConvergedWarning")
QUICK = {"splits": 4, "unpaired": True}


def distinct(n, rng):
    """Components with four shapes of their own, none symmetric."""
    mixture = np.where(rng.random(n) < 0.2, 2.0, -0.5) + 0.1 * rng.normal(size=n)
    found = np.column_stack([rng.exponential(size=n), rng.beta(0.3, 0.6, size=n), mixture, -rng.gamma(0.15, size=n)])
    return found / found.std(0)


def models(sources, seed=0):
    """Two models of the same rows: the old one mixes the sources, the new one is turned, scaled, moved and wider."""
    rng = np.random.default_rng(seed)
    d = sources.shape[1]
    old = sources @ rng.normal(size=(d, d))
    new = 2 * np.pad(old, ((0, 0), (0, 1))) @ ortho_group.rvs(d + 1, random_state=seed) + 1
    return old, new


def explained(found, old, new):
    """The share of the old variance that translated rows explain, by the paired truth that the fit did not see."""
    return 1 - np.square(found.translator(new) - old).sum() / np.square(old - old.mean(0)).sum()


def test_distinct_shapes_are_recovered_from_disjoint_rows(rng, tmp_path):
    old, new = models(distinct(6000, rng))
    found = translate(old[::2], new[1::2], **QUICK)
    assert found.status == "holds"
    assert found.matching.confidence > 0.95 > 0.5 > found.matching.chance
    assert min(match.confidence for match in found.matching.matches) > 0.9
    assert found.matching.covered == pytest.approx(1, abs=0.01)
    assert explained(found, old, new) > 0.98
    assert found.verdict.startswith("Without paired rows, all components (4) are matched with confidence.")
    assert found.document().status_text == ""  # never a go
    assert found[2] is found.matching.matches[2]
    assert len(list(found.rows())) == 4
    found.save(tmp_path / "map.safetensors")
    assert np.array_equal(load_translator(tmp_path / "map.safetensors")(new), found.translator(new))


@pytest.mark.parametrize("draw", ["exponential", "normal", "laplace"])
def test_like_gaussian_or_symmetric_shapes_are_unknown(rng, tmp_path, draw):
    old, new = models(getattr(rng, draw)(size=(3000, 4)))
    found = translate(old[::2], new[1::2], unpaired=True, splits=8)
    assert found.status == "unknown"
    assert max(match.confidence for match in found.matching.matches) < 0.7
    assert "none of 4 components can be matched with confidence" in found.verdict
    assert np.ptp(found.translator(new), axis=0).max() < 1e-9  # nothing is carried, and every row stays at the mean
    with pytest.raises(InputError, match="no component is trusted"):
        found.save(tmp_path / "map.safetensors")
    assert np.ptp(translate(old[::2], new[1::2], unpaired=True, splits=1, keep="all").translator(new)) > 1


def test_of_distinct_and_like_components_only_the_distinct_are_carried(rng):
    sources = np.column_stack([distinct(6000, rng)[:, 1:3], rng.laplace(size=(6000, 2))])
    old, new = models(sources)
    found = translate(old[::2], new[1::2], **QUICK)
    assert (found.status, found.matching.trusted) == ("ambiguous", 2)
    assert explained(found, old, new) == pytest.approx(found.matching.covered, abs=0.05)


def test_shapes_that_the_other_model_does_not_have_fail(rng):
    old, _ = models(distinct(3000, rng))
    other = np.column_stack(
        [rng.chisquare(4, 3000), rng.beta(1, 3, 3000), rng.uniform(size=3000) ** 4, rng.normal(size=3000)]
    )
    found = translate(old, other @ rng.normal(size=(4, 4)), **QUICK)
    assert (found.status, found.matching.trusted) == ("fails", 0)
    assert "The models may be unrelated" in found.verdict


def test_rows_of_low_rank_have_as_many_components_as_they_can(rng):
    old, new = models(distinct(3000, rng)[:, 1:3])
    found = translate(np.hstack([old, old]), new, **QUICK)
    assert (found.status, len(found.matching.matches)) == ("holds", 2)
    assert explained(found, np.hstack([old, old]), new) > 0.98


def test_the_same_seed_gives_the_same_result(rng):
    old, new = models(distinct(800, rng))
    first, again, other = (translate(old, new, unpaired=True, splits=1, seed=seed).to_json() for seed in (1, 1, 2))
    assert first == again != other
    read = json.loads(first)
    assert read["notes"][0].startswith("Experimental: no paired row confirms this translation.")
    assert [match["old"] for match in read["numbers"]["matching"]["matches"]] == [0, 1, 2, 3]


def test_rows_on_the_sphere_stay_there_and_missing_ones_are_left_out(rng):
    old, new = models(distinct(600, rng))
    new[3, 1] = np.nan
    with pytest.raises(InputError, match="new has NaN"):
        translate(old, new, unpaired=True)
    found = translate(old, new, unpaired=True, splits=1, normalize="cosine", keep="all", drop_missing=True)
    assert found.n_new == 599
    np.testing.assert_allclose(np.linalg.norm(found.translator(new[:3]), axis=1), 1)


def test_a_shape_is_matched_up_to_its_sign_one_to_one():
    falling = -np.log(1 - LEVELS) - 1  # exponential
    flat = np.sqrt(12) * (LEVELS - 0.5)
    signs, squares = _match_shapes(np.stack([flat, -falling[::-1]]), np.stack([falling, flat]))
    np.testing.assert_array_equal(signs, [[0, 1], [-1, 0]])
    assert squares[1, 0] == 0
    assert squares[0, 0] > 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"components": 0}, "components must be an integer of at least 1; got 0"),
        ({"splits": 1.5}, "splits must be an integer"),
        ({"trust": 0}, "trust must be a number above 0 and at most 1; got 0"),
        ({"trust": "high"}, "trust must be a number above 0 and at most 1; got 'high'"),
        ({"seed": -1}, "seed must be an integer from 0 to 4294967295; got -1"),
        ({"keep": "some"}, "keep must be one of 'trusted', 'all'; got 'some'"),
        ({"normalize": "l1"}, "normalize must be one of None, 'cosine'"),
        ({"new": np.eye(30, 4)}, "new must have at least 160 rows for two halves of 4 components; got 30"),
        ({"new": np.zeros((300, 4)), "normalize": "cosine"}, "new has rows that are all zero"),
        ({"new": np.ones((300, 4))}, "all rows of new are equal"),
        ({"labels": np.ones(300)}, "labels needs rows that both models embedded"),
        ({"group": "rigid"}, "group needs rows that both models embedded, so it cannot be used with unpaired"),
        ({"device": "cuda"}, "device must be 'auto' or 'cpu' for an unpaired translation; got 'cuda'"),
    ],
)
def test_what_cannot_be_matched_is_refused(rng, change, message):
    with pytest.raises(InputError, match=message):
        translate(**({"old": rng.normal(size=(300, 4)), "new": rng.normal(size=(300, 4))} | change), unpaired=True)


def test_on_real_models_what_is_trusted_is_true(model_pair):
    """Two trainings of a graph network, on disjoint molecules; the paired truth, which is not shown, is the judge."""
    old, new = (x.astype(float) for x in model_pair)
    order = np.random.default_rng(0).permutation(len(old))
    found = translate(old[order[1::2]], new[order[::2]], unpaired=True, splits=5)
    assert found.status in ("ambiguous", "unknown")
    assert found.matching.confidence > found.matching.chance
    assert explained(found, old, new) >= 0.5 * found.matching.covered - 0.01
