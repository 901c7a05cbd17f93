"""The report of a translation: whether new vectors can take the place of old ones, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from congruence import files
from congruence.formatting import number, percent
from congruence.report import figures, words
from congruence.report.page import fill

if TYPE_CHECKING:
    from congruence.maps.nearness import HeldOut
    from congruence.translation.certificate import CurvePoint, Drift, Probe, Retrieval
    from congruence.translation.translate import Translation

ENOUGH = 1.1  # times the last error of the learning curve: fewer rows than its point will do
ROUNDING = 1e-5  # errors below this share of the diameter are all the same
SIGN_OF_DRIFT = 0.05  # of the residual, predicted by a nonlinear map

Fact = tuple[str, str, str]  # what, its value, what it means


def write_translation_report(translation: Translation, path: str | Path) -> None:
    """Write the report of a translation to `path`, whole or not at all; same input, same bytes."""
    files.check_writable(path)
    files.write_text(path, render_translation(translation))


def render_translation(translation: Translation) -> str:
    """Return the report of a translation as one HTML page that needs no other file."""
    certificate = translation.certificate
    groups = words.ordered(translation.candidates)
    chosen = translation.candidates.get(translation.group)
    curve = [point for point in certificate.curve if math.isfinite(point.mean)]
    drawn = {
        "ladder": figures.groups_ladder(translation.candidates, key="ladder", about="from new vectors to old"),
        "curve": figures.learning_curve(curve, translation.n, chosen.null if chosen else math.nan) if curve else "",
    }
    return fill(
        "translation.html.j2",
        translation=translation,
        groups=groups,
        curve=curve,
        figures=drawn,
        retrieval=_retrieval(certificate.retrieval, translation.settings.get("require")),
        probe=_probe(certificate.probe),
        enough=enough_sentence(curve, certificate.still_falling),
        drift=drift_sentence(certificate.drift),
        made={
            "paired rows": translation.n,
            "old dimensions": translation.translator.d_old,
            "new dimensions": translation.translator.d_new,
            "old diameter": number(translation.diameter, 4),
        }
        | translation.settings,
    )


def _retrieval(retrieval: Retrieval, require: float | None) -> list[Fact]:
    needed = "" if require is None else f"; a go takes {100 * require:g} %"
    return [
        (
            "recall@10",
            _interval(retrieval.recall_10),
            f"of a row’s 10 nearest old vectors, those that its translated vector finds{needed}",
        ),
        ("recall@1", _interval(retrieval.recall_1), "how often both find the same nearest old vector"),
        ("itself found", percent(retrieval.itself), "how often the nearest old vector is the row’s own"),
        (
            "rank agreement",
            number(retrieval.rank_agreement),
            "correlation of the two rankings of the whole index (Spearman); 1 is best",
        ),
        ("recall@10, untranslated", percent(retrieval.before), "the same with new vectors as they are"),
        ("recall@10, by chance", percent(retrieval.chance), "the same with random vectors"),
    ]


def _interval(held_out: HeldOut) -> str:
    mean, spread = percent(held_out.mean), words.between(held_out.low, held_out.high)
    return mean if spread in (mean, words.UNDEFINED) else f"{mean} ({spread})"


def _probe(probe: Probe | None) -> list[Fact]:
    if probe is None:
        return []
    nothing = "always the most frequent class" if probe.score == "accuracy" else "always the mean"
    return [
        ("old vectors", number(probe.ideal), "what the probe was made for"),
        ("translated vectors", number(probe.after), "new vectors through the map, then the same probe"),
        ("untranslated vectors", number(probe.before), "new vectors as they are"),
        ("no vectors", number(probe.baseline), nothing),
    ]


def enough_sentence(curve: Sequence[CurvePoint], still_falling: bool) -> str:
    """Say how many paired rows seem enough: the fewest from which on the error stays within 10 % of the last."""
    if len(curve) < 2:
        return "There are too few paired rows to tell how many would be enough."
    last = curve[-1]
    small = max(ENOUGH * last.mean, ROUNDING)
    above = [i for i, point in enumerate(curve) if point.mean > small]  # the error may rise on its way, near n = d
    first = curve[max(above, default=-1) + 1]
    if last.mean < ROUNDING:
        return f"{first.rows} paired rows are enough: no more than rounding is left."
    if first is last:
        more = "and more would still help" if still_falling else "though the error hardly falls any more"
        return f"All {last.rows} rows were of use: with fewer, the error is more than 10 % larger, {more}."
    text = (
        f"About {first.rows} paired rows seem enough: their error, {percent(first.mean)}, is within a tenth of the "
        f"{percent(last.mean)} that {last.rows} rows leave."
    )
    return f"{text} Still, the error keeps falling: more rows would help." if still_falling else text


def drift_sentence(drift: Drift) -> str:
    """Say whether the models differ by more than a linear map can undo."""
    if not math.isfinite(drift.share):
        return "There are too few rows to look for a difference that is not linear."
    predicted = f"a nonlinear map predicts {percent(drift.share)} of what the best linear one leaves"
    if drift.found:
        return f"The models differ by more than a linear map: {predicted}. No map tried here can undo that."
    if drift.share > SIGN_OF_DRIFT:
        return "The best linear map leaves no more than rounding, so there is nothing for a nonlinear one to undo."
    return (
        f"There is no sign of a nonlinear difference: {predicted}; more than {SIGN_OF_DRIFT * 100:.0f} % would be one."
    )
