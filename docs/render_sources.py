"""Shorten the links to findings in results/learned.md when the site is built; their names are shown on hovering."""

import re

SOURCE = re.compile(r"\[([\w-]+: [^\]]+)\](\([\w-]+/report\.html)\)")


def on_page_markdown(markdown, page, **_):
    """Replace the name of each finding by *report*."""
    return SOURCE.sub(r'[report]\2 "\1")', markdown) if page.file.src_uri == "results/learned.md" else markdown
