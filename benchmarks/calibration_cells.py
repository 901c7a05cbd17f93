"""The cells of `calibration.py`: which truths are simulated, what is read off the answers, and the limits to reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import calibration_evaluate
import calibration_truths as truths
from calibration_check import checks
from calibration_deconfound import deconfounding
from calibration_features import features
from calibration_mechanism import mechanism
from calibration_mixture import mixture
from calibration_readings import (
    Cell,
    Quantity,
    are_duplicates_noted,
    are_far_rows_named,
    count_moved,
    covers_mean_over_seeds,
    covers_of_chance,
    covers_r2,
    explained,
    fails,
    flagged,
    has_interval,
    holds,
    is_called_a_permutation,
    is_changed,
    is_misled_by_far_rows,
    mean,
    moved,
    rate,
    related,
    relative_to_before,
    share_above_chance,
    share_of_chance,
    share_of_diameter,
    trimmed_share,
)  # fmt: skip
from calibration_resolve import resolve
from calibration_translate import translating
from calibration_unpaired import unpaired

NOISE = (0.986, 0.9, 0.7, 0.5)  # R2 of an exact similarity plus noise
TOLERANCE = 0.1  # the share of the variance that may stay unexplained, the default of compare


def headline() -> Iterator[Cell]:
    """One population at three sample sizes, and rows far away."""
    numbers = (
        mean("share of the diameter", share_of_diameter),
        mean("error / null", share_of_chance),
        mean("error / null, trimmed", trimmed_share),
        mean("R2", explained),
    )
    for law in ("gaussian", "t3", "lognormal"):
        for n in (200, 2000, 20_000):
            yield Cell("headline", law, n, 16, partial(truths.related, r2=0.8, law=law), numbers)

    def unrelated_far(count: int, distance: float, rng: Any, n: int, d: int) -> truths.Sample:
        return truths.with_far_rows(truths.unrelated(rng, n, d), rng, count, distance)

    def one_scaled(rng: Any, n: int, d: int) -> truths.Sample:
        return truths.with_one_scaled_row(truths.related(rng, n, d, r2=0.8), rng)

    misled = (
        rate("called related, far rows not named", is_misled_by_far_rows, most=0.05),
        rate("far rows named", are_far_rows_named, least=0.95),
        mean("share of the diameter", share_of_diameter),
        mean("error / null", share_of_chance),
    )
    yield Cell("headline", "unrelated, one row at 1000", 1000, 32, partial(unrelated_far, 1, 1000.0), misled)
    yield Cell("headline", "unrelated, 1 % of rows at 3000", 1000, 32, partial(unrelated_far, 10, 3000.0), misled)
    scaled = tuple(
        mean(f"{name}, scaled row / without", partial(relative_to_before, read), **limit)
        for name, read, limit in (
            ("share of the diameter", share_of_diameter, {}),
            ("error / null", share_of_chance, {}),
            ("error / null, trimmed", trimmed_share, {}),  # the map itself follows the far row
        )
    )
    yield Cell("headline", "related, one row times 100", 1000, 32, one_scaled, (*misled[1:2], *scaled))


def dependence() -> Iterator[Cell]:
    """Unrelated runs of dependent rows, and related runs of independent rows."""
    given, hidden = (related(most=0.05), flagged()), (related(most=0.05), flagged(least=0.95))
    free = (related(most=0.05), flagged(most=0.05))

    def cell(name: str, draw: Callable[..., truths.Sample], quantities: tuple[Quantity, ...], **size: int) -> Cell:
        return Cell("dependence", name, size.get("n", 1000), size.get("d", 32), draw, quantities)

    yield cell("unrelated, independent", truths.unrelated, free)
    yield cell("unrelated, independent", truths.unrelated, free, n=80, d=16)
    for correlation, block in ((0.9, 50), (0.98, 50), (0.98, 200), (0.995, 200)):
        draw = partial(truths.series, correlation=correlation)
        if (correlation, block) != (0.98, 200):
            yield cell(f"unrelated, AR {correlation}", draw, hidden)
        yield cell(f"unrelated, AR {correlation}, blocks of {block} given", partial(draw, order_blocks=block), given)
    for count in (20, 50, 200):
        for within in (0.3, 0.6):
            for order in ("random", "contiguous"):
                draw = partial(truths.clustered, count=count, within=within, order=order)
                name = f"unrelated, {count} clusters, sd {within}, {order}"
                yield cell(name, draw, hidden)
                yield cell(f"{name}, given", partial(draw, given=True), given)
    draw = partial(truths.clustered, count=50, within=0.3, even=False)
    yield cell("unrelated, 50 uneven clusters, sd 0.3", draw, hidden)
    yield cell("unrelated, 50 uneven clusters, sd 0.3, given", partial(draw, given=True), given)
    for times in (2, 5):
        yield cell(f"unrelated, rows {times}x", partial(truths.repeated, times=times), hidden)
        yield cell(f"unrelated, rows {times}x, given", partial(truths.repeated, times=times, given=True), given)
    kept = (flagged(most=0.05), related())
    for r2 in (0.99, 0.9, 0.7, 0.3):
        yield cell(f"related, R2 {r2}", partial(truths.related, r2=r2), kept)
        yield cell(f"related, R2 {r2}", partial(truths.related, r2=r2), kept, n=160)
    for law in ("t3", "lognormal"):
        yield cell(f"related, {law}, R2 0.8", partial(truths.related, r2=0.8, law=law), kept)
    yield cell("related, saturated", truths.nonlinear, kept)
    for r2 in (0.9, 0.5):
        yield cell(f"related, 10 classes, R2 {r2}", partial(truths.classes, r2=r2), kept)

    def few_duplicates(draw: Callable[..., truths.Sample], rng: Any, n: int, d: int) -> truths.Sample:
        return truths.with_duplicates(draw(rng, n, d), rng)

    noted = rate("duplicates noted", are_duplicates_noted, least=0.95)
    yield cell("unrelated, 1 % duplicates", partial(few_duplicates, truths.unrelated), (*free, noted))
    draw = partial(few_duplicates, partial(truths.related, r2=0.9))
    yield cell("related, R2 0.9, 1 % duplicates", draw, (*kept, noted))
    null_fits = mean("mean share above chance", share_above_chance, least=-0.03, most=0.03)
    for kind, options in (
        ("series", {"order_blocks": 50}), ("clusters", {"given": True}), ("uneven clusters", {"given": True})
    ):  # fmt: skip
        draw = partial(truths.layers, count=3, kind=kind, measure="cka")
        name = f"3 x 3 layers, cka, {kind}"
        yield Cell("dependence", name, 400, 16, draw, hidden, "compare_layers")
        known = given if kind == "series" else (*given, null_fits)  # few rows of a series are not judged
        yield Cell("dependence", f"{name}, given", 400, 16, partial(draw, **options), known, "compare_layers")
    draw = partial(truths.layers, count=3, kind="series", measure="cka", order_blocks=50)
    yield Cell("dependence", "3 x 3 layers, cka, series, given", 2000, 16, draw, (*given, null_fits), "compare_layers")


def noise() -> Iterator[Cell]:
    """An exact similarity plus noise must not fail, and must not hold if more than the tolerance is unexplained."""
    for n in (1000, 160):
        for spectrum in ("flat", "1/k", "1/k2"):
            for noise_in in ("y", "x", "both"):
                for r2 in NOISE:
                    draw = partial(truths.related, r2=r2, noise_in=noise_in, spectrum=spectrum)
                    limit = {"most": 0.05} if 1 - r2 > 1.01 * TOLERANCE else {}
                    quantities = (fails(most=0.05), holds(**limit), moved(most=0.05))
                    where = {"y": "in y", "x": "in x", "both": "in both"}[noise_in]
                    yield Cell("noise", f"R2 {r2}, noise {where}, spectrum {spectrum}", n, 32, draw, quantities)


def distortion() -> Iterator[Cell]:
    """Stretched directions beyond the margin of 0.1 must not hold; within it they must not fail."""
    beyond, within = (holds(most=0.05), fails()), (fails(most=0.05), holds())

    def cell(name: str, quantities: tuple[Quantity, ...], n: int, gains: Any, **more: Any) -> Cell:
        return Cell("distortion", name, n, 32, partial(truths.related, log_gains=gains, **more), quantities)

    for n in (1000, 160):
        for sd in (0.08, 0.2):
            gains = truths.log_normal_gains(sd)
            for spectrum in ("flat", "1/k", "1/k2"):
                yield cell(f"log gains of sd {sd}, spectrum {spectrum}", beyond, n, gains, spectrum=spectrum)
            oblique = {"spectrum": "1/k", "principal": False}
            yield cell(f"log gains of sd {sd}, spectrum 1/k, oblique", beyond, n, gains, **oblique)
            for noise_in in ("y", "both"):
                for spectrum in ("flat", "1/k"):
                    more = {"r2": 0.9, "noise_in": noise_in, "spectrum": spectrum}
                    yield cell(
                        f"log gains of sd {sd}, {spectrum}, R2 0.9, noise in {noise_in}", beyond, n, gains, **more
                    )
            yield cell(f"log gains of sd {sd}, R2 0.7", beyond, n, gains, r2=0.7)
        for gain in (0.3, 0.12):
            yield cell(f"one direction by exp({gain})", beyond, n, truths.one_gain(gain))
            for r2 in (0.95, 0.9):
                yield cell(f"one direction by exp({gain}), R2 {r2}", beyond, n, truths.one_gain(gain), r2=r2)
        yield cell("all log gains within 0.03", within, n, truths.bounded_gains(0.03))
        yield cell("all log gains within 0.03, R2 0.95", within, n, truths.bounded_gains(0.03), r2=0.95)


def copies() -> Iterator[Cell]:
    """Copies that were stored in another way must hold, and only permuted columns are called permuted."""
    kept = holds(least=0.95)
    permutation = partial(rate, "called a permutation", is_called_a_permutation)
    for n in (1000, 160):
        for rotated in (False, True):
            for how in ("exact", "float16", "re-ordered", "shifted"):
                name = f"{how}{', rotated' if rotated else ''}"
                draw = partial(truths.copy, how=how, rotated=rotated)
                yield Cell("copies", name, n, 32, draw, (kept, permutation(most=0.05), moved(most=0.05)))
            for how in ("int8 per tensor", "int8 per column"):
                for spectrum in ("flat", "1/k"):
                    name = f"{how}{', rotated' if rotated else ''}, spectrum {spectrum}"
                    draw = partial(truths.copy, how=how, rotated=rotated, spectrum=spectrum)
                    changed = rate("called changed", is_changed, most=0.05)
                    yield Cell("copies", name, n, 32, draw, (changed, permutation(most=0.05), moved(most=0.05)))
        draw = partial(truths.copy, how="permuted", rotated=False)
        yield Cell("copies", "permuted columns", n, 32, draw, (kept, permutation(least=0.95), moved(most=0.05)))


def moved_rows() -> Iterator[Cell]:
    """5 % of the rows are other rows: the verdict names them."""
    counted = mean("moved rows", count_moved)
    for n in (1000, 160):
        for r2 in (1.0, 0.95, 0.8):
            for spectrum in ("flat", "1/k"):
                draw = partial(truths.replaced, r2=r2, share=0.05, spectrum=spectrum)
                yield Cell("moved", f"R2 {r2}, fresh rows, spectrum {spectrum}", n, 32, draw,
                           (moved(least=0.95), counted, holds()))  # fmt: skip
            draw = partial(truths.replaced, r2=r2, share=0.05, swapped=True)
            yield Cell("moved", f"R2 {r2}, swapped rows, spectrum flat", n, 32, draw,
                       (moved(least=0.95), counted, holds()))  # fmt: skip
        for law in ("t5", "t3"):  # heavy tails are no other rows
            draw = partial(truths.related, r2=0.95, law=law)
            yield Cell("moved", f"R2 0.95, none, {law}", n, 32, draw, (moved(most=0.05), counted, holds()))


def coverage() -> Iterator[Cell]:
    """Intervals of the error of the returned map, in the population."""

    def quantities(ratio: float) -> Iterator[Quantity]:
        limit = {"least": 0.9} if ratio >= 5 else {}
        # Chance is the error of maps fitted to as many rows of unrelated runs. Over the mean distance from the mean the
        # ratio is another number: these fits are worse than the mean of y, by 7 % at n/d = 5.
        yield rate("similarity, error / spread", partial(covers_of_chance, "similarity", False))
        yield rate("similarity, error / null", partial(covers_of_chance, "similarity", True), **limit)
        yield rate("similarity, R2", partial(covers_r2, "similarity"), **limit)
        for group in ("ridge", "linear"):
            yield rate(f"{group}, error / null", partial(covers_of_chance, group, True), **limit)
            yield rate(f"{group}, R2", partial(covers_r2, group), **limit)
        some = {"most": 0.05} if ratio < 5 else {"least": 0.95}
        yield rate("linear has an interval", partial(has_interval, "linear"), **some)

    groups = ("similarity", "ridge", "linear")
    for law in ("gaussian", "t5"):
        for ratio in (2, 5, 10, 50):
            draw = partial(truths.related, r2=0.8, law=law)
            name = f"{law}, n/d = {ratio}"
            yield Cell("coverage", name, 16 * ratio, 16, draw, tuple(quantities(ratio)), groups=groups)
    for given in (True, False):
        draw = partial(truths.related_clusters, r2=0.8, count=40, given=given)
        asked = tuple(quantities(50)) if given else tuple(Quantity(q.name, q.read) for q in quantities(50))
        name = f"40 clusters, {'given' if given else 'not given'}"
        yield Cell("coverage", name, 800, 16, draw, asked, groups=groups)


def layers() -> Iterator[Cell]:
    """Unrelated layers: the rate at which some layer is called closer than chance."""
    for n, d, count in ((60, 32, 4), (100, 512, 12)):
        for measure in ("cka", "similarity"):
            draw = partial(truths.layers, count=count, measure=measure)
            limits = {"least": 0.03, "most": 0.07} if count == 12 else {"most": 0.07}
            yield Cell("layers", f"{count} x {count}, {measure}", n, d, draw, (related(**limits),), "compare_layers")
    covers = rate("interval over seeds and rows covers", covers_mean_over_seeds, least=0.9)
    for count in (2, 3, 5):
        draw = partial(truths.seeds, count=count, measure="cka", nulls=0)
        yield Cell("layers", f"{count} x {count} seeds, cka", 200, 8, draw, (covers,), "compare_layers")


SECTIONS = {
    "headline": headline, "dependence": dependence, "noise": noise, "distortion": distortion, "copies": copies,
    "moved": moved_rows, "coverage": coverage, "check": checks, "layers": layers, "resolve": resolve,
    **calibration_evaluate.SECTIONS, "deconfound": deconfounding, "mechanism": mechanism, "mixture": mixture,
    "translate": translating,
    "unpaired": unpaired, "features": features,
}  # fmt: skip
