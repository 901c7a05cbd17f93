"""The page on mechanistic independence: the answer first, then criteria, theorems, pictures, overlaps and the graph."""

from dataclasses import replace

import numpy as np
import pytest

from congruence.mechanism._criteria import SWEEP
from congruence.mechanism.discovery import Discovery, FinestParts, PartTracking
from congruence.mechanism.disentanglement import Disentanglement
from congruence.mechanism.parts import split
from congruence.mechanism.profile import action_graph
from congruence.mechanism.theorems import Theorem
from congruence.report.html import render_html
from congruence.result import Finding, conclude

BLOCKS = ((0, 1), (2,))
JACOBIAN = np.array([[1.0, 0.5, 0], [0.3, 2, 0], [1, 1, 0], [0, 0, 1], [0, 0, 2], [0, 0.01, 1]])
LOCAL = Finding("disentangled", "The codes are disentangled at every point.", "holds")


def theorem(number, name, *statuses, assumed=()):
    premises = [Finding(f"premise{i}", f"Premise {i} holds.", status) for i, status in enumerate(statuses)]
    conclusion = conclude(f"theorem{number}_{name}", f"Theorem {number} identifies the blocks.", premises)
    return Theorem(number, name, conclusion, assumed)


def conditional(number, name):
    return theorem(number, name, "holds", "unknown", assumed=("premise1",))


@pytest.fixture
def examination(make_mechanism):
    return make_mechanism


def discovered():
    parts = [np.eye(3)[:, :2], np.eye(3)[:, 2:]]
    points = tuple(split(JACOBIAN, parts, np.zeros((3, 0))) for _ in range(2))
    followed = PartTracking(np.zeros((2, 2), dtype=int), np.array([np.nan, np.cos(np.pi / 6)]))
    sweep = tuple((at, (3,) if at < 1e-3 else (1, 2)) for at in SWEEP)
    found = FinestParts("D", points, BLOCKS, followed, sweep=sweep, notes=("Mind the gap.",))
    none = FinestParts("S", (), None, None, notes=("There are too many sets.",))
    return Discovery((found, none), 2, 3, 6, action_graph(JACOBIAN))


def page(result):
    return render_html(result.document())


def test_the_page_is_well_formed_and_says_the_answer_first(examination, outline):
    text = page(examination())
    read = outline(text)
    assert not read.open
    assert not read.misplaced
    assert "and its Jacobian is as sparse, Theorem 3 identifies the blocks 0-1,2 near the points" in read.text
    assert "Supports are uncertain." in read.text
    assert "The blocks were specified by the user." in read.text
    assert "congruence mechanism &lt;model&gt;" in text
    assert "Which parts does the decoder have?" not in text
    ids = [value for _, name, value in read.attributes if name == "id"]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("criterion", "why"),
    [("D", "they act on disjoint outputs"), ("H2", "they are additive"), ("H3", "no derivative of order 3 mixes them")],
)
def test_the_headline_gives_the_reason(examination, criterion, why):
    result = examination(theorems=(theorem(5, criterion, "holds"),))
    assert result.headlines[0].startswith(f"Theorem 5 identifies the blocks 0-1,2 near the points: {why}, and")
    assert result.status == "holds"


def test_no_theorem_identifies_the_blocks_where_none_applies(examination):
    result = examination(theorems=(theorem(2, "D", "unknown"),))
    assert result.headlines[0] == "No theorem is known to identify the blocks 0-1,2."
    assert "Each block is identified" not in page(result)


@pytest.mark.parametrize(
    ("theorems", "number", "status", "basis"),
    [
        ((theorem(2, "D", "fails"), theorem(4, "S", "holds", "holds")), 4, "holds", "supported"),
        ((theorem(2, "D", "ambiguous"), conditional(3, "M_coord")), 3, "unknown", "not refuted"),
        ((theorem(2, "D", "fails", "unknown"), theorem(4, "S", "ambiguous")), 4, "ambiguous", "not refuted"),
        ((theorem(2, "D", "fails"), theorem(4, "S", "unknown")), 4, "unknown", "not refuted"),
        ((theorem(2, "D", "fails"), conditional(3, "M_coord")), 3, "unknown", "not refuted"),
        ((theorem(2, "D", "fails"), theorem(4, "S", "fails", "holds")), 2, "unknown", "premise fails"),
    ],
)
def test_the_strongest_theorem_is_never_better_than_its_premises(examination, theorems, number, status, basis):
    result = examination(theorems=theorems)
    assert result.strongest.number == number
    assert (result.status, result.identified.basis) == (status, basis)


def test_parts_that_the_latents_mix_are_the_answer_where_there_are_no_blocks(examination):
    none = replace(examination(discovery=discovered(), theorems=(theorem(2, "D", "fails"),)), blocks_from="none")
    assert none.headlines[0] == "The decoder has 2 parts of type D, but its latents mix them."


def test_every_criterion_has_its_row(examination, outline):
    text = outline(page(examination())).text
    for part in ("M, coordinates", "No derivative of order 4 mixes blocks.", "0.250", "row 3", "50.0", "a remark"):
        assert part in text
    assert text.count("row 3") == 2  # not where a criterion holds with nothing against it


def test_every_theorem_has_its_premises(examination, outline):
    text = outline(page(examination())).text
    assert "premise0 (fails)" in text
    assert "premise1 (assumed)" in text
    assert "2 *" in text
    assert "known to us from a summary of the paper only. Numbers marked * (Types D and S) are inferred" in text
    assert "Premises of Theorem 3 (Type M, coordinates)" in text
    assert "Premise 1 holds." in text


def test_outputs_are_shown_as_strips_or_as_images(examination):
    strips = page(examination())
    assert strips.count("data:image/png") == 2
    assert 'aria-label="Outputs of each block"' in strips
    images = page(examination(shape=(1, 2, 3)))
    assert images.count("framed") == 2 + 1  # and its style
    assert 'alt="z0-1 moves 2 outputs of 6"' in images


def test_many_outputs_are_pooled_and_the_strongest_shown(examination):
    effects = np.zeros((2, 5000))
    effects[0, 4321] = 1.0
    few = page(examination(shape=(5000,), effects=effects))
    assert len(few) < 80_000
    assert few != page(examination(shape=(5000,), effects=0 * effects))


def test_the_curve_of_parts_is_always_shown(examination, outline):
    read = outline(page(examination()))
    assert "How many parts are there at each tolerance?" in read.text
    sentence = "2 parts with disjoint outputs at tolerances from 0.01 to 0.56 (random directions never split)."
    assert sentence in [value for _, name, value in read.attributes if name == "aria-label"]


def test_overlap_and_graph_are_shown(examination, outline):
    read = outline(page(examination()))
    assert "0.03" in read.text
    labels = [value for _, name, value in read.attributes if name == "aria-label"]
    assert "Graph of 3 latents: 2 edges, 1 of them between blocks" in labels


def test_many_latents_have_the_curve_of_parts_as_their_figure(examination):
    many, blocks = 50, tuple((a,) for a in range(50))
    result = examination(theorems=(theorem(2, "D", "fails"),))
    profile = replace(
        result.profile,
        blocks=blocks,
        effects=np.ones((many, 6)),
        overlap=np.full((many, many), 0.5),
        shared=np.ones((many, many), dtype=int),
        near=np.full((many, many), 0.5),
        graph=np.ones((many, many), dtype=bool),
    )
    many = replace(result, profile=profile)
    assert (result.document().main_figure.painter, many.document().main_figure.painter) == (
        "latent_graph",
        "part_curve",
    )
    (overlap,) = [one for one in many.document().blocks() if getattr(one, "label", "") == "Overlap of blocks"]
    assert len(overlap.rows) == 24
    assert "26 more blocks are omitted." in page(many)


def test_what_was_discovered_is_shown_with_its_tolerances(examination, outline):
    text = outline(page(examination(discovery=discovered()))).text
    assert "2 parts of dimensions 1, 2 at every point; along the coordinates 0-1,2" in text
    assert "parts rotate by at most 30.0°" in text
    assert "2 of 1, 2" in text
    assert "Mind the gap." in text
    assert "Type S: unknown. There are too many sets." in text


def model(*premises, **more):
    return Disentanglement(
        local=LOCAL,
        everywhere=conclude("disentangled_domain", "The codes are disentangled over the domain.", (LOCAL, *premises)),
        leaks=np.array([0.0, 0.02]),
        factor_of=(1, 0),
        shares=np.array([[0.0, 1.0], [0.97, 0.03]]),
        changes=0,
        lost=(),
        misses=np.array([0.0, 0.01]),
        blocks=BLOCKS,
        sparse=0.5,
        **more,
    )


def test_a_model_is_shown_with_the_premises_of_theorem_1(examination, outline):
    premises = (
        Finding("whole", "It is whole.", "holds", evidence="Nothing 5 % was seen."),
        Finding("slices", "Slices are connected.", "unknown", evidence="Too few rows."),
    )
    result = replace(examination(theorems=(theorem(2, "D", "holds"),)), disentanglement=model(*premises))
    assert [finding.name for finding in result.findings] == ["identified", "disentangled", "disentangled_domain"]
    assert result.status == "unknown"
    assert result.headlines[-2:] == (
        "The codes are disentangled at 2 points.",
        "Theorem 1 is not known to extend this to the domain. Too few rows.",
    )
    text = outline(page(result)).text
    for part in ("It is whole.", "Nothing 5\u00a0% was seen.", "0.97", "50.0", "1.00 %"):
        assert part in text


def test_what_is_only_assumed_about_a_model_is_named():
    assumed = Finding("covering", "The decoder is a covering map.", "unknown")
    found = model(assumed, assumed=("covering",))
    assert found.headlines[1].startswith("By Theorem 1 this extends to the domain if the decoder is a covering map")
    assert found.everywhere.status == "unknown"


def test_the_same_result_gives_the_same_bytes_and_is_written(examination, tmp_path):
    result = examination(discovery=discovered())
    result.report(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page(examination(discovery=discovered()))


def test_names_in_settings_cannot_inject_markup(examination, outline):
    bad = "<img src=x onerror=alert(1)>"
    text = page(replace(examination(), settings={"decoder": bad}))
    assert bad in outline(text).text
    assert bad not in text
