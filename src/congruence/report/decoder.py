"""The report of a decoder: how much it stretches, what Theorem 1 makes of that, and which premises were looked at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from congruence import files
from congruence.formatting import UNDEFINED, number, percent
from congruence.report.figures.scales import far_apart, plain_decades
from congruence.report.figures.svg import HELD_OUT, INK, LINEAR, MUTED, draw
from congruence.report.page import fill

if TYPE_CHECKING:
    from congruence.decoder.bounds import Bound
    from congruence.decoder.examination import Examination
    from congruence.decoder.stretch import BiLipschitz

BINS = 30
KNOWN = {
    "certified": "certified",
    "sampled": "sampled at points: a lower estimate, no certificate",
    "given": "taken as given",
}


def write_decoder_report(examination: Examination, path: str | Path) -> None:
    """Write the report of a decoder to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_decoder(examination))


def render_decoder(examination: Examination) -> str:
    """Return the report of a decoder as one HTML page that needs no other file."""
    b = examination.stretch
    finite = b.constants[np.isfinite(b.constants)]
    settings = {name: value for name, value in examination.settings.items() if name != "command"}
    return fill(
        "decoder.html.j2",
        examination=examination,
        notes_on=[f"{note[:1].upper()}{note[1:]}." for note in b.notes],
        constants=_constants(b),
        histogram=_histogram(finite) if finite.size else "",
        spectrum=_spectrum(b) if b.spectra is not None and b.s_max.max() > 0 else "",
        bound=None if examination.bound is None else _bound(examination.bound),
        command=examination.settings.get("command"),
        made={"points": b.n, "latents of a point": b.dimension, "outputs of a point": b.outputs} | settings,
    )


def _constants(b: BiLipschitz) -> list[tuple[str, str, str]]:
    return [
        ("mean", number(b.mean, 4), "over points; what the paper plots, and no bound"),
        ("median", number(b.quantile(0.5), 4), ""),
        ("95 % of points are below", number(b.quantile(0.95), 4), ""),
        ("largest", number(b.constant, 4), "a lower estimate of what Theorem 1 asks for"),
        ("largest, rescaled", number(b.scale_free, 4), f"after dividing lengths by {number(b.scale, 4)}"),
        ("stretch", f"{number(b.s_min.min())} to {number(b.s_max.max())}", "least and largest singular value"),
        ("isometry defect", number(b.isometry_defect), "how far any stretch is from 1"),
        ("condition", number(float(b.conditions.max())), "largest ratio of the stretches at one point"),
    ]


def _bound(bound: Bound) -> dict[str, Any]:
    whose = f"c = {number(bound.isometric_constant, 4)}, {bound.isometric_constant_from}"
    rows = [
        ("form of the paper", bound.paper, f"{whose}; {bound.reason}"),
        ("general form", bound.general, "ours; holds for every constant"),
        ("trivial", bound.trivial, "holds for any two sets of this size"),
    ]
    shown = [
        (name, UNDEFINED, "", meaning)
        if value is None
        else (name, number(value), percent(value / bound.diameter), meaning)
        for name, value, meaning in rows
    ]
    return {"rows": shown, "epsilon": number(bound.epsilon), "vacuous": bound.vacuous, "known": KNOWN[bound.basis]}


def _histogram(constants: Any) -> str:
    low, high = float(constants.min()), float(constants.max())
    log = far_apart([low, high])
    margin = 0.02 * max(high - low, 1e-3 * high)
    bins = np.geomspace(low, high, BINS + 1) if log else np.linspace(low - margin, high + margin, BINS + 1)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        counts = np.histogram(constants, bins)[0]
        axes.stairs(100 * counts / len(constants), bins, color=HELD_OUT, fill=True, alpha=0.55)
        axes.axvline(float(constants.mean()), color=INK, linewidth=2, label="mean")
        axes.axvline(high, color=LINEAR, linewidth=2, dashes=(5, 2), label="largest")
        axes.set(xscale="log" if log else "linear", ylabel="% of points")
        axes.set_xlabel("bi-Lipschitz constant" + (" (log)" if log else ""))
        if log:
            plain_decades(axes.xaxis, low, high)
        axes.grid(axis="y")
        figure.legend(loc="outside upper left", ncols=2)

    label = f"Histogram of local bi-Lipschitz constants: mean {number(constants.mean())}, largest {number(high)}"
    return draw(paint, (430, 320), key="constants", label=label)


def _spectrum(b: BiLipschitz) -> str:
    assert b.spectra is not None
    at = np.arange(1, b.dimension + 1)
    low, middle, high = (np.quantile(b.spectra, q, axis=0) for q in (0.05, 0.5, 0.95))

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.fill_between(at, low, high, color=HELD_OUT, alpha=0.3, linewidth=0, label="90 % of points")
        axes.plot(at, middle, color=HELD_OUT, linewidth=2, marker="o", markersize=4, label="median")
        axes.axhline(1, color=MUTED, linewidth=1.5, dashes=(5, 2), label="isometry")
        axes.set(xlabel="singular value, from the largest", ylabel="stretch", ylim=(0, None))
        axes.grid(axis="y")
        figure.legend(loc="outside upper left", ncols=3)

    label = f"Singular values of the Jacobian, median over points: {number(middle[0])} to {number(middle[-1])}"
    return draw(paint, (430, 320), key="spectrum", label=label)
