"""Draw how metrics fall while two true factors are rotated: make_rotation_figure.py [SVG] [--rows N] [--metrics A,B].

The numbers are written to benchmarks/results/rotation.csv (--csv), a row for each score and a column for each angle.

The codes are the factors turned by 0 to 45 degrees: nothing is lost, but at 45 degrees each code is as much of one
factor as of the other. Left, factors that are uniform numbers; right, factors of ten values each, on a full grid, whose
codes have a little noise: without it either code would tell both factors, since all sums on a turned grid differ.
"""

import argparse
import csv
import itertools
import math
from pathlib import Path

import numpy as np

from congruence.metrics._registry import METRICS, SCORES
from congruence.report.figures.svg import HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE, Drawing, standalone

ANGLES = range(0, 46, 5)
CHOSEN = "infomec,dci,mig,modularity,sap,explicitness,beta_vae,factor_vae,irs,mcc,regression"
LEFT_OUT = ("mcc_spearman",)  # lies on MCC
LEVELS = 10  # of each factor on the grid
NOTICES = 0.15  # a metric that loses a smaller part than this at 45 degrees does not notice the rotation
TOGETHER = {"infoc": "infom", "dci_completeness": "dci_disentanglement", "beta_vae": "factor_vae"}  # share a label
STYLES = {
    "infom": (HELD_OUT, "o"),
    "dci_disentanglement": (LINEAR, "s"),
    "mig": (SOURCE, "D"),
    "modularity": (ICA, "^"),
    "sap": (INK, "v"),
    "factor_vae": (MUTED, "P"),
    "irs": (HELD_OUT, "x"),
    "mcc": (LINEAR, "*"),
}


def uniform_factors(rows):
    """Two independent numbers from -1 to 1, the noise of the codes, and the kind of the factors."""
    return np.random.default_rng(0).uniform(-1, 1, size=(rows, 2)), 0.0, "continuous"


def grid_factors(rows):
    """The same of two factors with every pair of ten values equally often."""
    cells = np.stack(np.meshgrid(*[np.arange(LEVELS)] * 2), -1).reshape(-1, 2)
    return np.tile(cells, (max(2, rows // len(cells)), 1)) * 2.0 / (LEVELS - 1) - 1, 0.05, "ordinal"


def turned(factors, degrees):
    """Rotate two columns."""
    angle = math.radians(degrees)
    return factors @ np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def curves(factors, noise, kind, names):
    """The value of each score at every angle."""
    found = {}
    left = np.random.default_rng(1).normal(scale=noise, size=factors.shape)
    for angle in ANGLES:
        for name in names:
            scores = METRICS[name].function(turned(factors, angle) + left, factors, kinds=kind).scores
            for score, value in scores.items():
                if score not in LEFT_OUT:
                    found.setdefault(score, []).append(value)
    return found


def spaced(heights, least):
    """Move heights apart so that labels do not touch, as little as that needs."""
    order = np.argsort(heights)
    places = np.array(heights, dtype=float)
    for _ in range(200):
        for low, high in itertools.pairwise(order):
            short = least - (places[high] - places[low])
            if short > 1e-9:
                places[low] -= short / 2
                places[high] += short / 2
    return places


def panel(axes, title, found):
    """One line a score, named where it ends; with marks if it falls, dashed if it does not notice."""
    axes.set(xlim=(0, 45), ylim=(-0.02, 1.02), xlabel="rotation, degrees", xticks=[0, 15, 30, 45])
    axes.set_title(title, loc="left")
    axes.grid(visible=True, axis="y")
    named = [score for score in found if score not in TOGETHER]
    places = dict(zip(named, spaced([found[score][-1] for score in named], 0.047), strict=True))
    for score, values in found.items():
        colour, marker = STYLES.get(TOGETHER.get(score, score), (NULL, ""))
        dashes = (None, None) if marker else (3, 1.5)
        axes.plot(ANGLES, values, color=colour, marker=marker, dashes=dashes, linewidth=1.8, clip_on=False)
        if score in places:
            axes.plot([45.6, 47], [values[-1], places[score]], color=MUTED, linewidth=0.8, clip_on=False)
            axes.text(47.5, places[score], label_of(score), color=colour, va="center", fontsize=12)


def label_of(score):
    """What a line is called; two that lie on each other share a label."""
    names = [SCORES[one][0] for one in (score, *(one for one, other in TOGETHER.items() if other == score))]
    if len(names) == 1:
        return names[0]
    return f"{names[0].removesuffix(' score')}, {names[1].removeprefix('DCI ').removesuffix(' score')}"


def figure_of(sides):
    """Both panels as the text of an SVG file."""

    def paint(figure):
        for axes, (title, found) in zip(figure.subplots(1, 2, sharey=True), sides.items(), strict=True):
            panel(axes, title, found)

    ends = {
        title: [SCORES[s][0] for s, v in found.items() if v[-1] > (1 - NOTICES) * v[0]]
        for title, found in sides.items()
    }
    said = "; ".join(f"{title}: not noticed by {', '.join(names)}" for title, names in ends.items())
    drawing = Drawing(
        paint, (980, 470), key="rotation", panels=True, label=f"Scores against the angle of rotation. {said}"
    )
    return standalone(drawing.svg())


def main():
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("svg", nargs="?", default=Path(__file__).parent / "img" / "rotation.svg", type=Path)
    parser.add_argument(
        "--csv", default=Path(__file__).parents[1] / "benchmarks" / "results" / "rotation.csv", type=Path
    )
    parser.add_argument("--rows", default=2000, type=int)
    parser.add_argument("--metrics", default=CHOSEN)
    asked = parser.parse_args()
    names = asked.metrics.split(",")
    sides = {
        "two uniform factors": curves(*uniform_factors(asked.rows), names),
        "two factors of ten values": curves(*grid_factors(asked.rows), names),
    }
    with asked.csv.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["factors", "score", *(f"at_{angle}" for angle in ANGLES)])
        for title, found in sides.items():
            writer.writerows([title, score, *(f"{value:.4f}" for value in values)] for score, values in found.items())
    asked.svg.write_text(figure_of(sides), encoding="utf-8")


if __name__ == "__main__":
    main()
