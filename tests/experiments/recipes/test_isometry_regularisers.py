import pytest

from congruence.experiments.recipes import isometry_regularisers as method
from congruence.experiments.recipes import reproduce
from congruence.experiments.recipes._isometry import PairError
from congruence.experiments.recipes.isometry_regularisers import judge
from congruence.experiments.training.small_autoencoders import KINDS
from congruence.maps.nearness import HeldOut


def runs(condition, unexplained=0.3, error=None):
    near = [0.01 * condition if error is None else error] * 3
    pairs = tuple(PairError(0.1, 0.1, HeldOut(e, e, e), 0.4) for e in near)
    return method.RegulariserRuns((condition, condition + 0.1, condition - 0.1), (unexplained,) * 3, pairs)


def held(kinds):
    return [claim.status for claim in judge(kinds)]


def test_claims_follow_the_numbers():
    better = {name: runs(5 - i) for i, name in enumerate(KINDS)}
    assert held(better) == ["holds"] * 5
    worse = {name: runs(5 + i, error=0.2 - 0.02 * i) for i, name in enumerate(KINDS)}
    assert held(worse) == ["fails"] * 5


def test_runs_on_both_sides_of_the_mean_without_leave_it_open():
    kinds = {name: runs(5.05 if name == "residual" else 5 - i) for i, name in enumerate(KINDS)}
    assert held(kinds)[2] == "ambiguous"


def test_what_was_hardly_trained_is_not_judged():
    kinds = {name: runs(5 - i, 0.9 if name == "spectral norm" else 0.3) for i, name in enumerate(KINDS)}
    assert held(kinds) == ["holds", "unknown", "holds", "holds", "holds"]
    assert held({name: runs(5 - i, 0.9) for i, name in enumerate(KINDS)}) == ["unknown"] * 5


def test_the_recipe_runs_and_untrained_networks_bear_nothing_out(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    tiny = {"runs": 2, "epochs": 1, "rows": 300, "test_rows": 50}
    monkeypatch.setattr(method, "PARAMETERS", {"smoke": tiny})
    done = reproduce("isometry-regularisers", tmp_path / "a", scale="smoke", device="cpu")
    assert [finding.status for finding in done.findings] == ["unknown"] * 5
    assert set(done.ours["kinds"]) == set(KINDS)
    assert (tmp_path / "a" / "regularisers.svg").is_file()
