"""From measurements to a finding, the sentences of the verdict, and notes: can new vectors be translated?"""

from __future__ import annotations

import numpy as np

from congruence.formatting import interval, percent
from congruence.maps.nearness import Nearness
from congruence.result import Finding, Status
from congruence.translation.certificate import Certificate

BY_CHANCE = 0.1  # if random vectors find more than this share of the neighbours, recall is too little evidence for a go
ANSWERS: dict[Status, str] = {
    "holds": "New vectors can be translated into the old space.",
    "ambiguous": "It is not yet certain that new vectors can be translated well enough.",
    "unknown": "There are too few paired rows to decide whether new vectors can be translated.",
    "fails": "New vectors cannot be translated well enough.",
}
Verdict = tuple[Finding, tuple[str, ...], tuple[str, ...]]  # the finding, the sentences of the verdict, and notes


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
    return finding, (ANSWERS[status], evidence, f"{error}."), tuple(notes)
