import math
from dataclasses import replace

import numpy as np
import pytest

from congruence.batches import Nesting, Paired
from congruence.batches._verdict import measures_of
from congruence.formatting import fixed
from congruence.report.terminal import render_text

BASE = np.array([0.7, 0.6, 0.8, 0.7, 0.65])  # as of the result that is made by hand
AHEAD = np.array([0.05, 0.06, 0.04, 0.05, 0.07])


@pytest.mark.parametrize(
    ("gain", "status", "sentence"),
    [
        (
            AHEAD,
            "holds",
            "ICA improves classification on held-out batches: AUROC +0.054 (95 % interval +0.033 to +0.075; p = 0.006 "
            "corrected for 3 comparisons).",
        ),
        (
            -AHEAD,
            "fails",
            "ICA worsens classification on held-out batches: AUROC −0.054 (95 % interval −0.075 to −0.033; p = 0.006 "
            "corrected for 3 comparisons).",
        ),
        (
            AHEAD - 0.05,
            "ambiguous",
            "ICA has no clear effect on held-out batches: AUROC +0.004 (95 % interval −0.017 to +0.025).",
        ),
        (
            np.where(np.arange(5) < 2, AHEAD, np.nan),
            "unknown",
            "The effect of ICA on held-out batches is unknown: fewer than 3 batches could be scored.",
        ),
    ],
)
def test_the_verdict_is_the_same_in_python_json_terminal_and_page(make_deconfounding, render, gain, status, sentence):
    result = make_deconfounding({"rotated": -AHEAD, "ica": gain})  # the rotation is worse, which is no verdict on ICA
    assert (result.status, result.headlines[0]) == (status, sentence)
    assert result.verdict.startswith(f"{sentence} Mean AUROC over 2 of 3 targets: base 0.690, ICA ")
    assert (result.to_dict()["status"], result.to_dict()["verdict"]) == (status, result.verdict)
    assert render_text(result.document()).replace("\n", " ").startswith(sentence)
    page = render(result).replace("\u00a0%", " %")
    assert page.index(sentence) < page.index("Scores by target")
    assert repr(result).startswith(f"<Deconfounding {status}: ")


def test_each_condition_has_a_finding_with_the_main_one_first(make_deconfounding):
    findings = make_deconfounding({"whitened": 0 * AHEAD, "ica": AHEAD, "rotated": -AHEAD}).findings
    assert [(one.name, one.status) for one in findings] == [
        ("ica", "holds"),
        ("whitened", "ambiguous"),
        ("rotated", "fails"),
        ("ica against rotated", "holds"),
        ("ica against whitened", "holds"),
    ]
    assert findings[0].number == pytest.approx(0.054)
    assert findings[0].interval == pytest.approx((0.0328, 0.0752), abs=1e-4)
    assert findings[0].evidence == (
        "AUROC +0.054 (95 % interval +0.033 to +0.075; p = 0.011 corrected for 5 comparisons), 5 held-out units."
    )
    (unknown,) = make_deconfounding({"ica": np.where(np.arange(5) < 2, AHEAD, np.nan)}).findings
    assert (unknown.status, unknown.interval, unknown.evidence) == (
        "unknown",
        None,
        "Only 2 held-out units could be scored.",
    )


def test_the_verdict_explains_the_gain(make_deconfounding):
    result = make_deconfounding({"whitened": 0 * AHEAD, "ica": AHEAD, "rotated": AHEAD, "tvn": AHEAD})
    said = " ".join(result.headlines)
    gain = "+0.054 (95 % interval +0.033 to +0.075; p = 0.013 corrected for 6 comparisons)"
    assert f"ICA is better than whitening: {gain}, so the gain is not due to whitening alone." in said
    assert "ICA does not clearly differ from a random rotation: +0.000" in said
    assert "Also better than base: random rotation, TVN." in said
    both = make_deconfounding({"ica": 0 * AHEAD, "ica, fitted on all": AHEAD}).headlines
    changed = "When ICA is fitted on the held-out batches too, the AUROC changes by +0.054"
    assert any(one.startswith(changed) for one in both)
    worse = " ".join(make_deconfounding({"ica": 0 * AHEAD, "rotated": AHEAD}).headlines)
    assert "ICA is worse than a random rotation" in worse
    assert "Better than base: random rotation." in worse


def test_without_ica_the_verdict_is_about_the_best_condition(make_deconfounding, render):
    result = make_deconfounding({"whitened": 0 * AHEAD, "tvn": AHEAD})
    assert (result.main_condition, result.status) == ("tvn", "holds")
    alone = make_deconfounding({})
    assert alone.headlines == (
        "On held-out batches, the embedding has a mean AUROC of 0.690.",
        "Mean AUROC over 2 of 3 targets: base 0.690 (too few batches or rows for SRC).",
    )
    assert (alone.status, alone.findings) == ("unknown", ())
    assert "On held-out batches" in render(alone)


def test_reservations_are_said_in_the_headline(make_deconfounding):
    weeks = Nesting("week", 10, 0.493)
    said = make_deconfounding({"ica": AHEAD}, variance={"base": 0.446}, nesting=weeks).headlines
    assert "Batches explain 45 % of the variance of controls (mean ω² over the features)." in said
    (nested,) = [one for one in said if "nested" in one]
    assert nested.startswith(
        "The 10 batches are nested in 10 groups (week), which explain 49 % of the variance between"
    )
    assert "hold them out with cluster=week (--cluster week)" in nested
    high = make_deconfounding({"ica": 0 * AHEAD})
    scores = {name: replace(one, auroc=one.auroc + 0.28) for name, one in high.targets[0].scores.items()}
    high = replace(high, targets=(replace(high.targets[0], scores=scores), high.targets[1]))
    assert "1 of 2 targets has an AUROC of at least 0.97 in the embedding itself, so little can be gained there." in (
        high.headlines
    )


def test_every_dash_has_a_reason(make_deconfounding, render):
    result = make_deconfounding({"ica": AHEAD})
    lost = np.full(5, np.nan)
    scores = {name: replace(one, auroc=lost, error=math.nan) for name, one in result.targets[0].scores.items()}
    nothing = Paired("ica", "base", math.nan, math.nan, math.nan, 0)
    reasons = ("no positives held out",) * 5
    unscored = replace(result.targets[0], scores=scores, reasons=reasons, paired={"ica": nothing})
    empty = {name: replace(one, value=lost) for name, one in result.leakage.items()}
    result = replace(result, targets=(unscored, result.targets[1]), leakage=empty, retrieval=empty)
    assert "Mean AUROC over 1 of 3 targets" in result.verdict
    assert "(too few batches or rows for MTOR, SRC)" in result.verdict
    page = render(result)
    for text in (
        "–: MTOR: no positives held out.",
        "batch accuracy: no fold holds out two batches with at least four controls each",
        "replicate precision: no fold holds out a target on two batches",
        "sparsity and shares of targets have no chance level",
    ):
        assert text in page


def test_a_target_is_found_by_its_name(make_deconfounding):
    result = make_deconfounding({"ica": AHEAD})
    assert result["PLK1"].scores["ica"].mean == pytest.approx(0.744)
    assert repr(result["PLK1"]) == "<Target PLK1: AUROC base 0.690, ica 0.744>"
    frame = result.to_frame()
    assert list(frame["target"]) == ["MTOR", "MTOR", "PLK1", "PLK1"]
    assert list(frame["status"]) == ["", "holds", "", "holds"]


def test_the_page_shows_every_target_and_measure(make_deconfounding, render):
    page = render(make_deconfounding({"ica": AHEAD, "rotated": AHEAD}))
    score = make_deconfounding({"ica": AHEAD, "rotated": AHEAD})["PLK1"].scores["ica"]
    for text in (
        "MTOR",
        "▲ 0.744",
        fixed(score.low, 3),
        fixed(score.high, 3),
        "+0.033 to +0.075",
        "0.100, 0.200, 0.300",
        "top 25",
        '<td class="num" data-value="40"><bdi>40</bdi></td><td class="num" data-value="7"><bdi>7</bdi></td>',
    ):
        assert text in page
    assert "SRC was not scored: it has 2 rows, fewer than 5." in page
    assert "congruence deconfound wells.parquet" in page


def test_many_notes_are_folded_but_all_on_the_page(make_deconfounding, render, outline):
    notes = tuple(f"Note {i}." for i in range(30))
    page = outline(render(make_deconfounding(notes=notes))).text
    assert "All 31 notes" in page
    assert all(note in page for note in notes)
    text = render_text(make_deconfounding(notes=notes).document())
    assert text.count("note: ") == 6
    assert "note: 26 more notes are at the end of the page and in the JSON." in text


def test_many_conditions_of_few_targets_are_rows(make_deconfounding):
    gains = dict.fromkeys(("whitened", "ica", "rotated", "standardised", "tvn"), AHEAD)
    tables = {t.label: t for t in make_deconfounding(gains).document().blocks() if hasattr(t, "columns")}
    table = tables["AUROC on held-out batches, with its 95 % interval"]
    assert [column.name for column in table.columns] == ["condition", "MTOR", "PLK1"]
    assert [row[0] for row in table.rows] == [
        "base",
        "whitened",
        "ICA",
        "random rotation",
        "standardised",
        "TVN",
    ]


def test_concentration_is_shown_as_difference_or_ratio(make_deconfounding):
    measures = {one.name: one for one in measures_of(make_deconfounding({"ica": AHEAD}))}
    assert measures["top 25 % − rest"].means["ica"] == pytest.approx(0.1)
    assert measures["batch accuracy"].chance == pytest.approx(0.1)
    assert math.isnan(measures["sparsity"].chance)
    ratio = make_deconfounding({"ica": AHEAD}, settings={"reading": "ratio"})
    (one,) = [row for row in ratio.numbers()["means"] if row["measure"] == "top 25 % / rest − 1"]
    assert one["means"]["base"] == pytest.approx((BASE / (BASE - 0.1) - 1).mean())


def test_names_from_a_file_are_text_and_not_tags(make_deconfounding, tmp_path):
    bad = "<script>alert(1)</script>"
    make_deconfounding({"ica": AHEAD}, names=(bad, "x$y_1$")).report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert bad not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_same_result_makes_the_same_page_without_what_was_not_asked_for(make_deconfounding, render):
    bare = {"leakage": {}, "retrieval": {}, "profiles": {}, "notes": (), "skipped": {}}
    result = make_deconfounding({"ica": AHEAD}, **bare)
    page = render(result)
    assert page == render(result)
    assert "Which features carry biology" not in page
    assert "batch accuracy</button>" not in page


def test_features_without_a_chance_level_are_drawn(make_deconfounding, render_figures):
    lost = {name: replace(one, noise=np.full(2, np.nan)) for name, one in make_deconfounding().profiles.items()}
    assert "Biological against technical" in render_figures(make_deconfounding(profiles=lost))


def test_the_main_figure_is_drawn_on_given_axes(make_deconfounding):
    from matplotlib import pyplot

    _, axes = pyplot.subplots()
    assert make_deconfounding().plot(axes) is axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["random rotation", "ICA", "whitened"]
    assert len(axes.get_legend().get_texts()) == 2
    pyplot.close("all")


def test_the_page_says_where_no_target_can_be_marked(make_deconfounding, render):
    result = make_deconfounding()
    assert "▲ better than base" in render(result)
    unsure = [replace(one, paired={k: replace(p, p=math.nan) for k, p in one.paired.items()}) for one in result.targets]
    page = render(replace(result, targets=tuple(unsure)))
    assert "so none is marked" in page
    assert "▲ better than base" not in page
