"""Arguments are accepted, or refused by name with the value received and what would do."""

import numpy as np
import pytest

from congruence.checks import check_choice, check_integer, check_names, check_number, check_seed, require
from congruence.errors import InputError, MissingDependencyError


@pytest.mark.parametrize("value", [1, np.int64(7), np.uint8(3)])
def test_integers_pass_as_python_integers(value):
    assert type(check_integer("folds", value)) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, "2", None, True, np.nan])
def test_what_is_not_a_count_is_refused_by_name(value):
    with pytest.raises(InputError, match=r"^folds must be an integer of at least 1; got "):
        check_integer("folds", value)


def test_a_count_may_have_an_upper_limit():
    with pytest.raises(InputError, match=r"^k must be an integer from 1 to 3; got 4"):
        check_integer("k", 4, 1, 3)


@pytest.mark.parametrize("value", [-1, 2**32, 0.5])
def test_seeds_are_those_that_every_library_accepts(value):
    assert check_seed(2**32 - 1) == 2**32 - 1
    with pytest.raises(InputError, match="^seed must be"):
        check_seed(value)


@pytest.mark.parametrize(
    ("limits", "value", "said"),
    [
        ({}, np.inf, "a finite number"),
        ({"low": 0}, -1, "a finite number at least 0"),
        ({"low": 0, "open_low": True}, 0, "a finite number above 0"),
        ({"low": 0, "high": 1}, 2, "a number at least 0 and at most 1"),
        ({"high": 1}, 2, "a number at most 1"),
        ({}, True, "a finite number"),
        ({}, "1", "a finite number"),
    ],
)
def test_numbers_outside_the_range_are_refused(limits, value, said):
    with pytest.raises(InputError, match=f"^ridge must be {said}; got "):
        check_number("ridge", value, **limits)
    assert check_number("ridge", np.float32(0.5), **limits) == 0.5


def test_a_choice_lists_what_would_do():
    assert check_choice("normalize", None, (None, "cosine")) is None
    with pytest.raises(InputError, match="normalize must be one of None, 'cosine'; got 'l1'"):
        check_choice("normalize", "l1", (None, "cosine"))
    with pytest.raises(InputError, match="got 1"):
        check_choice("flag", 1, (True, False))


def test_a_missing_library_says_how_to_install_it():
    assert require("json.decoder", "reading", "all").JSONDecoder
    with pytest.raises(MissingDependencyError, match=r"training needs nothing_here: pip install 'congruence\[torch\]'"):
        require("nothing_here.sub", "training", "torch")


def test_names_are_listed_once_or_chosen_by_a_shortcut():
    options = {"shortcuts": {"all": ("a", "b")}, "least": 0}
    assert check_names("groups", ["b", "a"], ("a", "b")) == ("b", "a")
    assert check_names("groups", "all", ("a", "b"), **options) == ("a", "b")
    assert check_names("groups", ["all"], ("a", "b"), **options) == ("a", "b")
    assert check_names("groups", (), ("a", "b"), **options) == ()


@pytest.mark.parametrize(
    ("value", "received"), [("a", "'a'"), (None, "None"), ([], r"\[\]"), (["a", "c"], "'c'"), ([1], "1")]
)
def test_names_that_are_none_of_the_allowed_are_refused(value, received):
    with pytest.raises(InputError, match=rf"^groups must be a list of names from a, b; got {received}$"):
        check_names("groups", value, ("a", "b"))
    with pytest.raises(InputError, match="^groups must not repeat a name; got a, a$"):
        check_names("groups", ["a", "a"], ("a", "b"))
