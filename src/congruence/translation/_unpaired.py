"""Translation without a row that both models embedded: find the rotation, and say whether it is determined.

Both tables are reduced to their principal directions and scaled to the same size; `_rotation_search` finds the
rotation. No held-out pair can test it. Instead the same search runs on rows without shared structure (three nulls),
and on disjoint halves of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, finite_rows, resolve_device, to_numpy, to_tensor
from congruence.checks import check_choice, check_integers, check_seed
from congruence.errors import InputError
from congruence.files import describe_file
from congruence.maps.groups import Map
from congruence.options import reading
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.rows.devices import full_precision, load_torch
from congruence.tables import Table
from congruence.tables.inputs import paths_of, read_runs
from congruence.translation._options import TranslateOptions
from congruence.translation._rotation_search import (
    Found,
    agreement,
    cluster_means,
    nearest_within,
    permute_columns,
    rearrange,
    search,
)
from congruence.translation._unpaired_verdict import judge_matching
from congruence.translation.result import INSIDE, RowMatching, Translation
from congruence.translation.translator import Translator

DIRECTIONS = 64  # principal directions at most
MATCHED_ROWS = 2000  # of each model: distances are quadratic, so more rows are sampled
LEAST_ROWS = 100  # of each model: each half must have clusters
NULLS: dict[str, Callable[[Float, Float, np.random.Generator], Float]] = {  # of rows, and the means of their clusters
    "permuted": lambda rows, _, rng: permute_columns(rows, rng),
    "rearranged": lambda rows, _, rng: rearrange(rows, rows.mean(0), rng),
    INSIDE: rearrange,
}


def translate_unpaired(old: Any, new: Any, options: TranslateOptions, progress: Progress | None) -> Translation:
    """Map a new model's vectors into the old space although no row was embedded by both; see `translate`."""
    check_choice("normalize", options.normalize, (None, "cosine"))
    check_seed(options.seed)
    check_integers(1, starts=options.starts)
    check_integers(0, splits=options.splits, nulls=options.nulls)
    if options.nulls == 1:
        raise InputError("nulls must be 0 or at least 2 for an unpaired translation; got 1")
    load_torch("unpaired translation")
    tables = read_runs([new, old], ["new", "old"], reading(options))
    device = resolve_device(options.device, *(table.values for table in tables))
    x, y = (_read_rows(table, options.normalize, options.drop_missing) for table in tables)
    step = Steps(progress, 1 + options.nulls * len(NULLS) + options.splits)
    with full_precision():
        matching, translator = _match_rows(x, y, options, device, step)
    translator = replace(translator, columns_new=tables[0].features, columns_old=tables[1].features)
    finding, headlines, notes = judge_matching(matching)
    return Translation(
        translator=translator,
        n_old=len(y),
        n_new=len(x),
        finding=finding,
        headlines=headlines,
        notes=(*notes, *(note for table in tables for note in table.notes)),
        settings={
            "unpaired": True,
            "normalize": options.normalize,
            "starts": options.starts,
            "splits": options.splits,
            "nulls": options.nulls,
            "seed": options.seed,
            "device": device,
            **recorded(map(describe_file, paths_of(tables))),
        },
        matching=matching,
    )


def _read_rows(table: Table, normalize: str | None, drop_missing: bool) -> Float:
    """The rows of one model as float64; rows that are not finite are refused or left out."""
    name = table.name
    rows = to_numpy(as_matrix(table.values, name, finite=not drop_missing)).astype(np.float64)
    rows = rows[finite_rows(rows)] if drop_missing else rows
    if len(rows) < LEAST_ROWS:
        raise InputError(
            f"{name} must have at least {LEAST_ROWS} rows for a translation without pairs; got {len(rows)}"
        )
    if not np.ptp(rows, axis=0).any():
        raise InputError(f"all rows of {name} are equal, so there is nothing to match")
    if normalize is None:
        return np.asarray(rows)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    if not length.all():
        raise InputError(f"{name} has rows that are all zero and so have no direction")
    return np.asarray(rows / length)


@dataclass(frozen=True, eq=False)
class _Cloud:
    """The principal scores of one model's rows, divided by `size` so that their mean square length is 1."""

    mean: Float  # (d,)
    axes: Float  # (d, p), orthonormal columns
    size: float
    scores: Float  # (m, p), of the rows that are matched
    explained: float  # share of the variance along the axes

    def narrowed(self, p: int) -> _Cloud:
        """The same rows along the first p axes."""
        length = np.sqrt(np.square(self.scores[:, :p]).sum(1).mean())
        share = float(np.square(self.scores[:, :p]).sum() / np.square(self.scores).sum())
        return _Cloud(
            self.mean, self.axes[:, :p], self.size * length, self.scores[:, :p] / length, self.explained * share
        )


def _cloud(rows: Float, matched: Array) -> _Cloud:
    unit = np.abs(rows).max()  # squares of large numbers must not overflow
    scaled = rows / unit
    mean = scaled.mean(0)
    centred = scaled - mean
    _, singular, axes = np.linalg.svd(centred if len(rows) <= rows.shape[1] else np.linalg.qr(centred, mode="r"))
    rank = int((singular > singular[0] * max(rows.shape) * np.finfo(np.float64).eps).sum())
    p = min(rank, DIRECTIONS)
    scores = centred[matched] @ axes[:p].T
    size = float(np.sqrt(np.square(scores).sum(1).mean()))
    share = float(np.square(singular[:p]).sum() / np.square(singular).sum())
    return _Cloud(mean * unit, axes[:p].T, size * unit, scores / size, share)


def _match_rows(
    x: Float, y: Float, options: TranslateOptions, device: str, step: Steps
) -> tuple[RowMatching, Translator]:
    rng = np.random.default_rng(options.seed)
    m = min(len(x), len(y), MATCHED_ROWS)  # as many of both, since distances to the nearest depend on the number
    new, old = (_cloud(rows, np.sort(rng.permutation(len(rows))[:m])) for rows in (x, y))
    p = min(new.axes.shape[1], old.axes.shape[1])
    new, old = new.narrowed(p), old.narrowed(p)
    source, target = (_on_device(cloud.scores, device) for cloud in (new, old))
    found = search(source, target, options.starts, rng)
    step("searching for a rotation")
    means = cluster_means(source, rng)
    nulls: dict[str, list[float]] = {kind: [] for kind in NULLS}
    for kind, destroy in NULLS.items():
        for _ in range(options.nulls):
            rows = destroy(new.scores, to_numpy(means).astype(np.float64), rng)
            guess = found.map if kind == INSIDE else None  # the arrangement of clusters is as it was
            nulls[kind].append(search(_on_device(rows, device), target, options.starts, rng, guess).residual)
            step("searching without shared structure")
    halves = []
    for _ in range(options.splits):
        a, b = _fit_halves(source, target, options.starts, rng)
        halves.append((agreement(source, a, b), agreement(source - means, a, b)))
        step("searching on halves")
    matching = RowMatching(
        residual=found.residual,
        same_model=(nearest_within(source) + nearest_within(target)) / 2,
        nulls={kind: tuple(values) for kind, values in nulls.items()},
        agreement=tuple(overall for overall, _ in halves),
        agreement_within=tuple(within for _, within in halves),
        rival=found.rival,
        lead=found.lead,
        rows=m,
        directions=p,
        explained=min(new.explained, old.explained),
    )
    return matching, _translator(new, old, found, options.normalize)


def _on_device(scores: Float, device: str) -> Any:
    return to_tensor(scores.astype(np.float32), device)


def _fit_halves(x: Any, y: Any, starts: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """The rotations of two searches on disjoint halves of both clouds."""
    halves = [np.array_split(rng.permutation(len(rows)), 2) for rows in (x, y)]
    first, second = (search(x[i], y[j], starts, rng).map[:-1] for i, j in zip(*halves, strict=True))
    return first, second


def _translator(new: _Cloud, old: _Cloud, found: Found, normalize: str | None) -> Translator:
    rotation = to_numpy(found.map[:-1]).astype(np.float64)
    matrix = old.size / new.size * (new.axes @ rotation @ old.axes.T)  # (d_new, d_old)
    d_new, d_old = matrix.shape
    width = max(d_new, d_old)
    square = np.zeros((width, width))
    square[:d_new, :d_old] = matrix
    target = old.mean + old.size * (old.axes @ to_numpy(found.map[-1]).astype(np.float64))
    of_new, of_old = (np.pad(mean, (0, width - len(mean))) for mean in (new.mean, target))
    return Translator(Map("linear", square, of_new, of_old, d_new, d_old), normalize, d_new, d_old)
