"""Let dotted names in tables (`congruence.decoder.theorem1`) break after a dot, not within a word."""

import re

NAME = re.compile(r"<code>([\w.]+\.[\w.]+)</code>")


def on_page_content(html, page, config, files):
    """Put a possible break after each dot of a name in a cell of a table."""
    return re.sub(r"<td\b.*?</td>", lambda cell: NAME.sub(_with_breaks, cell[0]), html, flags=re.DOTALL)


def _with_breaks(name):
    return "<code>" + re.sub(r"\.(?=[a-z_])", ".<wbr>", name[1]) + "</code>"
