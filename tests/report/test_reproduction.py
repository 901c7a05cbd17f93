"""The document of a recipe's result: claims, figures, numbers, and where it differs from the paper."""

import re

import pytest

from congruence.experiments.recipes._document import tally
from congruence.result import Finding

BAD = "<script>alert(1)</script>"


def test_the_parts_come_in_the_order_a_reader_needs_them(make_reproduction, render):
    page = render(make_reproduction())
    parts = [
        "Is it so?</h1>",
        '<p class="lead">It is so.</p>',
        '<p class="rest">It was asked once.</p>',
        "1 of 3 claims hold, 1 fails, 1 is unknown. Source: Nobody 2026, Table 1.",
        "Claims</h2>",
        "A line.</figcaption>",
        "Numbers</h2>",
        "Differences from the paper</h2>",
        "How to read this</h2>",
        "congruence reproduce toy",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


def test_every_claim_has_its_badge_and_its_evidence(make_reproduction, outline, render):
    claims = re.findall(r"<li><span class=\"badge.*?</li>", render(make_reproduction()), re.DOTALL)
    shown = [" ".join(outline(claim).text.split()) for claim in claims]
    assert shown == [
        "✓ holds Claim 0. (supported) 0 %",
        "✕ fails Claim 1. (refuted) 1 %",
        "? unknown Claim 2. (not refuted) 2 %",
    ]


def test_numbers_sort_as_numbers_and_a_column_of_words_is_text(make_reproduction, render):
    page = render(make_reproduction())
    assert re.findall(r'<td class="num" data-value="([^"]*)"', page) == ["0.25", "0.12"]
    assert '<td data-value="0.5"><bdi>0.500</bdi></td>' in page


def test_words_of_a_recipe_are_explained_and_nothing_injects_markup(make_reproduction, render_figures):
    page = render_figures(make_reproduction(headline=BAD, notes=(BAD,), rows=BAD))
    assert "<dt>mean</dt><dd>the sum over the count</dd>" in page
    assert page.count("<script") == 1


def test_a_terminal_shows_the_claims_and_the_first_columns_of_the_first_table(make_reproduction):
    text = str(make_reproduction())
    assert "✕ fails     Claim 1. (refuted)\n            1 %" in text
    assert re.search(r"share\s+–\s+12\.0 %", text)
    assert "The curve is ours." not in text  # the notes of a recipe are many and long


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        (["holds"], "The only claim holds."),
        (["holds", "holds"], "2 of 2 claims hold."),
        (["fails", "fails", "ambiguous"], "0 of 3 claims hold, 2 fail, 1 is ambiguous."),
    ],
)
def test_the_tally_counts(statuses, words):
    assert tally([Finding(str(i), "", status) for i, status in enumerate(statuses)]) == words
