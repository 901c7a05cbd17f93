import dataclasses
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from congruence.experiments.data.overlap import dependent_covariance, overlap_generator
from congruence.experiments.recipes import reproduce
from congruence.experiments.recipes.mechanistic_overlap import run as method
from congruence.experiments.recipes.mechanistic_overlap.claims import (
    _share,
    judge,
    judge_densities,
    judge_identification,
    judge_minima,
    judge_overlap,
    judge_rotations,
    judge_type_d,
    judge_type_s,
)
from congruence.experiments.recipes.mechanistic_overlap.slots import SlotMember, SlotOutcome
from congruence.experiments.recipes.mechanistic_overlap.trainings import (
    Densities,
    OverlapGrid,
    between_slots,
    disjoint_margin,
    draw_data,
    score_ica,
    score_members,
    symmetric_root,
    true_contrast,
)

OVERLAPS = (0.0, 0.4, 0.8)


def grid(chosen, *, other=0.2, better=0.01, unexplained=0.01, truth=1.0, turned=True):
    """Two restarts for each of five data seeds; the first has the lower loss and the SIS `chosen` at each overlap."""
    shape = (3, 1, 5, 2)
    sis = np.full(shape, other)
    sis[..., 0] = np.array(chosen)[:, None, None]
    error = np.broadcast_to([better, 0.5], shape)
    margin = np.broadcast_to(np.array([[0.0], [0.3], [0.4]]), (3, 5))
    flat = {"ceiling": np.full((3, 5), 0.98), "truth": np.full((3, 5), truth), "margin": margin}
    left = np.full(shape, unexplained)
    return OverlapGrid(2, turned, OVERLAPS, (0.01,), error, np.ones(shape), left, sis, **flat)


def test_the_restart_with_the_lowest_loss_is_selected_whatever_its_score():
    good = grid([0.97, 0.5, 0.1])
    assert_allclose(good.selected(good.sis)[:, 0, 0], [0.97, 0.5, 0.1])
    broken = grid([0.97, 0.5, 0.1], better=np.nan)  # a training that diverged is never chosen
    assert_allclose(broken.selected(broken.sis), 0.2)


def test_identification_follows_the_scores_and_is_left_open_where_hardly_anything_was_trained():
    assert judge_identification(grid([0.96, 0.5, 0.1])).status == "holds"
    assert judge_identification(grid([0.94, 0.5, 0.1])).status == "fails"
    assert judge_identification(grid([0.96, 0.5, 0.1], unexplained=0.3)).status == "unknown"


def test_a_fall_with_overlap_is_told_with_whether_it_is_monotone():
    falling, bumpy, rising = (judge_overlap(grid(s)) for s in ([0.9, 0.5, 0.1], [0.9, 0.1, 0.5], [0.5, 0.6, 0.9]))
    assert (falling.status, bumpy.status, rising.status) == ("holds", "holds", "fails")
    assert "decreasing at every step" in falling.evidence
    assert "not at every step" in bumpy.evidence
    assert judge_overlap(grid([0.9, 0.5, 0.9])).status == "fails"
    plain = [check(grid([0.97, 0.5, 0.1], turned=False)) for check in (judge_identification, judge_overlap)]
    names = ["2-slots-are-identified", "2-slots-get-worse-with-overlap"]
    assert [(one.name, one.status) for one in plain] == [(f"{name}-without-rotations", "holds") for name in names]


def test_failures_are_local_minima_where_a_lower_loss_is_known_and_not_where_they_beat_all_that_are_right():
    bad, right = [0.97, 0.5, 0.1], [0.97, 0.97, 0.97]
    for one, every, status in (
        (grid(bad, truth=0.1), [], "holds"),  # 0.02 was found, and the truth has 0.001
        (grid(bad, truth=10.0), [], "ambiguous"),  # the truth has 0.1, but no training that is right is known
        (grid(bad, truth=10.0), [grid(right, truth=10.0, better=0.1)], "fails"),  # the best that is right has 0.11
        (grid(bad, truth=10.0), [grid(bad, truth=10.0, better=0.001)], "holds"),  # another training found 0.011
        (grid(bad, truth=10.0), [grid(right, truth=10.0, better=0.0095)], "ambiguous"),  # hardly lower, and identified
        (grid([0.97, 0.95, 0.96]), [], "unknown"),  # nothing is bad
    ):
        assert judge_minima([one], [one, *every]).status == status


def test_only_disjoint_rows_are_type_d_and_turns_are_judged_over_all_restarts():
    assert judge_type_d([grid([0.9, 0.5, 0.1])]).status == "holds"
    good, plain = grid([0.9, 0.8, 0.7], other=0.8), grid([0.9, 0.5, 0.1], turned=False)
    assert judge_rotations(good, plain).status == "holds"
    assert judge_rotations(plain, good).status == "fails"
    assert judge_rotations(good, good).status == "fails"


def densities(mine, mixture, margin=0.0, error=0.01):
    shape = (2, 3)
    flat = {"dependence": np.array([[0.0] * 3, [0.9] * 3]), "margin": np.full(shape, margin)}
    rows = {name: np.tile(np.array(v)[:, None], (1, 3)) for name, v in (("a", mixture), ("b", [0.6, 0.3]))}
    trained = {
        "error": np.full((2, 3, 1), error),
        "contrast": np.ones((2, 3, 1)),
        "sis": np.tile(np.array(mine)[:, None, None], (1, 3, 1)),
    }
    return Densities(
        (np.inf, 6.0), **flat, ceiling=np.ones(shape), ica_mixture=rows["a"], ica_observed=rows["b"], **trained
    )


def test_claims_on_densities_follow_the_numbers():
    def held(*given, **more):
        return [claim.status for claim in judge_densities(densities(*given, **more))]

    assert held([0.97, 0.95], [0.98, 0.5]) == ["holds", "holds"]
    assert held([0.97, 0.5], [0.98, 0.95]) == ["fails", "fails"]
    assert held([0.97, 0.95], [0.98, 0.5], margin=0.1) == ["fails", "holds"]
    beyond = dataclasses.replace(densities([0.97, 0.5], [0.98, 0.5]), dependence=np.array([[0.0] * 3, [0.98] * 3]))
    assert judge_densities(beyond)[0].status == "holds"  # so dependent latents are not judged
    assert held([0.5, 0.5], [0.98, 0.5]) == held([0.97, 0.95], [0.98, 0.5], error=0.1) == ["unknown", "holds"]


def test_ica_unmixes_independent_latents_and_not_dependent_ones(rng):
    covariance = dependent_covariance(6, 6)
    scores = []
    for root in (np.eye(6), symmetric_root(covariance)):
        latents = rng.laplace(size=(2000, 6)) @ root
        fresh, mixing = rng.laplace(size=(400, 6)), rng.normal(size=(6, 6))
        scores.append(score_ica(latents @ mixing, latents, fresh @ mixing, fresh, 0))
    assert scores[0] > 0.8
    assert scores[1] < 0.7
    assert_allclose(symmetric_root(covariance) @ symmetric_root(covariance), covariance)


def test_dependence_between_slots_is_a_canonical_correlation(rng):
    pair = np.eye(6)
    pair[0, 4] = pair[4, 0] = 0.7
    bend = np.kron(np.eye(2), np.array([[1.0, 2, 0], [0, 1, 0], [0, 3, 1]]))
    assert between_slots(bend @ pair @ bend.T) == pytest.approx(0.7)  # whatever the basis inside a slot


def test_the_truth_has_no_contrast_without_overlap_and_data_have_unit_variance():
    for overlap in (0.0, 0.5):
        one = draw_data(overlap_generator(2, overlap), 600, seed=0)
        assert one.x.std() == pytest.approx(1)
        found = (true_contrast(one, 2) > 0, disjoint_margin(one, 2) > 0)
        assert found == (overlap > 0, overlap > 0)


@pytest.mark.parametrize(
    ("overlaps", "status"),
    [((0.0, 0.4, 0.8), "holds"), ((0.0, 0.9), "fails"), ((0.4, 0.4), "fails"), ((0.0,), "unknown")],
)
def test_the_sparsity_gap_decides_type_s(overlaps, status):
    known = dataclasses.replace(grid([0.9, 0.5, 0.1]), overlaps=overlaps)
    assert judge_type_s(known).status == status


def test_processes_score_as_this_one_does(rng, monkeypatch):
    latents = [rng.normal(size=(60, 4)) for _ in range(2)]
    codes = np.stack([latents[i % 2] + 0.3 * rng.normal(size=(60, 4)) for i in range(3)])
    codes[1] = np.nan  # a training that diverged
    members = [SlotMember(i % 2, 0.1, i) for i in range(3)]
    outcome = SlotOutcome(*(np.zeros(3),) * 3, codes)
    here = score_members(outcome, members, latents, 2)
    monkeypatch.setattr("congruence.experiments.recipes.mechanistic_overlap.trainings.WORTH_PROCESSES", 1)
    assert_allclose(score_members(outcome, members, latents, 2), here, rtol=1e-12)
    assert here[1] == -1
    assert here[0] > 0.5


def test_the_interval_of_a_share_counts_runs_of_the_same_data_once():
    from scipy.stats import binomtest

    apart = _share(3, np.ones(12))
    assert apart == pytest.approx((0.25, *binomtest(3, 12).proportion_ci(method="wilson")))
    assert _share(12, np.full(12, 4)) == pytest.approx(apart)  # four runs of each data set say as much as one
    assert _share(3, np.array([10, 1, 1])).high > apart.high
    assert np.isnan(_share(0, np.zeros(3)).value)


def test_the_recipe_runs_and_judges_nothing_that_was_hardly_trained(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    tiny = method.PARAMETERS["smoke"] | {"steps": {"2": 6}, "rows": 130, "test_rows": 60, "plain": [2], "turns": [0.5]}
    monkeypatch.setattr(method, "PARAMETERS", {"smoke": tiny})
    said = []
    done = reproduce("mechanistic-overlap", tmp_path / "a", scale="smoke", device="cpu", announce=said.append)
    assert [done[name].status for name in ("2-slots-are-identified", "contrast-does-not-need-independence")] == [
        "unknown",
        "unknown",
    ]
    assert said[0].endswith("2 of 2 slots, 2 of 2 slots without rotations")
    told = json.loads((tmp_path / "a" / "result.json").read_text())
    assert np.shape(done.ours["slots2"]["sis"]) == (2, 1, 1, 1)
    assert "only point that satisfies Type D" in told["numbers"]["paper"]["disjoint"]
    for name in ("sis-by-overlap", "loss-and-sis", "densities"):
        assert (tmp_path / "a" / f"{name}.svg").is_file()
    assert {path.stem for path in (tmp_path / "a" / "parts").glob("*.safetensors")} == set(done.ours)


def test_the_published_protocol_is_trained_and_judged_by_its_own_claims(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    small = method.DATA["published"]["small"]
    assert {"rate": 0.001, "batch": 64, "ramp": [0.0, 0.0], "turns": [], "restarts": 1}.items() <= small.items()
    assert method.DATA["published"]["paper"]["steps"] == {"2": 115_000, "3": 115_000, "5": 115_000}
    tiny = method.DATA["published"]["smoke"] | {"steps": {"2": 6}, "rows": 130, "test_rows": 60}
    monkeypatch.setattr(method, "DATA", {"own": method.PARAMETERS, "published": {"small": tiny}})
    asked, seen = overlap_generator, []

    def generate(*args, **options):
        seen.append(made := asked(*args, **options))
        return made

    monkeypatch.setattr("congruence.experiments.recipes.mechanistic_overlap.trainings.overlap_generator", generate)
    done = reproduce("mechanistic-overlap", tmp_path / "a", scale="small", data="published", device="cpu")
    names = ["2-slots-are-identified-as-published", "2-slots-get-worse-with-overlap-as-published"]
    assert [one.name for one in done.findings] == [*names, "only-disjoint-is-type-d"]
    assert [one.status for one in done.findings] == ["unknown", "unknown", "holds"]
    assert all((one.first[0] == one.first[1]).all() for one in seen)  # the slots share one network
    assert not any(word in note for note in done.notes for word in ("otation", "{"))
    assert "by the number of slots, 6 for 2" in " ".join(done.notes)


@pytest.mark.parametrize(
    ("chosen", "statuses"), [([0.96, 0.5, 0.1], ["holds", "holds"]), ([0.6, 0.7, 0.8], ["fails", "fails"])]
)
def test_the_claims_of_the_published_protocol_can_hold_and_fail(chosen, statuses):
    published = dataclasses.replace(grid(chosen, other=0.0, turned=False), published=True)
    findings = [check(published) for check in (judge_identification, judge_overlap)]
    assert [one.status for one in findings] == statuses
    assert all(one.name.endswith("-as-published") for one in findings)
    worse = dataclasses.replace(published, unexplained=np.full(published.sis.shape, 0.3))
    assert judge_overlap(worse).status == "unknown"


@pytest.mark.parametrize(("steps", "status"), [(115_000, "holds"), (20_000, "unknown")])
def test_the_published_protocol_is_judged_at_its_full_length(steps, status):
    published = dataclasses.replace(grid([0.96, 0.5, 0.1], other=0.0, turned=False), published=True)
    identified, worse, _ = judge([published], None, {"2": steps})
    assert (identified.status, worse.status) == (status, status)
    assert ("20,000 of the 115,000 published steps" in identified.evidence) == (status == "unknown")
