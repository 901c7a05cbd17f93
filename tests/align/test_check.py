"""`check` tells an unchanged table from a rounded, rotated or changed one, and says what it did not see."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from congruence import Table, check, load, read_table
from congruence.align import save_baseline
from congruence.errors import InputError

IDS = np.array([f"d{i}" for i in range(300)])


@pytest.fixture(scope="module")
def old():
    rng = np.random.default_rng(0)
    return (rng.laplace(size=(300, 6)) + 1).astype(np.float32)


@pytest.fixture(scope="module")
def turn():
    return ortho_group.rvs(6, random_state=0)


def int8(x):
    scale = np.abs(x).max() / 127
    return np.round(x / scale) * scale


def changed(x, share, seed=1):
    rng = np.random.default_rng(seed)
    return x + np.sqrt(share) * x.std(0) * rng.normal(size=x.shape)


CASES = {  # of new embeddings: what is made of the old ones, the headline, and the smallest group that is accepted
    "the same": (lambda x, q: x.copy(), "Identical: no number changed.", "identity"),
    "float16": (lambda x, q: x.astype(np.float16), "Unchanged: the difference is as small as rounding.", "identity"),
    "int8": (lambda x, q: int8(x), "Unchanged: the difference is as small as rounding.", "identity"),
    "little noise": (lambda x, q: changed(x, 0.005), "Unchanged within the tolerance.", "identity"),
    "permuted": (lambda x, q: -x[:, ::-1], "Only the order and signs of the dimensions changed.", "permutation"),
    "rotated": (lambda x, q: x @ q, "The difference is only a rotation.", "rigid"),
    "rotated, scaled": (lambda x, q: 3 * x @ q, "The difference is only a rotation and a scale.", "similarity"),
    "shifted": (lambda x, q: x + 5, "Only a constant was added to every row.", "permutation"),
    "changed": (lambda x, q: changed(x, 0.1), "no rotation or linear map undoes the change", None),
    "stretched": (lambda x, q: x * [1, 1, 1, 1, 1, 3], "The difference is a linear map", None),
    "unrelated": (lambda x, q: np.random.default_rng(5).normal(size=x.shape), "no more alike than unrelated", None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("allow", ["identity", "permutation", "rigid", "similarity"])
def test_what_is_allowed_holds_and_all_else_does_not(old, turn, case, allow):
    make, headline, least = CASES[case]
    result = check(make(old, turn), old, allow=allow)
    order = ["identity", "permutation", "rigid", "similarity", None]
    accepted = order.index(least) <= order.index(allow)
    assert (result.status == "holds") == accepted, result.verdict
    if accepted or allow == "identity":
        assert headline in result.verdict
    if not accepted and least is not None:
        assert result.status == "fails"
    assert result.findings[0].name == "new -> baseline"


def test_only_what_the_answer_needs_is_fitted(old, turn):
    assert list(check(old, old).pairs[0].groups) == ["identity"]
    assert list(check(old, old, groups=["similarity"]).pairs[0].groups) == ["identity", "similarity"]
    seen = []
    assert len(check(old @ turn, old, progress=lambda *step: seen.append(step)).pairs[0].groups) == 6
    assert [done for _, done, _ in seen] == 2 * [1, 2, 3, 4, 5, 6]  # of the identity, then of all groups


def test_a_change_as_large_as_the_tolerance_is_ambiguous(old):
    result = check(changed(old, 0.05), old)
    share = result.findings[0].premises[0].number
    assert check(changed(old, 0.05), old, tolerance=share).status == "ambiguous"
    assert check(changed(old, 0.05), old, tolerance=2 * share).status == "holds"
    assert check(changed(old, 0.05), old, tolerance=share / 2).status == "fails"


def test_few_rows_suffice_unless_a_rotation_is_allowed():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 64))
    turned = x @ ortho_group.rvs(64, random_state=0)
    assert check(x.astype(np.float16), x).status == "holds"
    result = check(turned, x)
    assert (result.status, "it is unknown by which map" in result.verdict) == ("fails", True)
    assert check(turned, x, allow="similarity").status == "unknown"


def test_a_change_is_not_hidden_by_a_few_far_rows(old):
    x = old.astype(float)
    x[:3] += 1e4
    new = np.random.default_rng(3).normal(size=x.shape)
    new[:3] = x[:3]
    assert check(new, x).status == "fails"
    assert check(x.astype(np.float32), x).status == "holds"


def test_a_change_is_not_hidden_by_one_large_dimension(old):
    x, new = old.astype(float), np.random.default_rng(3).normal(size=old.shape)
    x[:, 0] = new[:, 0] = 1e3 * x[:, 0]
    result = check(new, x)
    assert result.pairs[0].groups["identity"].r2.mean > 0.999
    assert result.status == "fails"


def test_rows_that_changed_are_counted(old):
    new = old.copy()
    new[7] = 5
    result = check(new, old, tolerance=0.5)
    assert (result.status, result.pairs[0].verdict.moved) == ("holds", 1)
    assert result.headlines[0] == "Unchanged within the tolerance, except for 1 of 300 rows."


def test_another_width_fails_and_is_said(old):
    result = check(old[:, :5], old)
    assert result.status == "fails"
    assert result.notes[-1] == "new has 5 dimensions, the baseline 6; the narrower is padded with zeros."


def test_a_collapse_fails_and_a_constant_baseline_is_refused(old):
    assert check(np.ones_like(old), old).status == "fails"
    with pytest.raises(InputError, match="all rows of baseline are equal"):
        check(old, np.ones_like(old))


def test_a_baseline_is_a_sample_by_id_that_is_found_in_any_order(old, tmp_path):
    path = tmp_path / "b.safetensors"
    saved = save_baseline(Table(old, "x", IDS), path, rows=100, model_name="toy")
    assert repr(saved) == "<Baseline of toy: 100 of 300 rows x 6>"
    assert set(saved.table.ids) == set(check(*[Table(old, "x", IDS)] * 2, rows=100).ids)  # as compare samples
    order = np.random.default_rng(0).permutation(300)
    result = check(Table(old[order], "x", IDS[order]), path)
    assert (result.status, result.pairs[0].n) == ("holds", 100)
    assert [run.n for run in result.runs] == [300, 100]
    assert result.settings["baseline"] | {"versions": 0} == {
        "rows": 100, "of": 300, "missing": 0, "model_name": "toy", "versions": 0
    }  # fmt: skip
    assert result.notes == ()


def test_missing_rows_new_rows_another_model_and_other_versions_are_said(old, tmp_path):
    path = tmp_path / "b.safetensors"
    saved = save_baseline(Table(old, "x", IDS), path, rows=100, model_name="toy")
    rest = ~np.isin(IDS, saved.table.ids[:10])
    new = Table(old[rest], "x", IDS[rest])
    result = check(new, path, model_name="other")
    assert result.settings["baseline"]["missing"] == 10
    notes = " ".join(result.notes)
    assert "90 rows were paired by id; rows without a partner were left out: 10 of baseline." in notes
    assert "new has 290 rows; the baseline was sampled from 300." in notes
    assert "The model is other; the baseline is of toy." in notes
    old_versions = type(saved)(saved.table, 300, {}, dict(saved.versions) | {"numpy": "0.1", "gone": "1"}, None)
    assert "Versions differ from those of the baseline: numpy 0.1 -> " in " ".join(check(new, old_versions).notes)
    whole = save_baseline(Table(old[:200], "x", IDS[:200]), tmp_path / "c.safetensors")
    assert "left out: 100 of new." in " ".join(check(Table(old, "x", IDS), whole).notes)


def test_rows_without_ids_are_found_by_their_position(old, tmp_path):
    path = tmp_path / "b.safetensors"
    lengths = np.random.default_rng(0).permutation(300)  # distinct integers are no ids
    assert save_baseline(Table(old, "x", metadata={"length": lengths}), path, rows=50).table.ids is None
    save_baseline(old, path, rows=50)
    result = check(old.astype(np.float16), path)
    assert (result.status, result.pairs[0].n) == ("holds", 50)
    assert check(old[::-1], path).status == "fails"
    with pytest.raises(InputError, match="with 300 rows and without ids, but new has 299 rows"):
        check(old[1:], path)


@pytest.mark.parametrize("ids", [IDS, np.arange(300)], ids=["text", "integers"])
def test_a_saved_baseline_is_loaded_as_it_was_and_read_as_a_table(old, tmp_path, ids):
    path = tmp_path / "b.safetensors"
    saved = save_baseline(Table(old, "x", ids), path, tolerance=0.05, rows=100)
    loaded = load(path)
    np.testing.assert_array_equal(loaded.table.values, saved.table.values)
    np.testing.assert_array_equal(loaded.table.ids, saved.table.ids)
    assert (loaded.of, loaded.settings, loaded.versions) == (300, {"tolerance": 0.05}, saved.versions)
    np.testing.assert_array_equal(read_table(path).ids, saved.table.ids)


def test_what_was_accepted_is_kept_with_the_baseline_and_can_be_overridden(old, turn, tmp_path):
    path = tmp_path / "b.safetensors"
    save_baseline(old, path, allow="rigid")
    assert check(old @ turn, path).status == "holds"
    assert check(old @ turn, path, allow="identity").status == "fails"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x, path: save_baseline(x, path / "b.parquet"), "a baseline is a .safetensors file"),
        (lambda x, path: save_baseline(x[:3], path / "b.safetensors"), "at least 4 rows; got 3"),
        (
            lambda x, path: save_baseline(Table(x, "x", IDS[:1].repeat(300)), path / "b.safetensors"),
            "ids more than once",
        ),
        (
            lambda x, path: save_baseline(x, path / "b.safetensors", cluster="plate"),
            "no table has a metadata column 'plate'",
        ),
        (lambda x, path: check(x, path / "no.safetensors"), "there is no baseline .*no.safetensors; make it with"),
        (lambda x, path: check(x, x, allow="rotation"), "allow must be one of 'identity'"),
        (lambda x, path: save_baseline(x, path / "b.safetensors", allow="all"), "allow must be one of 'identity'"),
        (lambda x, path: check(x, x, tolerance=2), "tolerance must be"),
        (lambda x, path: check(x, x[1:]), "300"),
    ],
)
def test_what_cannot_be_used_is_refused(old, tmp_path, call, says):
    with pytest.raises(InputError, match=says):
        call(old, tmp_path)


def test_damaged_headers_are_refused(old, tmp_path):
    from congruence._saved import write_saved

    path = tmp_path / "b.safetensors"
    for header in ({"of": 3}, {"of": "300"}, {"of": 300, "settings": [1]}, {"of": 300, "model_name": 1}):
        write_saved(path, "baseline", header, {"values": old})
        with pytest.raises(InputError, match="is damaged: its header"):
            check(old, path)
    write_saved(path, "baseline", {"of": 300, "settings": {"allow": {"a": 1}}}, {"values": old})
    with pytest.raises(InputError, match="is damaged: its header"):
        load(path)
    write_saved(path, "baseline", {"of": 300, "settings": {"rows": 1, "allow": "all"}}, {"values": old})
    with pytest.raises(InputError, match="allow must be one of"):
        check(old, path)
    write_saved(path, "baseline", {"of": 300}, {"values": old[:2], "Metadata_position": np.array([0, 300])})
    with pytest.raises(InputError, match="at positions beyond 300"):
        check(old, path)


def test_rows_with_nan_are_refused_or_left_out(old, tmp_path):
    x, path = old.copy(), tmp_path / "b.safetensors"
    x[3] = np.nan
    with pytest.raises(InputError, match="NaN"):
        save_baseline(x, path)
    assert save_baseline(x, path, drop_missing=True).table.n == 299
    assert check(x, path, drop_missing=True).status == "holds"


def test_clusters_are_sampled_whole(old, tmp_path):
    plate = np.repeat(np.arange(30), 10)
    table = Table(old, "x", IDS, {"plate": plate})
    for cluster in ("plate", plate):
        saved = save_baseline(table, tmp_path / "b.safetensors", cluster=cluster, rows=45)
        sizes = np.unique(plate[np.isin(IDS, saved.table.ids)], return_counts=True)[1]
        assert list(sizes) == [10] * 5
