"""The page on mechanistic independence: the answer first, then verdicts, theorems, pictures, overlaps and the graph."""

from dataclasses import replace

import numpy as np
import pytest

from congruence.mechanism.decomposable import Disentanglement
from congruence.mechanism.discovery import SWEEP, Discovery, Found
from congruence.mechanism.domains import Premise
from congruence.mechanism.examination import Examination
from congruence.mechanism.graphs import action_graph
from congruence.mechanism.outcome import Mechanism
from congruence.mechanism.portrait import Portrait
from congruence.mechanism.splitting import Followed, split
from congruence.mechanism.supports import Tolerance
from congruence.mechanism.theorems import Condition, Theorem
from congruence.mechanism.verdicts import Verdict
from congruence.report import render_mechanism, write_mechanism_report

BLOCKS = ((0, 1), (2,))
JACOBIAN = np.array([[1.0, 0.5, 0], [0.3, 2, 0], [1, 1, 0], [0, 0, 1], [0, 0, 2], [0, 0.01, 1]])


def verdict(criterion, status, **more):
    fields = {"margin": 0.25, "measures": "of something", "worst": 3, "fraction": 0.5, "points": 8}
    return Verdict(criterion, status, evidence="supported", **(fields | more))


def theorem(number, criterion, status):
    premises = (Condition(f"Type {criterion}", "holds", "8 points"), Condition("sparse", "assumed", "not looked at"))
    return Theorem(number, criterion, status, premises, "each block")


def examination(*, shape=(6,), theorems=None, discovery=None, blocks=BLOCKS, effects=None):
    k = len(blocks)
    if effects is None:
        effects = np.stack([np.linalg.norm(JACOBIAN[:, list(b)], axis=1) for b in blocks])
    portrait = Portrait(
        blocks=blocks,
        effects=effects,
        overlap=np.where(np.eye(k, dtype=bool), 1.0, 0.03),
        shared=np.full((k, k), 2),
        near=np.full((3, 3), 0.5),
        graph=action_graph(JACOBIAN),
        output_shape=shape,
        points=8,
    )
    check = Mechanism(
        blocks=blocks,
        points=8,
        dimension=3,
        outputs=6,
        output_shape=shape,
        bending="smooth",
        verdicts=(verdict("D", "ambiguous"), verdict("M_coord", "holds", margin=0.0), verdict("H4", "unknown")),
        irreducible=(),
        separable=(),
        theorems=theorems or (theorem(2, "D", "does not apply"), theorem(3, "M_coord", "conditional")),
        tolerance=Tolerance(1e-6, 0.0, "global", 1e-7, 1e-2),
        injective="holds",
        nonzeros=(8, 9),
        contrast=0.1,
        rho=(5, 7),
        overlap=np.zeros((k, k)),
        sizes=np.abs(JACOBIAN),
        notes=("supports are soft",),
    )
    settings = {"command": "congruence mechanism <model>", "seed": 0}
    return Examination(check, portrait, discovery, "given" if discovery is None else "D", settings)


def discovered():
    parts = [np.eye(3)[:, :2], np.eye(3)[:, 2:]]
    points = tuple(split(JACOBIAN, parts, np.zeros((3, 0))) for _ in range(2))
    followed = Followed(np.zeros((2, 2), dtype=int), np.array([np.nan, np.cos(np.pi / 6)]))
    sweep = tuple((at, (3,) if at < 1e-3 else (1, 2)) for at in SWEEP)
    found = Found("D", points, BLOCKS, followed, sweep=sweep, notes=("mind the gap",))
    none = Found("S", (), None, None, notes=("too many sets",))
    return Discovery((found, none), 2, 3, 6, action_graph(JACOBIAN))


def test_the_page_is_well_formed_and_says_the_answer_first(outline):
    page = render_mechanism(examination())
    read = outline(page)
    assert not read.open
    assert not read.misplaced
    assert "Theorem 3 identifies the blocks 0\u20111, 2, for models whose Jacobian is as sparse" in read.text
    assert "Supports are soft." in read.text
    assert "The blocks were given." in read.text
    assert "congruence mechanism &lt;model&gt;" in page
    assert "What does the decoder support" not in page
    ids = [value for _, name, value in read.attributes if name == "id"]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("criterion", "why"),
    [("D", "they act on disjoint outputs"), ("H2", "they add up"), ("H3", "no derivative of order 3 mixes them")],
)
def test_the_lead_says_what_a_theorem_rests_on(criterion, why, outline):
    page = render_mechanism(examination(theorems=(theorem(5, criterion, "applies"),)))
    assert f"Theorem 5 identifies the blocks 0\u20111, 2: {why}." in outline(page).text


def test_no_theorem_is_said_to_apply_where_none_does(outline):
    page = render_mechanism(examination(theorems=(theorem(2, "D", "unknown"),)))
    assert "No theorem is seen to identify the blocks" in outline(page).text
    assert "Identified is then" not in page


def test_parts_that_the_latents_mix_are_the_answer_where_there_are_no_blocks(outline):
    none = replace(
        examination(discovery=discovered(), theorems=(theorem(2, "D", "does not apply"),)), blocks_from="none"
    )
    assert "The decoder has 2 parts of type D, but its latents mix them." in outline(render_mechanism(none)).text


def test_every_verdict_has_its_row(outline):
    text = outline(render_mechanism(examination())).text
    for part in ("Type D", "Type M, coordinates", "no derivative of order 4 mixes blocks", "0.250", "row 3", "50.0"):
        assert part in text
    assert text.count("row 3") == 2  # not where a criterion holds with nothing against it


def test_outputs_are_shown_as_strips_or_as_images():
    strips = render_mechanism(examination())
    assert strips.count("data:image/png") == 2
    assert 'aria-label="Outputs of each block"' in strips
    images = render_mechanism(examination(shape=(1, 2, 3)))
    assert images.count("framed") == 2 + 1  # and its style
    assert 'alt="z0-1 moves 2 outputs of 6"' in images


def test_many_outputs_are_put_together_and_the_strongest_shown():
    effects = np.zeros((2, 5000))
    effects[0, 4321] = 1.0
    few = render_mechanism(examination(shape=(5000,), effects=effects))
    assert len(few) < 80_000
    assert few != render_mechanism(examination(shape=(5000,), effects=0 * effects))


def test_overlap_and_graph_are_shown(outline):
    page = render_mechanism(examination())
    read = outline(page)
    assert "0.03" in read.text
    labels = [value for _, name, value in read.attributes if name == "aria-label"]
    assert "Graph of 3 latents: 2 edges, 1 of them between blocks" in labels


def test_what_was_discovered_is_told_with_its_tolerances(outline):
    text = outline(render_mechanism(examination(discovery=discovered()))).text
    assert "2 parts of dimensions 1, 2 at every point; along the coordinates 0-1,2" in text
    assert "parts turn by at most 30.0°" in text
    assert "2 of 1, 2" in text
    assert "Mind the gap." in text
    assert "Not known; too many sets" in text


def test_a_model_is_told_of_with_the_premises_of_theorem_1(outline):
    premises = (Premise("it is whole", "holds", "assumed", "Nothing 5 % was seen."),)
    found = Disentanglement(
        local="holds",
        everywhere="unknown",
        evidence="assumed",
        leaks=np.array([0.0, 0.02]),
        factor_of=(1, 0),
        shares=np.array([[0.0, 1.0], [0.97, 0.03]]),
        changes=0,
        lost=(),
        misses=np.array([0.0, 0.01]),
        premises=(*premises, Premise("slices", "unknown", "assumed", "Too few rows.")),
        blocks=BLOCKS,
        sparse=0.5,
    )
    text = outline(render_mechanism(replace(examination(), disentanglement=found))).text
    assert "The codes are disentangled at 2 points, which is not carried over to the domain: Too few rows." in text
    for part in ("It is whole.", "Nothing 5\u00a0% was seen.", "0.97", "50.0", "1.00 %"):
        assert part in text


def test_the_same_result_gives_the_same_bytes_and_is_written(tmp_path):
    page = render_mechanism(examination(discovery=discovered()))
    assert page == render_mechanism(examination(discovery=discovered()))
    write_mechanism_report(examination(discovery=discovered()), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


def test_names_in_settings_cannot_inject_markup(outline):
    bad = "<img src=x onerror=alert(1)>"
    page = render_mechanism(replace(examination(), settings={"decoder": bad}))
    assert bad in outline(page).text
    assert bad not in page
