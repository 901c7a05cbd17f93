"""The figure of a translation without paired rows: how far each match can be trusted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from congruence.formatting import number
from congruence.report.figures.svg import ABOVE, HELD_OUT, INK, MUTED, Drawing

if TYPE_CHECKING:
    from congruence.translation.result import ComponentMatching


def match_confidence(matching: ComponentMatching, trust: float) -> Drawing:
    """Draw the confidence of each component of the old model; those that are trusted are filled."""
    matches = matching.matches

    def paint(axes: Any) -> None:
        axes.axhline(0, color=MUTED, linewidth=1)
        if math.isfinite(trust):
            axes.axhline(trust, color=INK, linewidth=1.5, dashes=(5, 2), label="limit of trust")
        style = {"marker": "o", "markersize": 8, "linewidth": 0, "clip_on": False}
        for trusted, look in ((True, {"color": HELD_OUT}), (False, {"color": MUTED, "markerfacecolor": "none"})):
            some = [match for match in matches if match.trusted == trusted]
            label = "trusted" if trusted else "not trusted"
            axes.plot([match.old for match in some], [match.confidence for match in some], **style, **look, label=label)
        low = min([0.0, *(match.confidence for match in matches)])
        axes.set(xlabel="component of the old model", ylabel="confidence", ylim=(1.05 * low - 0.02, 1.02))
        axes.set(xlim=(-0.6, len(matches) - 0.4), xticks=range(0, len(matches), max(1, len(matches) // 12)))
        axes.grid(axis="y")
        axes.legend(**ABOVE, ncols=3)

    said = "; ".join(f"component {match.old} {number(match.confidence, 2)}" for match in matches)
    return Drawing(paint, (535, 320), key="match confidence", label=f"Confidence of each match: {said}", on_axes=True)
