"""Turn formulas of the documentation into MathML when the site is built, so that pages need no script or network."""

import html
import re

from latex2mathml.converter import convert

PRIME = re.compile(r"<msup>(<mi>[^<]+</mi>)<mi>&#x02032;</mi></msup>")  # as a superscript it would be tiny: it is one
FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.DOTALL)


def on_page_content(content, **_):
    """Replace what pymdownx.arithmatex marked."""

    def as_mathml(match):
        kind = "block" if match[1] == "div" else "inline"
        formula = PRIME.sub(r"<mrow>\1<mo>&#x02032;</mo></mrow>", convert(html.unescape(match[2]), display=kind))
        return f'<div class="formula">{formula}</div>' if kind == "block" else formula

    return FORMULA.sub(as_mathml, content)
