import re
from dataclasses import replace

import numpy as np
import pytest

from congruence.align import _sections
from congruence.document import Figure, Grid, Table, Text, as_cell
from congruence.report.figures import drawing


class Moved:
    """The section on rows that moved, taken apart."""

    def __init__(self, section):
        texts = [block.text for block in section.blocks if isinstance(block, Text)]
        self.sentence, self.note = texts[0], texts[1]
        tables = [block for block in section.blocks if isinstance(block, Table)]
        self.head = [column.name for column in tables[0].columns] if tables else []
        self.rows = [[as_cell(value) for value in row] for row in tables[0].rows] if tables else []
        grids = [block for block in section.blocks if isinstance(block, Grid)]
        inside = grids[0].blocks if grids else ()
        self.facts = next((block.rows for block in inside if isinstance(block, Table)), ())
        self.drawn = next((block for block in inside if isinstance(block, Figure)), None)

    @property
    def figure(self):
        return drawing(self.drawn).svg() if self.drawn else ""


def moved_section(comparison):
    section = _sections.rows_section(comparison)
    return None if section is None else Moved(section)


def in_one_pair(make_comparison, make_pair, make_nearness, errors, null=0.25, **changes):
    near = make_nearness("similarity", 0.1, null=null)
    near = replace(near, errors=np.asarray(errors, dtype=float))
    return make_comparison(pairs=[make_pair(groups={"similarity": near})], **changes)


@pytest.fixture
def section(make_comparison, make_pair, make_nearness):
    """What the page says of the rows of two runs that have these errors."""
    return lambda *args, **changes: moved_section(
        in_one_pair(make_comparison, make_pair, make_nearness, *args, **changes)
    )


def names(moved):
    return moved.head


def column(moved, name):
    return [row[names(moved).index(name)] for row in moved.rows]


def test_the_share_that_few_rows_carry_is_of_squared_distance(section):
    errors = [0.2] * 4 + [0.01] * 396  # 4 * 0.04 of 4 * 0.04 + 396 * 0.0001
    assert section(errors).sentence == (
        "A few rows cause most of the disagreement: the top 1 % of rows hold 80.2 % of it, the top 5 % of rows hold "
        "81.0 % of it (in squared distance). No row is above the mean error of unrelated runs (100 %)."
    )


def test_equal_rows_spread_the_disagreement_evenly(section):
    assert section([0.1] * 400).sentence.startswith(
        "The disagreement is spread evenly: the top 1 % of rows hold 1.00 %"
    )


def test_rows_between_are_said_to_disagree_more_than_others(section):
    assert section([0.1] * 20 + [0.03] * 380).sentence.startswith("Some rows differ much more than others")


@pytest.mark.parametrize(
    ("null", "said"),
    [(0.05, "20 of 400 rows are above"), (0.095, "1 of 400 rows is above"), (0.2, "No row is above")],
)
def test_rows_beyond_the_null_are_counted(section, null, said):
    assert said in section([0.1] + [0.09] * 19 + [0.03] * 380, null=null).sentence


def test_few_rows_have_no_top_percent(section):
    moved = section([0.3, 0.2, 0.1, 0.1])
    assert moved.sentence == "1 of 4 rows is above the mean error of unrelated runs (100 %)."
    assert [what for what, _ in moved.facts] == ["largest", "median"]


def test_where_only_rounding_is_left_no_row_moved(section):
    moved = section(np.full(400, 3e-8))
    assert moved.sentence == (
        "No row differs: after the best rotation and scale, every error is below 0.001 % of the diameter."
    )
    assert not moved.rows
    assert not moved.figure


def test_the_rows_listed_are_those_that_moved_most(section):
    moved = section(np.arange(1, 401) / 1000)
    assert [cell.text for cell in column(moved, "row")][:3] == ["399", "398", "397"]
    assert [cell.text for cell in column(moved, "disagreement")][:2] == ["160 %", "160 %"]
    assert column(moved, "disagreement")[0].value == 1.6
    assert column(moved, "of diameter")[0].text == "40.0 %"
    assert column(moved, "× median")[0].text == "2.00"
    assert len(moved.rows) == 20
    assert "Rows are counted from 0." in moved.note


def test_ids_take_the_place_of_row_numbers_and_metadata_stands_beside(make_rich):
    moved = moved_section(make_rich())
    assert names(moved) == [
        "id",
        "disagreement",
        "of diameter",
        "× median",
        "target",
        "logP",
        "seed 1",
        "seed 2",
        "seed 10",
    ]
    assert column(moved, "id")[0].text == "CHEMBL0"
    assert column(moved, "logP")[0].text == "−2"
    assert column(moved, "logP")[0].value == -2.0
    assert "Rows are counted" not in moved.note


def test_two_runs_and_many_runs_have_no_column_for_each(make_comparison):
    assert names(moved_section(make_comparison())) == ["row", "disagreement", "of diameter", "× median"]
    assert "run 7" in names(moved_section(make_comparison([f"run {i}" for i in range(8)])))
    assert names(moved_section(make_comparison([f"run {i}" for i in range(9)]))) == [
        "row",
        "disagreement",
        "of diameter",
        "× median",
    ]


def test_of_many_metadata_columns_five_are_shown_and_the_page_says_so(section):
    moved = section(np.ones(30), metadata={f"column {i}": np.arange(30) for i in range(7)})
    assert names(moved)[4:] == [f"column {i}" for i in range(5)]
    assert moved.note.endswith("5 of 7 metadata columns are shown.")


def test_dates_and_lists_are_written_as_they_are(section):
    lists = np.empty(30, dtype=object)
    lists[:] = [np.arange(3)] * 30
    dates = np.array(["NaT"] + ["2024-05-01"] * 29, dtype="datetime64[D]")
    moved = section(np.linspace(2, 1, 30), metadata={"list": lists, "date": dates})
    assert [cell.text for cell in moved.rows[0][4:]] == ["[0 1 2]", ""]
    assert moved.rows[1][5].text == "2024-05-01"


def test_metadata_of_any_kind_fits_into_a_cell(section):
    kinds = {
        "text": np.array(["x" * 500] * 30),
        "missing": np.array([None, *"a" * 29], dtype=object),
        "number": np.array([np.nan, *np.full(29, 1 / 3)]),
        "yes": np.ones(30, dtype=bool),
        "far": np.array([np.inf, *np.full(29, 1e5)]),
    }
    moved = section(np.linspace(2, 1, 30), metadata=kinds)
    first, second = moved.rows[0][4:], moved.rows[1][4:]
    assert [cell.text for cell in first[1:]] == ["", "", "True", "∞"]
    assert [cell.value for cell in first[1:3]] == ["", ""]  # sorts last
    assert [cell.text for cell in second[1:]] == ["a", "0.3333", "True", "100000"]
    assert len(first[0].text) == 32
    assert len(first[0].hint) == 300


def test_ids_and_metadata_cannot_inject_markup(make_comparison, make_pair, make_nearness, outline, render_figures):
    bad = "<script>\"'>"
    changes = {"ids": np.array([bad] * 400), "metadata": {bad: np.array([40 * bad] * 400)}}
    comparison = in_one_pair(make_comparison, make_pair, make_nearness, np.ones(400), **changes)
    page = render_figures(comparison)
    assert page.count("<script") == 1
    assert not outline(page).misplaced
    assert outline(page).text.count(bad) >= 21


def test_a_million_rows_make_a_small_section(section):
    moved = section(np.random.default_rng(0).gamma(8.0, 1 / 80, size=1_000_000))
    assert len(moved.figure) < 20_000
    assert len(moved.rows) == 20


def test_errors_that_are_undefined_leave_the_section_out(undefined, render):
    assert moved_section(undefined) is None
    assert "Which rows differ most?" not in render(undefined)


def test_some_undefined_errors_do_no_harm(section):
    moved = section([np.nan, 0.3, np.nan, 0.1, 0.1])
    assert "1 of 3 rows" in moved.sentence
    assert not re.search(r"\bnan\b", moved.figure)


def test_where_only_ica_was_compared_nothing_is_said(make_comparison, make_pair, make_nearness):
    pair = make_pair(groups={"ica": make_nearness("ica", 0.1)})
    assert moved_section(make_comparison(pairs=[pair])) is None


def test_a_missing_null_is_not_drawn_or_told(section):
    moved = section(np.linspace(1, 2, 100), null=np.nan)
    assert "unrelated" not in moved.sentence
    assert ">chance<" not in moved.figure
