"""`translate`: carry the vectors of a new model into the space of the old one, and certify what is lost.

A team that replaces its embedding model need not embed everything again if the new model is the old one up to a
map: a few thousand rows embedded by both are enough to fit it, and held-out rows tell what it costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from congruence.align.inputs import gather
from congruence.align.prepared import prepare
from congruence.align.verdict import advice_on_clusters, advice_on_diameter, advice_on_rows, clearly_better, percent
from congruence.arrays import Array, Float, Rows, as_matrix, float64_beside, like, resolve_device, row_chunks, to_numpy
from congruence.errors import InputError, NotInvertibleError
from congruence.maps.groups import Map, fit_group, load_map, read_about
from congruence.maps.nearness import Nearness, Protocol, check_method, measure, protocol
from congruence.maps.pair_bounds import library
from congruence.maps.sums import Paired, PairSums, pair_sums
from congruence.progress import Progress, Steps
from congruence.result import json_text
from congruence.translation.certificate import (
    Certificate,
    check_labels,
    learning_curve,
    measure_drift,
    measure_probe,
    measure_retrieval,
)

CANDIDATES = ("rigid", "similarity", "linear")
EVALUATED_ROWS = 10_000  # retrieval is quadratic: more rows than this are sampled
REQUIRED_RECALL = 0.9
HALF = 65504  # the largest float16
BY_CHANCE = 0.1  # a share of neighbours that random vectors find: from here on recall says too little for a go


@dataclass(frozen=True, eq=False)
class Translator:
    """Carries rows of the new space, shape (n, d_new), into the old one, shape (n, d_old).

    With `normalize="cosine"` rows are put on the unit sphere before and after. numpy in, numpy out; tensors in,
    tensors out on the same device.
    """

    map: Map
    normalize: str | None
    d_new: int
    d_old: int

    def __call__(self, x: Any) -> Any:
        """Translate rows of the new space into the old one."""
        return self._carry(x, self.map, self.d_new, self.d_old)

    def inverse(self, y: Any) -> Any:
        """Translate rows of the old space into the new one; a map that loses information refuses."""
        if self.d_new > self.d_old:
            raise NotInvertibleError(
                f"this map takes {self.d_new} dimensions to {self.d_old}, so it has no inverse; "
                "fit the way back with old and new exchanged"
            )
        return self._carry(y, self.map.inverse(), self.d_old, self.d_new)

    def _carry(self, x: Any, h: Map, width: int, out: int) -> Any:
        x = as_matrix(x, "x", finite=False)
        if x.shape[1] != width:
            raise InputError(f"x has {x.shape[1]} columns, but this map was fitted for {width}")
        matrix, before = h.matrix[:width, :out], h.source_mean[:width]
        dtype = str(x.dtype).removeprefix("torch.")
        single = dtype == "float32" and 1e-30 < np.abs(matrix).max() < 1e30  # else the map is beyond float32
        # Rows minus the rounded mean are exact enough in float32; what rounding the mean left out is added at the end.
        rounded = before.astype(np.float32).astype(np.float64) if single else before
        shift = h.target_mean[:out] - (before - rounded) @ matrix - h.source_mean[width:] @ h.matrix[width:, :out]
        rows = x if single else float64_beside(x, x)
        parts = (like(part, x) if single else float64_beside(part, x) for part in (rounded, matrix, shift))
        mean, matrix, shift = parts
        carried = ((_on_sphere(rows) if self.normalize else rows) - mean) @ matrix + shift
        carried = _on_sphere(carried) if self.normalize else carried
        if dtype == "float16" and abs(carried).max() > HALF:
            raise InputError("translated values are too large for float16; convert x to float32")
        return like(carried, x)

    def save(self, path: str | Path, **about: Any) -> None:
        """Write as safetensors with a JSON header; it loads on any machine with `load_translator`."""
        self.map.save(path, normalize=self.normalize, d_new=self.d_new, d_old=self.d_old, **about)


def load_translator(path: str | Path) -> Translator:
    """Read what `Translator.save` (or ``congruence translate fit --map``) wrote."""
    h, about = load_map(path), read_about(path)
    if not {"normalize", "d_new", "d_old"} <= set(about):
        raise InputError(f"{path} holds a map, but not one made by translate; apply it with load_map")
    widths = [about["d_new"], about["d_old"]]
    if about["normalize"] not in (None, "cosine") or not all(type(d) is int and 0 < d <= h.width for d in widths):
        raise InputError(f"{path} does not hold a translator: its header says {about}")
    return Translator(h, about["normalize"], *widths)


@dataclass(frozen=True, eq=False)
class Translation:
    """A fitted translator with its certificate: what was measured on rows it had not seen.

    `decision` is "go", "no-go" or "unsure", and `verdict` the sentence for people; `candidates` holds the nearness of
    every group that was tried, as shares of the old space's diameter.
    """

    translator: Translator
    group: str
    n: int
    diameter: float
    candidates: dict[str, Nearness] = field(repr=False)
    certificate: Certificate
    decision: str
    verdict: str
    advice: list[str]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The numbers, for JSON."""
        return {
            "group": self.group,
            "n": self.n,
            "d_new": self.translator.d_new,
            "d_old": self.translator.d_old,
            "diameter": self.diameter,
            "groups": {name: near.to_dict() for name, near in self.candidates.items()},
            **asdict(self.certificate),
            "decision": self.decision,
            "verdict": self.verdict,
            "advice": self.advice,
        }

    def to_json(self) -> str:
        """The result as JSON text; undefined numbers are null."""
        return json_text(self.to_dict())

    def save(self, path: str | Path) -> None:
        """Write the translator, with its group and verdict in the header."""
        self.translator.save(path, decision=self.decision, verdict=self.verdict)


def translate(
    old: Any,
    new: Any,
    *,
    group: str = "auto",
    normalize: str | None = None,
    labels: Any = None,
    cluster: Any = None,
    require: float = REQUIRED_RECALL,
    folds: int = 5,
    nulls: int = 5,
    bootstrap: int = 200,
    seed: int = 0,
    device: str = "auto",
    drop_missing: bool = False,
    progress: Progress | None = None,
) -> Translation:
    """Fit the map from a new model's vectors to the old model's, and certify it on held-out rows.

    Parameters
    ----------
    old, new : (n, d_old) and (n, d_new)
        The same things embedded by both models: arrays, paths or tables, paired as by `compare`.
    group : {"auto", "rigid", "similarity", "linear", "permutation", "identity"}
        The kind of map. "auto" takes the smallest of rigid, similarity and linear that no larger one clearly beats on
        held-out rows.
    normalize : {None, "cosine"}
        "cosine" for embeddings compared by their angle: rows are put on the unit sphere before and after.
    labels : (n,) or (n, m), or the name of a metadata column, optional
        What a linear probe trained on old vectors should predict: text or whole numbers are classes, floats are
        regressed.
    cluster, folds, nulls, bootstrap, seed, device, drop_missing, progress
        As for `compare`.
    require : float
        The share of the true 10 nearest neighbours that translated vectors must find for a "go".

    Returns
    -------
    Translation
        `translation.translator(x)` translates; `translation.verdict` says whether to.
    """
    if group not in ("auto", "identity", "permutation", *CANDIDATES):
        raise InputError(f"group must be 'auto', identity, permutation, {', '.join(CANDIDATES)}, not {group!r}")
    check_method(normalize, folds=folds, nulls=nulls, bootstrap=bootstrap, seed=seed)
    if not 0 < require <= 1:
        raise InputError(f"require must be a share above 0 and at most 1, such as 0.9, not {require!r}")
    inputs = gather({"old": old, "new": new}, cluster, drop_missing, labels)
    if inputs.labels is not None:
        check_labels(inputs.labels)
    engine = resolve_device(device, *inputs.values)
    y, x = inputs.rows(engine, normalize)
    plan = protocol(y.n, folds=folds, nulls=nulls, bootstrap=bootstrap, cluster=inputs.cluster, seed=seed)
    target, source = prepare("old", y, plan), prepare("new", x, plan)
    diameter = target.diameter
    step = Steps(progress, 1 + nulls + 4)
    sums = pair_sums(source.sums, target.sums)
    tried = CANDIDATES if group == "auto" else (group,)
    fits = {name: partial(_fit, name) for name in tried}
    near, _ = measure(sums, fits, diameter.value, plan, partial(step, "fitting"))
    chosen = _choose(near, plan)
    translator = Translator(fit_group(sums.outside(None), chosen), normalize, x.d, y.d)
    certificate = _certify(sums, chosen, translator, diameter.value, plan, inputs.labels, step)
    decision, verdict = _decide(near[chosen], certificate, require)
    advice = (
        advice_on_rows(x.n, max(x.d, y.d)),
        advice_on_clusters(plan.unit) if plan.clustered else None,
        advice_on_diameter("old", diameter),
    )
    notes = inputs.notes + [note for note in advice if note]
    settings = {"group": group, "normalize": normalize, "require": require, "folds": len(plan.folds), "seed": seed}
    return Translation(translator, chosen, x.n, diameter.value, near, certificate, decision, verdict, notes, settings)


def _fit(group: str, paired: Paired, fold: int | None) -> Map:
    """The map as it is applied: of wider new vectors, what lies beyond the old dimensions is cut off, and no error."""
    h = fit_group(paired, group)
    return replace(h, matrix=np.where(np.arange(h.width) < paired.target.rows.d, h.matrix, 0.0))


def _choose(near: dict[str, Nearness], plan: Protocol) -> str:
    """The smallest group that no larger one clearly beats on held-out rows."""
    names = list(near)
    for i, name in enumerate(names):
        if not any(clearly_better(near[larger], near[name], plan.unit) for larger in names[i + 1 :]):
            return name
    return names[-1]


def _certify(
    sums: PairSums,
    group: str,
    translator: Translator,
    diameter: float,
    plan: Protocol,
    labels: Array | None,
    step: Callable[[str], None],
) -> Certificate:
    x, y = sums.source.rows, sums.target.rows
    index = np.arange(x.n)
    if x.n > EVALUATED_ROWS:
        index = np.sort(np.random.default_rng(plan.seed).choice(x.n, EVALUATED_ROWS, replace=False))
    old, new = _raw(y, index), _raw(x, index)
    carried = _held_out_translations(sums, group, translator, plan, index)
    retrieval = measure_retrieval(old, carried, new, plan.unit[index], plan)
    step("measuring retrieval")
    probe = None if labels is None else measure_probe(old, carried, new, labels[index], plan.fold_of[index])
    step("training probes")
    curve = learning_curve(x, y, partial(_fit, group), diameter, plan)
    step("learning curve")
    drift = measure_drift(x, y, plan)
    step("looking for drift")
    return Certificate(retrieval=retrieval, probe=probe, curve=curve, drift=drift)


def _held_out_translations(sums: PairSums, group: str, translator: Translator, plan: Protocol, index: Array) -> Float:
    """Every chosen row translated by a map that was fitted without its fold, shape (m, d_old)."""
    x = sums.source.rows
    carried = np.empty((len(index), translator.d_old))
    fold_of = plan.fold_of[index]
    for k in range(len(plan.folds)):
        mine = np.flatnonzero(fold_of == k)
        h = fit_group(sums.outside(k), group)
        for part in row_chunks(len(mine), h.width):
            carried[mine[part]] = h(_raw(x, index[mine[part]]))[:, : translator.d_old]
    return _on_sphere(carried) if translator.normalize else carried


def _raw(rows: Rows, index: Array) -> Float:
    return np.asarray(to_numpy(rows.take(index)) + rows.mean)


def _on_sphere(rows: Any) -> Any:
    largest = library(rows).amax(abs(rows), 1)[:, None]  # first, so that no square can overflow or vanish
    rows = rows / (largest + (largest == 0))
    length = (rows * rows).sum(1)[:, None] ** 0.5
    return rows / (length + (length == 0))


def _decide(near: Nearness, certificate: Certificate, require: float) -> tuple[str, str]:
    """Go if translated vectors surely find enough of the true neighbours, no-go if they surely do not."""
    recall = certificate.retrieval.recall_10
    low, high = (recall.low, recall.high) if np.isfinite(recall.low) else (recall.mean, recall.mean)
    decision = "go" if low >= require else "no-go" if high < require else "unsure"
    few = decision == "go" and certificate.retrieval.chance > BY_CHANCE
    decision = "unsure" if few else decision
    parts = [
        f"on held-out rows, translated vectors find {percent(recall.mean)} ({percent(low)} to {percent(high)}) of the "
        f"10 nearest old vectors; {percent(require)} is required",
        f"the {near.group} map leaves {percent(near.held_out.mean)} of the old diameter",
    ]
    if few:
        chance = percent(certificate.retrieval.chance)
        parts.insert(1, f"with so few rows random vectors find {chance}, too many for a go: pair more than 100 rows")
    probe = certificate.probe
    if probe is not None:
        parts.append(f"a linear probe trained on old vectors scores {probe.after:.3f} instead of {probe.ideal:.3f}")
    if certificate.drift.found:
        parts.append(
            "the models differ by more than a linear map: a nonlinear one predicts "
            f"{percent(certificate.drift.share)} of what is left"
        )
    elif decision != "go" and certificate.still_falling:
        parts.append("more paired rows would help: the error is still falling")
    word = {"go": "Go", "no-go": "No go", "unsure": "Unsure"}[decision]
    return decision, f"{word}: {'; '.join(parts)}."
