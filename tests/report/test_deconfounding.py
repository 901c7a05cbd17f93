import math
from dataclasses import replace

import numpy as np
import pytest

from congruence.report import render_deconfounding, write_deconfounding_report
from congruence.report.deconfounding import answer, asked_condition, further_sentences, summary

BASE = np.array([0.7, 0.6, 0.8, 0.7, 0.65])  # as of the outcome that is made by hand
AHEAD = np.array([0.05, 0.06, 0.04, 0.05, 0.07])


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (AHEAD, "ICA helps on batches never seen (AUROC +0.054, 95 % interval +0.033 to +0.075)."),
        (-AHEAD, "ICA hurts on batches never seen (AUROC −0.054, 95 % interval −0.075 to −0.033)."),
        (AHEAD - 0.05, "No gain from ICA shows on batches never seen (AUROC +0.004, 95 % interval −0.017 to +0.025)."),
        (np.where(np.arange(5) < 2, AHEAD, np.nan), "cannot be said: too few folds could be judged."),
    ],
)
def test_the_answer_comes_first_and_says_how_sure_it_is(make_deconfounding, gain, said):
    result = make_deconfounding({"ica": gain})
    assert said in answer(result)
    page = render_deconfounding(result)
    assert page.index(said.split(" (")[0]) < page.index("Target by target")


def test_what_the_gain_is_due_to_is_told(make_deconfounding):
    result = make_deconfounding({"whitened": 0 * AHEAD, "ica": AHEAD, "rotated": AHEAD, "tvn": AHEAD})
    told = " ".join(further_sentences(result))
    assert "ICA is better than whitened (+0.054, +0.033 to +0.075), so it is more than whitening." in told
    assert "From random rotation, ICA cannot be told" in told
    assert "Better than base by more than chance: random rotation, TVN." in told
    both = further_sentences(make_deconfounding({"ica": 0 * AHEAD, "ica, fitted on all": AHEAD}))
    assert "Had ICA seen the held-out batches when it was fitted: +0.054, +0.033 to +0.075." in both
    worse = " ".join(further_sentences(make_deconfounding({"ica": 0 * AHEAD, "rotated": AHEAD})))
    assert "ICA is worse than random rotation" in worse


def test_without_ica_the_answer_is_about_the_best_condition(make_deconfounding):
    assert asked_condition(make_deconfounding({"whitened": 0 * AHEAD, "tvn": AHEAD})) == "tvn"
    assert answer(make_deconfounding({})) == "On batches never seen, the embedding has AUROC 0.690."
    assert "On batches never seen" in render_deconfounding(make_deconfounding({}))


def test_the_page_shows_every_target_and_measure(make_deconfounding):
    page = render_deconfounding(make_deconfounding({"ica": AHEAD, "rotated": AHEAD}))
    error = (BASE + AHEAD).std(ddof=1) / np.sqrt(5)
    for text in ("MTOR", f"▲ 0.744 ± {error:.3f}", "+0.033 to +0.075", "all together", "0.100, 0.200, 0.300", "top 25"):
        assert text in page
    assert "SRC was not judged: it has 2 rows, fewer than 5." in page
    assert "congruence deconfound wells.parquet" in page


def test_the_summary_has_both_readings_of_concentration(make_deconfounding):
    difference = {row["measure"]: row for row in summary(make_deconfounding({"ica": AHEAD}))}
    assert difference["top 25 % − rest"]["ICA"] == pytest.approx(0.1)
    ratio = summary(make_deconfounding({"ica": AHEAD}, settings={"reading": "ratio"}))
    (row,) = [row for row in ratio if row["measure"] == "top 25 % / rest − 1"]
    assert row["base"] == pytest.approx((BASE / (BASE - 0.1) - 1).mean())
    assert difference["batch told"]["chance"] == pytest.approx(0.1)
    assert math.isnan(difference["sparsity of trees"]["chance"])


def test_names_from_a_file_are_text_and_not_tags(make_deconfounding, tmp_path):
    bad = "<script>alert(1)</script>"
    write_deconfounding_report(make_deconfounding({"ica": AHEAD}, names=(bad, "x$y_1$")), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert bad not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_same_outcome_makes_the_same_page_without_what_was_not_asked_for(make_deconfounding):
    bare = {"leakage": {}, "retrieval": {}, "carriers": {}, "notes": (), "skipped": {}}
    result = make_deconfounding({"ica": AHEAD}, **bare)
    page = render_deconfounding(result)
    assert page == render_deconfounding(result)
    assert "Which features carry biology" not in page
    assert '<h2 id="notes">' not in page


def test_base_alone_is_named_once_and_features_without_a_level_of_chance_are_drawn(make_deconfounding):
    alone = make_deconfounding(gains={})
    assert "Mean AUROC of 2 targets: base 0.690." in further_sentences(alone)[0]
    assert further_sentences(alone)[0].count("base") == 1
    lost = {name: replace(one, noise=np.full(2, np.nan)) for name, one in make_deconfounding().carriers.items()}
    assert "Biological against technical" in render_deconfounding(make_deconfounding(carriers=lost))
