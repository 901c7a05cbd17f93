import io

import pytest
from rich.console import Console

from congruence.document import Column, Document, Table, share
from congruence.report.terminal import show, show_table


def test_a_sentence_is_wrapped_at_words_on_a_terminal_and_one_line_in_a_file():
    document = Document("question", "a headline of several words " * 6, "holds")
    for terminal, lines in ((True, 3), (False, 1)):
        out = io.StringIO()
        show(document, Console(file=out, width=80, no_color=True, force_terminal=terminal))
        first = out.getvalue().split("✓")[0].replace("\x1b[1m", "").replace("\x1b[0m", "").rstrip()
        assert len(first.splitlines()) == lines
        assert " ".join(first.split()) == " ".join(document.headline.split())


def test_errors_of_groups_are_followed_by_the_remark_that_chance_differs(results):
    for name in ("check", "comparison"):
        text = str(results[name]())
        assert "Chance, the error of unrelated runs, differs between groups: compare groups by R²." in text


@pytest.mark.parametrize("width", range(30, 101, 5))
def test_numbers_are_whole_on_terminals_of_any_width(width):
    names = ["identity", "permutation", "rigid", "similarity", "ridge", "linear", "ica"]
    columns = (Column("pair", "name"), *(Column(name, "number") for name in names))
    table = Table("Errors", columns, [(f"a → {row}", *(share(0.123 + 0.1 * i) for i in range(7))) for row in "bc"])
    out = io.StringIO()
    show_table(table, Console(file=out, width=width, no_color=True))
    shown = "".join(out.getvalue().split())
    assert all(shown.count(f"{number}%") == 2 for number in ("12.3", "22.3", "32.3", "42.3", "52.3", "62.3", "72.3"))
