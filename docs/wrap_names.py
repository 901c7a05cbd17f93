"""Where names break: long ones in tables after a dot or underscore, short ones in sentences nowhere."""

import re

NAME = re.compile(r"<code>([\w.]{16,})</code>")  # in a table
SHORT = re.compile(r"<code>([^<\n]{1,24})</code>")  # in a sentence: `--no-check` would break after a hyphen
QUOTED = re.compile(r"<code>([^<]*`[^<]*)</code>")  # types in docstrings: (n, K) array or `Factors`


def on_page_content(html, page, config, files):
    """Mark where code may break."""
    html = QUOTED.sub(lambda code: code[0].replace("`", ""), html)
    html = re.sub(r"<td\b.*?</td>", lambda cell: NAME.sub(_with_breaks, cell[0]), html, flags=re.DOTALL)
    return SHORT.sub(_unbroken, html)


def _unbroken(code):
    return f'<code class="{"option" if code[1].startswith("-") else "short"}">{code[1]}</code>'


def _with_breaks(name):
    return "<code>" + re.sub(r"(?<=\w)([._])(?=[a-z_])", r"\1<wbr>", name[1]) + "</code>"
