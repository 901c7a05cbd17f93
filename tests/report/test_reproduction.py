import re

import pytest

from congruence.report import render_reproduction
from congruence.report.reproduction import tally

BAD = "<script>alert(1)</script>"


def test_the_parts_come_in_the_order_a_reader_needs_them(make_reproduction):
    page = render_reproduction(make_reproduction())
    parts = [
        "Is it so?</h1>",
        '<p class="lead">It is so.</p>',
        "1 of 3 claims hold, 1 does not, 1 cannot be judged at this scale. Reproduced: Nobody 2026, Table 1.",
        "What the paper says, and whether it holds</h2>",
        "A line.</figcaption>",
        "The numbers</h2>",
        "What is ours, and what was left out</h2>",
        "How to read this</h2>",
        "congruence reproduce toy --scale=smoke --seed=3 --device=cpu",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


def test_every_claim_has_its_badge_and_its_evidence(make_reproduction, outline):
    page = render_reproduction(make_reproduction())
    claims = re.findall(r"<li><span class=\"badge.*?</li>", page, re.DOTALL)
    told = [" ".join(outline(claim).text.split()) for claim in claims]
    assert told == ["✓ holds Claim 0. 0 %", "✕ fails Claim 1. 1 %", "? unknown Claim 2. 2 %"]


def test_numbers_sort_as_numbers_and_words_as_words(make_reproduction):
    page = render_reproduction(make_reproduction())
    assert re.findall(r'<td class="num" data-value="([^"]*)"', page) == ["0.25", "12.0", "n^−0.50"]


def test_words_of_a_recipe_are_explained_and_nothing_injects_markup(make_reproduction):
    page = render_reproduction(make_reproduction(answer=BAD, notes=(BAD,), rows=BAD))
    assert "<dt>mean</dt><dd>the sum over the count</dd>" in page
    assert page.count("<script") == 1


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        (["holds"], "The one claim holds."),
        (["holds", "holds"], "2 of 2 claims hold."),
        (["fails", "fails"], "0 of 2 claims hold, 2 do not."),
    ],
)
def test_the_tally_counts(statuses, words):
    assert tally(statuses) == words
