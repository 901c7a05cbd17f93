import math

import pytest

from congruence.errors import printable
from congruence.formatting import count, elided, interval, number, percent, setting, step
from congruence.maps._names import ordered_groups


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0183, "1.83 %"),
        (0.25, "25.0 %"),
        (1.0, "100 %"),
        (11.66, "1166 %"),
        (0.0, "0 %"),
        (0.09999, "10.0 %"),
        (0.00021, "0.0210 %"),
        (4e-9, "< 0.001 %"),
        (-0.05, "−5.00 %"),
        (math.nan, "–"),
        (math.inf, "∞"),
    ],
)
def test_percentages_have_three_significant_digits(share, text):
    assert percent(share) == text


def test_numbers_use_an_exponent_only_where_they_must():
    assert [number(v) for v in (0.41, 12.345, 1234.5, 3e-7, 2.5e9)] == ["0.410", "12.3", "1234", "3.00e−07", "2.50e+09"]


def test_groups_are_ordered_from_small_to_large_with_ica_last():
    assert ordered_groups({"ica", "linear", "other", "identity", "rigid"}) == [
        "identity",
        "rigid",
        "linear",
        "other",
        "ica",
    ]


def test_long_names_lose_their_middle_but_stay_different():
    assert elided(["short"], 10) == ["short"]
    assert elided(["models/run_1/embeddings.npy"], 13) == ["models…gs.npy"]
    names = ["models/run_1/embeddings.npy", "models/run_2/embeddings.npy"]
    assert len(set(elided(names, 13))) == 2


def test_settings_read_like_words():
    assert [setting(v) for v in (None, True, ["a", "b"], 5)] == ["none", "yes", "a, b", "5"]


def test_an_interval_is_written_once_where_its_ends_read_the_same():
    assert interval(0.9, 0.92) == "90.0 to 92.0 %"
    assert interval(1e-9, 2e-9) == "< 0.001 %"
    assert interval(math.nan, math.nan) == "–"


def test_counts_agree_with_their_noun():
    assert [count(n, "row") for n in (0, 1, 12)] == ["0 rows", "1 row", "12 rows"]


def test_steps_are_written_whole():
    assert [step(v) for v in (0.0, 143000.0, 1e6, 0.25)] == ["0", "143000", "1000000", "0.25"]


def test_control_characters_are_escaped_and_other_text_is_kept():
    assert printable("a\x1b[2Jb\rc\nd\u202e\x9b") == r"a\x1b[2Jb\rc\nd\u202e\x9b"
    assert printable("3\u00a0% \u2013 é 漢") == "3\u00a0% \u2013 é 漢"
