"""What every result promises, whatever verb it comes from."""

import inspect
import json
import re
from pathlib import Path

import jsonschema
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

import congruence
from congruence.errors import InputError
from congruence.report.figures.svg import PALETTE
from congruence.report.html import render_cell
from congruence.result import STATUSES, Result, combine
from congruence.schema import result_schema, result_types

# Their other findings are side conditions, or the premises and further theorems of the first.
MAIN_FINDING = {"Deconfounding", "MixtureExamination"}
SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"


@pytest.mark.parametrize("kind", list(result_types()))
def test_the_schema_files_are_those_of_the_types(kind):
    """Made by ``python -m congruence.schema docs/schema``."""
    written = json.loads((SCHEMAS / f"{kind}.json").read_text(encoding="utf-8"))
    assert written == result_schema(result_types()[kind])


def test_json_is_valid_for_the_schema_of_its_kind(make_result):
    result = make_result()
    read = json.loads(result.to_json())
    jsonschema.validate(read, result_schema(type(result)))
    assert read["kind"] == type(result).__name__
    assert result_types()[read["kind"]] is type(result)


def test_a_result_has_the_members_of_all_results(make_result):
    result = make_result()
    assert isinstance(result, Result)
    assert result.status in STATUSES
    if type(result).__name__ in MAIN_FINDING:
        assert result.status in {finding.status for finding in result.findings}
    else:
        assert result.status == combine(result.findings)
    assert result.verdict
    assert isinstance(result.findings, tuple)
    assert isinstance(result.notes, tuple)
    assert len({finding.name for finding in result.findings}) == len(result.findings)


def test_a_result_prints_on_one_line(make_result):
    assert len(repr(make_result())) <= 120
    assert "\n" not in repr(make_result())


def test_the_headline_is_the_same_everywhere(make_result, render):
    result = make_result()
    headline = result.document().headline
    assert result.verdict.startswith(headline)
    plain = render(result).replace("\u00a0", " ")
    for text in (plain, str(result), result.to_markdown(), render_cell(result.document()).replace("\u00a0", " ")):
        assert " ".join(headline.split()) in " ".join(text.split()).replace("&#39;", "'")


def test_a_notebook_shows_the_main_table_and_the_main_figure(make_result):
    cell = make_result()._repr_html_()
    assert "<table" in cell
    assert "<svg" in cell
    assert "<script" not in cell
    assert len(cell) < 400_000


def test_the_main_figure_is_drawn_on_axes(make_result):
    result = make_result()
    axes = result.plot()
    assert isinstance(axes, Axes)
    assert axes.has_data()
    assert axes.get_xlabel() or axes.get_ylabel() or axes.texts or axes.get_yticklabels()
    pyplot.close(axes.figure)
    with pytest.raises(InputError, match="ax must be one set of matplotlib axes, not"):
        result.plot("axes")


@pytest.mark.parametrize(
    ("name", "title"),
    [("layers", "Held-out error, % of chance"), ("mechanism", "Latents that move a common output")],
)
def test_a_figure_whose_axes_do_not_say_what_it_shows_has_a_title(name, title, results):
    axes = results[name]().plot()
    assert axes.get_title() == title
    pyplot.close(axes.figure)


def test_a_cell_has_the_scheme_of_the_page_around_it(results):
    cell = results["layers"]()._repr_html_()
    light, dark = (f"--page: {colour}" for colour in PALETTE["page"])
    system = cell.index("prefers-color-scheme: dark")
    for around, colour in (('data-jp-theme-light="true"', light), ('data-jp-theme-light="false"', dark)):
        assert cell.index(around) > system
        assert cell[cell.index(around) :].split("--page")[1].startswith(colour.removeprefix("--page"))


def test_the_main_figure_is_drawn_on_axes_of_the_caller(result_name, results):
    figure, ax = pyplot.subplots()
    if result_name in ("training", "reproduction"):  # which have several panels
        with pytest.raises(InputError, match=r"several panels: call plot\(\) without ax"):
            results[result_name]().plot(ax)
    else:
        assert results[result_name]().plot(ax) is ax
        assert ax.has_data()
    pyplot.close(figure)


def test_no_verb_lacks_a_figure(results):
    """The result of every verb is among those whose `plot` the test above draws."""
    public = [getattr(congruence, name) for name in congruence.__all__]
    returned = {inspect.signature(one).return_annotation for one in public if inspect.isfunction(one)}
    kinds = {one.__name__ for one in public if inspect.isclass(one) and issubclass(one, Result)}
    assert kinds <= returned  # by a verb
    assert kinds <= {type(make()).__name__ for make in results.values()}


def test_the_tidy_table_has_the_same_columns_in_every_row(make_result):
    rows = [dict(row) for row in make_result().rows()]
    assert rows
    assert all(list(row) == list(rows[0]) for row in rows)
    assert list(make_result().to_frame().columns) == list(rows[0])


def test_markdown_has_every_section(make_result):
    result = make_result()
    text = result.to_markdown()
    for section in result.document().sections:
        assert f"## {' '.join(section.title.split())}" in text
    assert not re.search(r"\bnan\b", text)


def test_a_terminal_of_80_columns_is_wide_enough(make_result):
    from congruence.report.terminal import render_text

    for line in render_text(make_result().document(), width=80).splitlines():
        assert "…" not in line


def test_a_wrong_key_lists_the_right_ones(make_result):
    with pytest.raises(KeyError, match="the keys are"):
        make_result()["no such key"]
