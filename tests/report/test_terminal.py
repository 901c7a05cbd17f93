import io

from rich.console import Console

from congruence.document import Document
from congruence.report.terminal import show


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
