"""From measurements to a finding, the sentences of the verdict, and notes: can new vectors be translated?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from congruence.formatting import fixed, interval, percent
from congruence.maps.nearness import Nearness
from congruence.result import Finding, Status
from congruence.translation._options import TranslateOptions
from congruence.translation.certificate import Certificate, Retrieval

BY_CHANCE = 0.1  # if random vectors find more than this share of the neighbours, recall is too little evidence for a go
FEWEST_QUERIES = 10  # fewer separate queries may all have the same recall, and then there is no interval
ANSWERS: dict[Status, str] = {
    "holds": "New vectors can be translated into the old space.",
    "ambiguous": "It is not yet certain that new vectors can be translated well enough.",
    "unknown": "There are too few paired rows to decide whether new vectors can be translated.",
    "fails": "New vectors cannot be translated well enough.",
}
DEPENDENT = "Rows depend on each other, so it is not known how well new vectors can be translated."
TOO_FEW_QUERIES = "There are too few queries to decide whether new vectors can be translated."
Verdict = tuple[Finding, tuple[str, ...], tuple[str, ...]]  # the finding, the sentences of the verdict, and notes


def judge_retrieval(near: Nearness, certificate: Certificate, options: TranslateOptions) -> Verdict:
    """Decide from the held-out recall whether translated vectors find enough of the true neighbours.

    The claim, which is about an index of the measured size, holds if the interval of the recall lies above the required
    share, and fails if it lies below. It is ambiguous where the interval contains that share. It is unknown where
    chance alone finds more than a tenth of the neighbours, where separate queries are fewer than 10, or where rows
    depend on each other: that can only raise the recall, so a recall that is too low still fails.
    """
    retrieval, require = certificate.retrieval, options.require
    recall, size = retrieval.recall_10, f"{retrieval.index_size:,}"
    low, high = (recall.low, recall.high) if np.isfinite(recall.low) else (recall.mean, recall.mean)
    status: Status = "holds" if low >= require else "fails" if high < require else "ambiguous"
    answer, notes = ANSWERS[status], []
    chance = 10 / max(retrieval.index_size - 1, 1)
    if status == "holds" and chance > BY_CHANCE:
        status, answer = "unknown", ANSWERS["unknown"]
        notes.append(
            f"With an index of {size} rows, random vectors find {percent(min(chance, 1.0))} of the nearest old "
            "vectors, which is too much for a go: pair more than 100 rows."
        )
    if certificate.depends:
        if status != "fails":
            status, answer = "unknown", DEPENDENT
        notes.append(dependence_note(certificate))
    if options.queries is not None and retrieval.queries < FEWEST_QUERIES:
        status, answer = "unknown", TOO_FEW_QUERIES
        notes.append(f"At least {FEWEST_QUERIES} queries are needed for a decision; got {retrieval.queries}.")
    queries = "separate queries" if options.queries is not None else "held-out rows"
    evidence = (
        f"With {queries}, translated vectors find {percent(recall.mean)} ({interval(low, high)}) of the 10 nearest of "
        f"{size} old vectors; {100 * require:g} % is required."
    )
    finding = Finding(
        "retrieval",
        f"Translated vectors find at least {100 * require:g} % of the 10 nearest of {size} old vectors.",
        status,
        evidence=evidence,
        number=recall.mean,
        interval=(low, high),
        null=retrieval.chance,
    )
    notes += [*_size_notes(retrieval, status, require), *_map_notes(certificate, status)]
    return finding, (answer, evidence, *_details(near, certificate)), tuple(notes)


def _details(near: Nearness, certificate: Certificate) -> list[str]:
    retrieval, probe, relevance = certificate.retrieval, certificate.probe, certificate.relevance
    chance = f", an error of {percent(near.of_chance.mean)} of chance" if np.isfinite(near.of_chance.mean) else ""
    explained = percent(near.r2.mean) if near.r2.mean > 0 else "none"
    sentences = [f"The {near.group} map explains {explained} of the variance of held-out rows{chance}."]
    depth = retrieval.rerank_depth
    first = (
        "More than 1,000 translated results are needed to" if depth is None else f"The first {depth} translated results"
    )
    sentences.append(f"{first} contain 99 % of the 10 true nearest of {retrieval.index_size:,} old vectors.")
    if relevance is not None and relevance.ratio is not None:
        ratio = relevance.ratio
        sentences.append(
            f"With the given relevance judgements, translation keeps {percent(ratio.mean)} "
            f"({interval(ratio.low, ratio.high)}) of the nDCG@10 of full re-embedding."
        )
    if probe is not None:
        constant = "the most frequent class" if probe.score == "accuracy" else "the mean"
        sentences.append(
            f"A linear probe trained on old vectors has the {probe.score} {fixed(probe.after, 3)} on translated "
            f"vectors instead of {fixed(probe.ideal, 3)}; {constant} alone has {fixed(probe.baseline, 3)}."
        )
    return sentences


def _size_notes(retrieval: Retrieval, status: Status, require: float) -> Iterator[str]:
    beyond = [point for point in retrieval.sizes if point.extrapolated]
    short = next((point for point in beyond if point.low < require), None)
    if status == "holds" and short is not None:
        yield (
            f"The go is for an index of {retrieval.index_size:,} vectors. Extrapolated to {short.rows:,} vectors, the "
            f"recall is {percent(short.recall)} ({interval(short.low, short.high)}), which may be below the required "
            "share: pass the real index (--index) to measure it."
        )


def _map_notes(certificate: Certificate, status: Status) -> Iterator[str]:
    drift = certificate.drift
    if drift.found:
        yield (
            f"The models differ by more than a linear map: a nonlinear map predicts {percent(drift.share)} of the "
            "residual of the best linear map."
        )
    elif status in ("fails", "ambiguous") and certificate.still_rising:
        yield "More paired rows would help: the recall still rises with the number of rows."


def dependence_note(certificate: Certificate) -> str:
    """How rows depend on each other, and what to do."""
    near, found = certificate.duplicates, certificate.dependence
    if near is not None and near.matters:
        return (
            f"{near.rows} of {near.n} rows have near-duplicates. Where these are left out together, the recall falls "
            f"from {percent(near.recall)} to {percent(near.together)}, which is closer to that of new documents. Give "
            "rows that belong together a label as cluster (--cluster)."
        )
    assert found is not None
    if not (found.ordered or found.clustered):
        return (
            f"{len(found.copies)} of {found.n} rows are copies of others; leave them out, or give each set of copies a "
            "label as cluster (--cluster)."
        )
    together = "consecutive rows" if found.ordered else "rows near each other"
    value = found.consecutive if found.ordered else found.neighbours
    return (
        f"The error rises from {percent(found.scattered)} to {percent(value)} of chance where {together} are left out "
        "together. State which rows belong together with cluster (--cluster)."
    )
