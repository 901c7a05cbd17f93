"""Section 4.4 and appendix A.7.4 of Nelson et al.: whitening and ICA of embeddings, evaluated on unseen plates.

The paper's screen is real and large. This one is simulated (`experiments.data.screen`), so that the truth is known and
the mixing can be moved away from an isometry, where the theory predicts that ICA no longer finds the biology. With data
"bbbc021" the claims that need no truth are judged on real wells (`plates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from congruence.experiments.data.screen import SHARE, simulate_screen
from congruence.experiments.recipes.claims import read_text
from congruence.experiments.recipes.deconfounding import claims, plates
from congruence.experiments.recipes.deconfounding.screen import ScreenScores, score_screen
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation, from_numbers
from congruence.parts import Parts

EDITION = 1
DIALS = [0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5]
FEWER = [0.0, 0.1, 0.2, 0.4, 0.8, 1.5]
# Settings that a part does not depend on: the dials of other parts, the number of guides in the tables, and (but for
# the last digits) the device. A run that is resumed with other values of these keeps its finished parts.
OTHER_SETTINGS = ("data", "dial", "dials", "guides", "rotations", "shares", "device")
# `dial` is that of the tables and one of `dials`. The tables use `guides` of each gene, the other dials one of each.
# `controls` is the number of control rows that trees may see: RxRx3-core has 25,312 in its gene experiments.
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"n": 1200, "d": 24, "plates": 15, "share": 0.03, "controls": None, "dial": 0.1, "dials": [0.1, 1.5]}
    | {"data": "simulated", "guides": 1, "folds": 3, "rounds": 10, "rotations": 1, "shares": [0.25]},
    "small": {"n": 10_000, "d": 48, "plates": 60, "share": 0.02, "controls": None, "dial": 0.2, "dials": DIALS}
    | {"data": "simulated", "guides": 6, "folds": 5, "rounds": 100, "rotations": 3, "shares": [0.1, 0.25, 0.5]},
    "paper": {"n": 222_000, "d": 384, "plates": 180, "share": SHARE, "controls": 25_000, "dial": 0.2, "dials": FEWER}
    | {"data": "simulated", "guides": 6, "folds": 5, "rounds": 100, "rotations": 3, "shares": [0.1, 0.25, 0.5]},
    "full": {"n": 222_000, "d": 384, "plates": 180, "share": SHARE, "controls": None, "dial": 0.2, "dials": DIALS}
    | {"data": "simulated", "guides": 6, "folds": 5, "rounds": 100, "rotations": 3, "shares": [0.1, 0.25, 0.5]},
}
# The wells are as many at every scale. `weeks` is the number of folds where weeks are held out.
_WELLS = {"components": "auto", "folds": 5, "weeks": 10, "rounds": 100, "rotations": 3, "shares": [0.1, 0.25, 0.5]}
DATA: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "simulated": PARAMETERS,
    "bbbc021": dict.fromkeys(PARAMETERS, _WELLS)
    | {"smoke": _WELLS | {"folds": 3, "weeks": 3, "rounds": 10, "rotations": 1, "shares": [0.25]}},
}


@dataclass(frozen=True, eq=False)
class DialExperiment:
    """The screen of the tables, and screens along the dial."""

    table: ScreenScores
    curve: tuple[ScreenScores, ...]  # from the smallest dial up, one guide of each gene
    shares: tuple[float, ...]  # of top features, scored where the curve has the dial of the tables

    @property
    def near(self) -> ScreenScores:
        """The screen of the curve that has the dial of the tables."""
        return next(one for one in self.curve if one.dial == self.table.dial)


def compute(job: RecipeJob) -> DialExperiment | plates.PlateExperiment:
    """Simulate screens along the dial and score them, or score real wells."""
    if job.parameters["data"] == "bbbc021":
        return plates.compute(job)
    near, dials = job.parameters["dial"], sorted(job.parameters["dials"])
    shares, guides, rotations = tuple(job.parameters["shares"]), job.parameters["guides"], job.parameters["rotations"]
    curve = tuple(_score(job, dial, 1, shares if dial == near else (), 1) for dial in dials)
    table = curve[dials.index(near)] if guides == rotations == 1 else _score(job, near, guides, (), rotations)
    return DialExperiment(table, curve, shares)


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge the paper's claims."""
    if settings.get("data") == "bbbc021":
        return plates.present(from_numbers(plates.PlateExperiment, ours))
    text, experiment = read_text("deconfounding")["simulated"], from_numbers(DialExperiment, ours)
    return Presentation(
        headlines=claims.headline(experiment),
        findings=claims.judge(experiment),
        tables=claims.make_tables(experiment),
        figures=(claims.draw_dial(experiment), claims.draw_genes(experiment)),
        notes=tuple(text["notes"]),
        terms=tuple(text["terms"].items()),
    )


def _score(job: RecipeJob, dial: float, guides: int, shares: tuple[float, ...], rotations: int) -> ScreenScores:
    n, d, many, share = (job.parameters[name] for name in ("n", "d", "plates", "share"))
    screen = simulate_screen(n, d, many, dial, job.seed, share=share)
    parts = replace(parts_of_screens(job.parts, shares), prefix=f"dial{dial:g}-guides{guides}-")
    return score_screen(screen, job, parts, guides=guides, shares=shares, rotations=rotations)


def parts_of_screens(parts: Parts, shares: tuple[float, ...]) -> Parts:
    """Parts with only the settings that scores depend on; the dial, guides and rotation are in the names of parts."""
    settings = {name: value for name, value in parts.settings.items() if name not in OTHER_SETTINGS}
    return replace(parts, settings=settings | {"shares": list(shares)})
