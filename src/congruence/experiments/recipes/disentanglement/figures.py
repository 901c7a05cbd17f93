"""The figures of `disentanglement`: the argument, the table, and what ICA changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.recipes.disentanglement.claims import ORDER, QUANTISED
from congruence.experiments.recipes.disentanglement.scores import WAYS
from congruence.experiments.recipes.result import RecipeFigure, draw_figure
from congruence.formatting import number
from congruence.report.figures.scales import plain_decades
from congruence.report.figures.svg import GRID, HEAT, HELD_OUT, ICA, INK, LINEAR, MUTED, NULL, SOURCE
from congruence.stats.matching import match

if TYPE_CHECKING:
    from congruence.experiments.recipes.disentanglement.run import DisentanglementScores

MARKS = ((INK, "o"), (SOURCE, "D"), (HEAT, "s"), (ICA, "P"), (LINEAR, "v"), (HELD_OUT, "^"), (NULL, "X"))  # by decay
LEAST = 1e-3  # of the largest singular value: what is below lies on the floor of the figure
APART = 2  # pixels between pictures


def draw_figures(result: DisentanglementScores) -> tuple[RecipeFigure, ...]:
    """All figures of one data set."""
    return (draw_argument(result), draw_table(result), *(() if result.nmi is None else (draw_information(result),)))


def draw_argument(result: DisentanglementScores) -> RecipeFigure:
    """Weight decay, the spectrum of the decoder, its isometry defect, InfoM of AE + ICA, and the agreement of seeds."""
    marks = [MARKS[i % len(MARKS)] for i in range(len(result.last))]

    def paint(figure: Any) -> None:
        (spectra, defects), (scores, seeds) = figure.subplots(2, 2)
        for i, (one, (colour, marker)) in enumerate(zip(result.last, marks, strict=True)):
            sizes = one.spectra.mean(0)
            sizes = np.maximum(sizes / sizes[0], LEAST)
            style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5}
            spectra.plot(1 + np.arange(len(sizes)), sizes, linewidth=1.6, label=f"{one.variant.decay:g}", **style)
            dots = style | {"linestyle": "none", "markersize": 7}
            defects.plot([i] * len(one.defects), one.defects, **dots)
            scores.plot(one.defects, one.values("ica"), **dots)
            agreement = one.agreement[[WAYS.index("raw"), WAYS.index("ica")]]
            seeds.plot(agreement, [one.mean("raw"), one.mean("ica")], color=colour, linewidth=1.2)
            seeds.plot(agreement[:1], [one.mean("raw")], **(dots | {"markerfacecolor": "none"}))
            seeds.plot(agreement[1:], [one.mean("ica")], **dots)
        defects.plot(range(len(marks)), [one.defect for one in result.last], color=MUTED, linewidth=1.2, zorder=1)
        spectra.set(yscale="log", ylim=(0.8 * LEAST, 1.3), xlabel="latent direction", ylabel="singular value (log)")
        plain_decades(spectra.yaxis, LEAST, 1.0)
        spectra.set_title("1. the decoder's spectrum", loc="left")
        defects.set_xticks(range(len(marks)), [f"{one.variant.decay:g}" for one in result.last])
        defects.set(xlabel="weight decay", ylabel="isometry defect")
        defects.set_title("2. how far from an isometry", loc="left")
        scores.set(xlabel="isometry defect", ylabel="InfoM of AE + ICA")
        scores.set_title("3. are codes the factors?", loc="left")
        seeds.set(xlabel="agreement of seeds", ylabel="InfoM")
        seeds.set_title("4. stable (x) and true (y): ○ AE, ● AE + ICA", loc="left")
        for axes in (spectra, defects, scores, seeds):
            axes.grid(axis="y")
        figure.legend(
            *spectra.get_legend_handles_labels(), loc="outside upper left", ncols=len(marks), title="weight decay"
        )

    pairs = [
        (defect, score) for one in result.last for defect, score in zip(one.defects, one.values("ica"), strict=True)
    ]
    correlation = float(np.corrcoef(np.transpose(pairs))[0, 1]) if len(result.last) > 1 else float("nan")
    return draw_figure(
        f"argument-{result.data}",
        paint,
        (900, 640),
        f"Weight decay, spectrum, isometry and InfoM on {result.data}; correlation {number(correlation, 2)}",
        f"The argument on {result.data}, autoencoders at the last step. 1: singular values of the decoder's Jacobian "
        "divided by the largest, mean over codes and seeds; those at the bottom are inactive. 2: isometry defect of "
        "its active directions. 3: the defect against the modularity of codes after ICA. 4: how well the codes "
        "of two seeds agree (statistical) against how well they are the factors (structural), before and after ICA.",
    )


def draw_table(result: DisentanglementScores) -> RecipeFigure:
    """InfoM of every model with its interval; those of the autoencoder before and after ICA are filled."""
    names = [name for name in (*ORDER, *QUANTISED) if name in result.rows]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for i, name in enumerate(names):
            row = result.rows[name]
            mean, low, high = row.interval()
            colour = HELD_OUT if "ICA" in name else INK if name == "AE" else MUTED
            axes.plot([low, high], [i, i], color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
            axes.plot(row.values(), [i] * len(row.values()), "|", color=colour, markersize=9)
            axes.plot([mean], [i], "o", color=colour, markersize=8)
        axes.set_yticks(range(len(names)), names)
        shown = np.concatenate([result.rows[name].values() for name in names])
        low = min(0.0, float(shown.min()))  # intervals of few seeds may go far beyond
        axes.set(xlabel="InfoM", xlim=(low, 1), ylim=(len(names) - 0.5, -0.5))
        axes.axhline(len(ORDER) - 0.5, color=MUTED, linewidth=1.0, dashes=(3, 2))
        axes.grid(axis="x")

    summary = "; ".join(f"{name} {number(result.rows[name].interval()[0], 2)}" for name in names)
    return draw_figure(
        f"infom-{result.data}",
        paint,
        (760, 360),
        f"InfoM on {result.data}: {summary}",
        f"InfoM on {result.data}: mean, interval, and each seed as a stroke. Intervals are over seeds; one seed "
        "has none. Below the line: models with discrete latents.",
    )


def draw_information(result: DisentanglementScores) -> RecipeFigure:
    """Heat maps of the information of codes about factors, before and after ICA, side by side."""
    assert result.nmi is not None
    matrices = [np.asarray(result.nmi[when]) for when in ("before", "after")]
    pair = [matrix[:, matched_order(matrix)] for matrix in matrices]
    top = max(1e-9, *(float(one.max()) for one in pair))

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, shares, title in zip(panels, pair, ("before ICA", "after ICA"), strict=True):
            _paint_heat(axes, shares / top)
            axes.set_title(title, loc="left")
            axes.set(xlabel="code, matched to a factor first")
            axes.set_xticks(range(shares.shape[1]), [str(j + 1) for j in range(shares.shape[1])])
        panels[0].set_yticks(range(len(result.factors)), result.factors)

    own = [float(np.mean([one[i, i] / max(one[:, i].sum(), 1e-9) for i in range(min(one.shape))])) for one in pair]
    return draw_figure(
        f"nmi-{result.data}",
        paint,
        (900, 120 + 34 * len(result.factors)),
        "Information of codes about factors: share of a code's information about its factor "
        f"{number(own[0], 2)} before, {number(own[1], 2)} after",
        f"Information of each code (column) about each factor (row) on {result.data}, as a share of the factor; the "
        "first seed of the chosen autoencoder. One strong cell in each column is what true factors look like.",
    )


def matched_order(shares: Float) -> list[int]:
    """The code matched with each factor, one to one, and then the others from the most to the least informative."""
    first = [int(j) for j in match(shares)[1]]
    rest = [int(j) for j in np.argsort(-shares.max(0), kind="stable") if j not in first]
    return first + rest


def _paint_heat(axes: Any, strengths: Float) -> None:
    from matplotlib.patches import Rectangle

    for (i, j), strength in np.ndenumerate(strengths):
        alpha = round(0.04 + 0.9 * float(strength), 2)
        axes.add_patch(Rectangle((j - 0.48, i - 0.48), 0.96, 0.96, facecolor=HEAT, alpha=alpha, edgecolor="none"))
    axes.set(xlim=(-0.5, strengths.shape[1] - 0.5), ylim=(len(strengths) - 0.5, -0.5))
    axes.spines[["left", "bottom"]].set_color(GRID)


def draw_traversals(
    data: str, factors: Sequence[str], nmi: Mapping[str, Float], pictures: Mapping[str, Array]
) -> RecipeFigure:
    """Pictures with one latent changed, before ICA on the left and after it on the right."""
    sheets = []
    for when in ("before", "after"):
        shares = np.asarray(nmi[when])
        order = matched_order(shares)[: 2 * len(factors)]
        names = [factors[int(shares[:, j].argmax())] for j in order]
        sheets.append((sheet(np.asarray(pictures[when])[order]), names))
    rows, height = len(sheets[0][1]), sheets[0][0].shape[0]

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, 2)
        for axes, (pixels, names), title in zip(panels, sheets, ("before ICA", "after ICA"), strict=True):
            axes.imshow(pixels, interpolation="none")
            each = (height + APART) / rows
            axes.set_yticks([(i + 0.5) * each - APART / 2 for i in range(len(names))], names)
            axes.set_xticks([])
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_title(title, loc="left")

    return draw_figure(
        f"traversals-{data}",
        paint,
        (900, 60 + 44 * rows),
        f"Images of {data} with one latent changed, before and after ICA",
        f"One image of {data} with one latent changed (left) and with one independent component changed "
        "(right), from the 5 % to the 95 % quantile of its values; the first seed of the chosen autoencoder. Each "
        "row is labelled by the factor it has most information about. A code that is a factor changes one thing only.",
    )


def sheet(pictures: Array) -> Array:
    """Pictures (rows, columns, channels, height, width), uint8, as one image (height, width, 3 or 4) with gaps."""
    rows, columns, channels, height, width = pictures.shape
    colours = pictures[:, :, :3] if channels >= 3 else pictures[:, :, [0, 0, 0]]
    whole = np.zeros((rows, height + APART, columns, width + APART, 4), np.uint8)  # gaps let the page through
    whole[:, :height, :, :width, :3] = colours.transpose(0, 3, 1, 4, 2)
    whole[:, :height, :, :width, 3] = 255
    return whole.reshape(rows * (height + APART), -1, 4)[:-APART, :-APART]
