"""From what was measured to a finding and sentences: can new vectors be translated?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from congruence.formatting import interval, percent
from congruence.maps.nearness import Nearness
from congruence.result import Finding, Status
from congruence.translation.certificate import Certificate
from congruence.translation.result import ComponentMatching

BY_CHANCE = 0.1  # a share of neighbours that random vectors find: from here on recall says too little for a go
ANSWERS: dict[Status, str] = {
    "holds": "New vectors can be translated into the old space.",
    "ambiguous": "It is not yet certain that new vectors can be translated well enough.",
    "unknown": "There are too few paired rows to decide whether new vectors can be translated.",
    "fails": "New vectors cannot be translated well enough.",
}


@dataclass(frozen=True)
class Verdict:
    """A finding, the sentences of the verdict, and notes."""

    finding: Finding
    headlines: tuple[str, ...]
    notes: tuple[str, ...]


def judge_retrieval(near: Nearness, certificate: Certificate, require: float) -> Verdict:
    """Decide from the held-out recall whether translated vectors find enough of the true neighbours.

    The claim holds if the interval of the recall lies above `require`, and fails if it lies below. It is ambiguous
    where the interval contains `require`, and unknown where chance alone finds more than a tenth of the neighbours.
    """
    retrieval, probe, drift = certificate.retrieval, certificate.probe, certificate.drift
    recall = retrieval.recall_10
    low, high = (recall.low, recall.high) if np.isfinite(recall.low) else (recall.mean, recall.mean)
    status: Status = "holds" if low >= require else "fails" if high < require else "ambiguous"
    notes = []
    if status == "holds" and retrieval.chance > BY_CHANCE:
        status = "unknown"
        notes.append(
            f"With this few rows, random vectors find {percent(retrieval.chance)} of the nearest old vectors, which is "
            "too much for a go: pair more than 100 rows."
        )
    if drift.found:
        notes.append(
            f"The models differ by more than a linear map: a nonlinear map predicts {percent(drift.share)} of the "
            "residual of the best linear map."
        )
    elif status != "holds" and certificate.still_falling:
        notes.append("More paired rows would help: the error still decreases with the number of rows.")
    evidence = (
        f"On held-out rows, translated vectors find {percent(recall.mean)} ({interval(low, high)}) of the 10 nearest "
        f"old vectors; {100 * require:g} % is required."
    )
    error = f"The {near.group} map leaves an error of {percent(near.held_out.mean)} of the old diameter"
    if probe is not None:
        error += f"; a linear probe trained on old vectors scores {probe.after:.3f} instead of {probe.ideal:.3f}"
    finding = Finding(
        "retrieval",
        f"Translated vectors find at least {100 * require:g} % of the 10 nearest old vectors.",
        status,
        evidence=evidence,
        number=recall.mean,
        interval=(low, high),
        null=retrieval.chance,
    )
    return Verdict(finding, (ANSWERS[status], evidence, f"{error}."), tuple(notes))


def judge_matching(found: ComponentMatching) -> Verdict:
    """Decide whether the components of two models can be matched without paired rows.

    The claim holds if all components are trusted and is ambiguous if some are. If none is, it fails where most shapes
    of one model are not found in the other, and is unknown where the shapes agree but several agree equally well.
    """
    k, trusted = len(found.matches), found.trusted
    unlike = sum(not match.fits for match in found.matches)
    status: Status = "ambiguous" if trusted else "unknown" if 2 * unlike <= k else "fails"
    status = "holds" if trusted == k else status
    covered = f"The matched components hold {percent(found.covered)} of the variance of the old vectors."
    headlines = {
        "holds": (f"Without paired rows, all components ({k}) are matched with confidence.", covered),
        "ambiguous": (f"Without paired rows, {trusted} of {k} components are matched with confidence.", covered),
        "unknown": (
            f"Without paired rows, none of {k} components can be matched with confidence.",
            "Components whose distributions are alike, symmetric or Gaussian cannot be distinguished, and few rows "
            "blur their shapes.",
        ),
        "fails": (
            f"{unlike} of {k} components of the old model have no counterpart of the same shape in the new one.",
            "The models may be unrelated, or their rows may come from different populations.",
        ),
    }[status]
    finding = Finding(
        "matching",
        "All components of the old model can be matched by their shapes.",
        status,
        evidence=f"{trusted} of {k} components are trusted. {covered}" if trusted else headlines[1],
        number=found.confidence,
        null=found.chance,
    )
    note = (
        "Experimental: no paired row confirms this translation. Check it on rows that both models embedded "
        "(congruence translate fit) before relying on it."
    )
    return Verdict(finding, headlines, (note,))
