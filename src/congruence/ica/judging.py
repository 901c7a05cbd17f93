"""What is said of a resolution: how many components are identified, what is wrong with the others, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from congruence.arrays import listing
from congruence.ica.stabilities import ComponentStability
from congruence.ica.unmix import Unmixing, advice

if TYPE_CHECKING:
    from congruence.ica.resolution import Resolution

FEW_ROWS = 10  # n / (kurtosis + 3) is the number of rows that share a component among them; fewer are suspect


def resampled_columns(stability: ComponentStability) -> dict[str, list[Any]]:
    """What resampled rows say of each component."""
    agreement = stability.agreement
    parts = {"median": agreement.median, "low": agreement.low, "high": agreement.high, "stable": agreement.holds()}
    return {name: values.tolist() for name, values in parts.items()}


def verdict_on(result: Resolution) -> str:
    """How many components come back, what is wrong with the others, and what resampled rows say."""
    text = _on_starts(result)
    if result.stability is None or not result.identified:
        return text
    runs = result.stability.settings["bootstrap"]
    back = f"{result.returning} of the {result.identified} come back"
    if result.returning == result.identified:
        back = "they come back as well"
    return f"{text} On {runs} resamples of the rows, {back}."


def _on_starts(result: Resolution) -> str:
    found, k, sure = result.components.unmixing, result.k, result.identified
    if sure == 0:
        return f"No component is identified: {_what_is_wrong(result, 'all')}."
    signs = ["come back from every start"] * (found.agreement is not None) + ["can be told from noise"] * _judged(found)
    they = "they" if sure > 1 else "it"
    comes = " and ".join(signs) if sure > 1 else " and ".join(signs).replace("come", "comes")
    told = f": {they} {comes}" if signs else ", as far as could be judged"
    if sure == k:
        return f"All {k} components are identified{told}." if k > 1 else f"The only component is identified{told}."
    are = "are" if sure > 1 else "is"
    return f"{sure} of {k} components {are} identified{told}; {_what_is_wrong(result, 'the other')}."


def _what_is_wrong(result: Resolution, which: str) -> str:
    """Why the components that are not identified are not."""
    lost = [row["lost_to"] for row in result.table()]
    noise, moving = lost.count("noise"), lost.count("start") + lost.count("cap")
    why = []
    if noise:
        why.append(f"{noise} {'is' if noise == 1 else 'are'} as good as Gaussian")
    if moving:
        settled = (
            "had not come to rest"
            if "cap" in lost
            else f"{'depends' if moving == 1 else 'depend'} on where the solver starts"
        )
        why.append(f"{moving} {settled}")
    if len(why) == 2:
        return f"of {which} {noise + moving}, {why[0]} and {why[1]}, and their axes may be arbitrary"
    return f"{which} {why[0]}, and {'its axis' if noise + moving == 1 else 'their axes'} may be arbitrary"


def _judged(found: Unmixing) -> bool:
    """Whether components were told from noise, as they are not where rows are neither whitened nor white."""
    return not np.isnan(found.sampling_error).any()


def advice_on(result: Resolution) -> list[str]:
    """What to know before the components are used, and what to do about it."""
    found = result.components.unmixing
    notes = [text] if (text := advice(found)) else []
    if any(row["lost_to"] == "start" for row in result.table()):
        notes.append(
            "where components depend on the start, several rotations are nearly as good: fewer components or more rows "
            "may settle them"
        )
    if found.agreement is None:
        notes.append("there was one start, so it is not known whether another would find the same components")
    if not _judged(found):
        notes.append("the rows are neither whitened nor white, so components could not be told from noise")
    few = [f"ica{i}" for i, kurtosis in enumerate(found.kurtosis) if found.n < FEW_ROWS * (kurtosis + 3)]
    if few:
        what = f"{len(few)} components are" if len(few) > 1 else "1 component is"
        notes.append(
            f"{what} made by fewer than {FEW_ROWS} rows ({listing(few)}): outliers, perhaps; look at the rows that "
            "have most of them"
        )
    return [*notes, *(() if result.stability is None else result.stability.notes)]
