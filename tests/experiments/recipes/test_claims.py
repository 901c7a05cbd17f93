"""A claim is data, and its rules can return every status."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congruence.experiments.recipes import RECIPES
from congruence.experiments.recipes.claims import (
    Claim,
    Estimate,
    Rule,
    difference,
    not_judged,
    over_pairs,
    over_seeds,
    over_trainings,
    read_claims,
    share_of,
    subtract,
)

DECLARED = {recipe.name: tuple(read_claims(recipe.name).values()) for recipe in RECIPES}
RULES = [(name, claim, rule) for name, claims in DECLARED.items() for claim in claims for rule in claim.rules]


def around(value, width):
    return Estimate(value, value - width, value + width)


@pytest.mark.parametrize(("name", "claim", "rule"), RULES, ids=lambda one: getattr(one, "name", None))
@given(size=st.floats(0.05, 5))
def test_every_rule_can_hold_fail_and_leave_it_open(name, claim, rule, size):
    """Numbers that reach each status; a rule for which there are none decides nothing."""
    limit = rule.low if math.isfinite(rule.low) else rule.high
    outward = -1 if math.isfinite(rule.low) else 1
    inside = (rule.low + rule.high) / 2 if math.isfinite(rule.low + rule.high) else limit - outward * size
    width = min(size / 4, (rule.high - rule.low) / 4)
    assert math.isfinite(limit)
    assert rule.status(around(inside, width)) == rule.status(inside) == "holds"
    assert rule.status(around(limit + outward * size, size / 4)) == rule.status(limit + outward * size) == "fails"
    assert rule.status(around(limit, size)) == "ambiguous"
    assert rule.status(Estimate(math.nan, inside - width, inside + width)) == "unknown"
    assert rule.status(math.nan) == rule.status(Estimate(inside, math.nan, math.nan)) == "unknown"


def test_every_claim_says_where_it_comes_from_and_what_its_limits_are():
    claims = [claim for some in DECLARED.values() for claim in some]
    assert len(claims) > 60
    for claim in claims:
        assert claim.source
        assert claim.margin
        assert claim.statement.endswith(".")
        assert claim.rules
    for some in DECLARED.values():
        assert len({claim.name for claim in some}) == len(some)


def test_a_judgement_is_a_finding_with_source_and_rule():
    claim = Claim(
        "{data}: grows", "On {data} it grows.", "Somebody 2026, table 1", (Rule("the slope", low=0.1),), "none"
    )
    one = claim.about(data="rooms").judge(around(0.3, 0.1), evidence="It does.", null=0.0)
    assert (one.name, one.claim, one.status) == ("rooms: grows", "On rooms it grows.", "holds")
    assert one.interval == pytest.approx((0.2, 0.4))
    assert (one.source, one.rule, one.post_hoc) == ("Somebody 2026, table 1", "the slope is at least 0.100.", False)
    assert "rule" not in one.to_dict()  # a finding has the same keys everywhere; the rule is among the numbers
    assert claim.judge(0.0).interval is None
    assert claim.judge(0.3, unless="The premise fails.").status == "unknown"
    assert not_judged(one).evidence == "Not judged: the smoke scale only checks that the code runs. It does."


def test_the_worst_rule_decides():
    both = Claim("x", "X.", "Somebody", (Rule("a", low=0.0), Rule("b", high=1.0)), "none")
    assert both.judge(1.0, 0.5).status == "holds"
    failed = both.judge(1.0, 1.5)
    assert (failed.status, failed.number) == ("fails", 1.5)
    assert both.judge(1.0, around(1.0, 0.1)).status == "ambiguous"
    assert both.judge(1.0, math.nan).status == "unknown"
    assert both.judge(0.0, 1.0).status == "fails"  # no gain, exactly
    assert both.judge(Estimate(0.1, 0.0, 0.2), 1.0).status == "ambiguous"
    with pytest.raises(ValueError, match="shorter"):
        both.judge(1.0)


def test_intervals_of_measurements():
    assert over_seeds([0.5]).value == 0.5
    assert math.isnan(over_seeds([0.5]).low)
    gap = difference([1.0, 1.1, 0.9], [0.0, 0.1, -0.1])
    assert gap.value == pytest.approx(1)
    assert 0.7 < gap.low < gap.value < gap.high < 1.3
    assert difference([1.0, 1.0], [0.5, 0.5]) == (0.5, 0.5, 0.5)
    assert math.isnan(difference([1.0], [0.5, 0.6]).low)
    assert math.isnan(difference([], [0.5]).value)
    assert math.isnan(share_of(["unknown", None]).low)
    assert share_of(["holds", "ambiguous", "fails", None, "unknown"]) == (0.25, 0.25, 0.75)
    assert str(around(0.5, 0.1)) == "0.50 (0.40 to 0.60)"
    assert subtract(Estimate(1.0, 0.7, 1.4), Estimate(0.5, 0.2, 0.8)) == pytest.approx((0.5, 0.5 - 0.3 * 2**0.5, 1.0))


def test_the_interval_over_pairs_is_over_the_trainings_that_they_share():
    pairs = list(itertools.combinations("abcdef", 2))
    effects = dict(zip("abcdef", (0.1, 0.2, 0.4, 0.0, 0.3, 0.2), strict=True))
    found = over_pairs({(a, b): effects[a] + effects[b] for a, b in pairs})
    assert found == pytest.approx([2 * one for one in over_seeds(list(effects.values()))])
    assert over_trainings(lambda kept: sum(kept) / len(kept), 5) == pytest.approx(over_seeds(range(5)))
    for few in (
        {},
        {("a", "b"): 0.5},
        {("a", "c"): 0.5, ("b", "c"): 0.6},
    ):  # one training has all pairs
        assert math.isnan(over_pairs(few).low)
    assert math.isnan(over_pairs({}).value)
    assert math.isnan(over_pairs({("a", "b"): 0.1, ("a", "c"): math.nan, ("b", "c"): 0.3}).high)  # it is not left out


def test_a_number_without_an_interval_is_unknown_and_says_why():
    claim = Claim("x", "X.", "Somebody", (Rule("a", low=0.0),), "none").each(2)
    alone = claim.judge(around(1.0, 0.1), Estimate(1.0, math.nan, math.nan), evidence="Of one training.")
    assert alone.status == "unknown"
    assert alone.evidence == (
        "Not judged: too few trainings, or too few kept numbers of them, for an interval. Of one training."
    )
    assert alone.rule == "a is above 0."
    assert claim.judge(around(1.0, 0.1), math.nan).evidence == ""
    assert claim.judge(around(1.0, 0.1), 1.0).status == "holds"
    refuted = claim.judge(around(-1.0, 0.1), Estimate(1.0, math.nan, math.nan))  # the other rule cannot change that
    assert (refuted.status, refuted.evidence) == ("fails", "")
