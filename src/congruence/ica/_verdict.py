"""Sentences and findings about components: how many are identified or stable, why others are not, what to do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from congruence.arrays import listing
from congruence.formatting import count
from congruence.ica.point import FREE
from congruence.ica.unmix import AGREES, Unmixing, advice
from congruence.result import Finding, Status

if TYPE_CHECKING:
    from congruence.ica.resolution import Resolution

Problem = Literal["gaussian", "start", "not converged", "resamples"]  # why a component is not identified or not stable

FEW_ROWS = 10  # n / (kurtosis + 3) estimates how many rows make up a component; fewer are suspect
REASONS: dict[Problem, str] = {
    "gaussian": "indistinguishable from Gaussian noise",
    "start": "dependent on the random start",
    "not converged": "not converged",
    "resamples": "unstable across resamples",
}


def some(sure: int, k: int, adjective: str) -> str:
    """Return the sentence that `sure` of `k` components are what the adjective says."""
    if sure == 0:
        return f"No component is {adjective}."
    if k == 1:
        return f"The only component is {adjective}."
    if sure == k:
        return f"All {k} components are {adjective}."
    return f"{sure} of {k} components {'is' if sure == 1 else 'are'} {adjective}."


def share_status(sure: int, k: int) -> Status:
    """Return the status of the claim about all k components when it is true of `sure`."""
    return "holds" if sure == k else "ambiguous" if sure else "fails"


def reasons(problems: Iterable[Problem | None]) -> str:
    """Count why components are not identified or stable: "2 indistinguishable from Gaussian noise, 1 ..."."""
    counts = Counter(problems)
    return ", ".join(f"{counts[problem]} {text}" for problem, text in REASONS.items() if counts[problem])


def headlines(result: Resolution) -> tuple[str, ...]:
    """Return the verdict on a resolution, one sentence each."""
    start = ("ICA did not converge.",) if result.components.unmixing.reason == "cap" else ()
    return (*start, some(result.identified, result.k, "identified"), *_stable(result), *_lost(result))


def _stable(result: Resolution) -> Iterator[str]:
    sure, stable = result.identified, result.stable
    if result.stability is None or not sure:
        return
    across = f"stable across {count(result.stability.settings['bootstrap'], 'bootstrap resample')}"
    if sure == 1:
        yield f"It is {across}." if stable else f"It is not {across}."
    elif stable == sure:
        yield f"They are {across}."
    else:
        yield f"{stable} of these {sure} components {'is' if stable == 1 else 'are'} {across}."


def _lost(result: Resolution) -> Iterator[str]:
    lost = [problem for problem in result.problems if problem not in (None, "resamples")]
    if lost:
        yield f"Not identified: {reasons(lost)}. {'These axes' if len(lost) > 1 else 'This axis'} may be arbitrary."


def criteria(found: Unmixing) -> str:
    """Return the criteria by which components were identified."""
    starts = f"found from every random start (correlation of at least {AGREES})"
    noise = f"distinguishable from Gaussian noise (error below {math.degrees(FREE):.1f}°)"
    judged = [noise] * is_judged(found) + [starts] * (found.agreement is not None)
    return " and ".join(judged) or "converged; neither noise nor random starts were judged"


def findings(result: Resolution) -> tuple[Finding, ...]:
    """Return whether all components are identified and, where rows were resampled, stable."""
    capped = result.components.unmixing.reason == "cap"

    def about(name: str, claim: str, sure: int, adjective: str) -> Finding:
        status: Status = "unknown" if capped else share_status(sure, result.k)
        share = sure / result.k if result.k else None
        return Finding(name, claim, status, number=share, evidence=some(sure, result.k, adjective))

    identified = about("identified", "Every component is identified.", result.identified, "identified")
    if result.stability is None:
        return (identified,)
    across = f"stable across {count(result.stability.settings['bootstrap'], 'bootstrap resample')}"
    claim = f"Every component is identified and {across}."
    return identified, about("stable", claim, result.stable, f"identified and {across}")


def is_judged(found: Unmixing) -> bool:
    """Whether components were compared with noise, which needs rows that are white."""
    return not np.isnan(found.sampling_error).any()


def notes_on(result: Resolution) -> Iterator[str]:
    """Yield what limits the components, and what to do about it."""
    found = result.components.unmixing
    if text := advice(found):
        yield text
    if "start" in result.problems:
        yield (
            "Where components depend on the start, several rotations are nearly equally good. Fewer components or more "
            "rows may resolve them."
        )
    if found.agreement is None:
        yield "There was one start, so agreement across starts is unknown; use starts=3 (--starts 3)."
    if not is_judged(found):
        yield "The rows are neither whitened nor white, so components were not compared with Gaussian noise."
    few = [f"ica{i}" for i, kurtosis in enumerate(found.kurtosis) if found.n < FEW_ROWS * (kurtosis + 3)]
    if few:
        yield (
            f"Dominated by fewer than {FEW_ROWS} rows: {listing(few)}. These rows may be outliers; look at the rows "
            "with the highest and lowest values."
        )
    if result.stability is not None:
        yield from result.stability.notes
