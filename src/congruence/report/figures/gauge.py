"""A score on its range: a small inline SVG with the value, its interval and the mark of chance."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from congruence.formatting import number

if TYPE_CHECKING:
    from congruence.metrics.evaluation import Score

WIDTH, HEIGHT, MARGIN = 150.0, 22.0, 8.0


def gauge(score: Score) -> str:
    """Draw a score from the least to the best value of its range; nothing where it is NaN or infinite.

    A range without an end is cut at 0 (below) or at what there is to show (above); values beyond it sit at its end.
    """
    if not math.isfinite(score.value):
        return ""
    low, high = _ends(score)

    def at(value: float) -> float:
        share = (value - low) / (high - low)
        return MARGIN + (WIDTH - 2 * MARGIN) * min(max(share, 0.0), 1.0)

    middle = HEIGHT / 2
    parts = [_line(MARGIN, middle, WIDTH - MARGIN, middle, "line", 2.0)]
    if low < 0:
        parts.append(_line(at(0), middle - 4, at(0), middle + 4, "line", 2.0))
    if math.isfinite(score.chance):
        parts.append(_line(at(score.chance), 2, at(score.chance), HEIGHT - 2, "c-null", 2.0, "2.4 1.6"))
    if math.isfinite(score.low) and math.isfinite(score.high):
        parts.append(_line(at(score.low), middle, at(score.high), middle, "c-heldout", 5.0))
    parts.append(f'<circle cx="{at(score.value):.1f}" cy="{middle:g}" r="4.5" style="fill: var(--c-heldout)"/>')
    return (
        f'<svg class="gauge" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img"'
        f' aria-label="{html.escape(_said(score, low, high))}"><title>{html.escape(_said(score, low, high))}</title>'
        f"{''.join(parts)}</svg>"
    )


def _ends(score: Score) -> tuple[float, float]:
    low, high = score.range
    shown = [x for x in (score.value, score.high, score.chance) if math.isfinite(x)]
    low = low if math.isfinite(low) else 0.0
    high = high if math.isfinite(high) else low + 1.1 * max(0.0, *shown, 0.0) - 1.1 * min(low, 0.0)
    return low, high if high > low else low + 1.0


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float, dashes: str = "") -> str:
    dashed = f"; stroke-dasharray: {dashes}" if dashes else ""
    style = f"stroke: var(--{colour}); stroke-width: {width:g}{dashed}"
    return f'<line x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}" style="{style}"/>'


def _said(score: Score, low: float, high: float) -> str:
    text = f"{number(score.value)} between {number(low)} and {number(high)}"
    return f"{text}; chance {number(score.chance)}" if math.isfinite(score.chance) else text
