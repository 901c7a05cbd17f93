"""`match_features`: which features of two or more dictionaries are the same, and how many would be by chance?"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, is_tensor, resolve_device, to_numpy
from congruence.checks import check_choice, check_integer, check_number, check_seed
from congruence.errors import InputError
from congruence.features import _matching as matching
from congruence.features._matching import place
from congruence.features._options import MATCHINGS, SIGNS, FeatureOptions
from congruence.features.dictionary import CodeStatistics, Dictionary, read_dictionary, summarise_codes
from congruence.features.feature_match import ROUNDING, FeatureMatch, PairMatch, Split
from congruence.files import ReadFile, describe_file
from congruence.formatting import percent
from congruence.maps.groups import fit_map
from congruence.options import takes
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.stats.matching import match
from congruence.tables.access import unique_names
from congruence.tables.columns import PREFIX
from congruence.tables.inputs import PairedRuns, files_of, gather

FULL = 4096  # features up to which all of them are matched one to one, as published scores do
DISTINCT_ROWS = 4096  # features that come back whose nearest feature of their own dictionary is found
SPLIT_ROWS = 2000  # features without a partner that are tested for being combinations
CROWDED = 0.9  # share of features with a partner that is nearer than their own dictionary, below which a note says so
SHOWN = 12  # matched features, and as many without a partner, whose top rows are kept


@takes(FeatureOptions)
def match_features(*dictionaries: Any, options: FeatureOptions, progress: Progress | None = None) -> FeatureMatch:
    """Match the features of dictionaries (SAE, transcoder, ICA), and count how many come back.

    A feature comes back if it is matched with a feature of the other dictionary, its cosine is at least `similarity`,
    and it is above the chance limit: a cosine that only `level` of the features reach with a null dictionary (rotated
    at random, or drawn with the same covariance). The one-to-one matching maximises the sum of cosines above that limit
    and is exact; features may stay without a partner.

    Parameters
    ----------
    *dictionaries : two or more paths, arrays, ICA estimators or Dictionary objects
        What `read_dictionary` takes. Rows are features, (m, d).
    progress : callable, optional
        Called as progress(what, done, total) while working.
    activations : table, or sequence of tables, optional
        Rows on which codes are computed, (n, d): one table if all dictionaries are in one space, or one for each
        dictionary, paired by id or position. With one for each, a rotation between the spaces is fitted on half of the
        rows, unless `aligned`.

    Returns
    -------
    FeatureMatch
        ``result[name_a, name_b]`` is the match of two dictionaries; `to_frame` has one row per feature of the first.

    References
    ----------
    Paulo & Belrose 2025 (the share of features with a cosine of at least 0.7 in a one-to-one matching).

    Examples
    --------
    >>> import numpy as np
    >>> from congruence.features import match_features
    >>> rng = np.random.default_rng(0)
    >>> a = rng.normal(size=(100, 64))
    >>> b = np.vstack([a[:40] + 0.1 * rng.normal(size=(40, 64)), rng.normal(size=(60, 64))])
    >>> match_features(a, b, aligned=True).share
    0.4
    """
    check_choice("matching", options.matching, MATCHINGS)
    check_choice("signs", options.signs, SIGNS)
    check_number("similarity", options.similarity, 0, 1)
    check_number("level", options.level, 0, 0.5, open_low=True)
    check_number("require", options.require, 0, 1)
    check_integer("nulls", options.nulls, 1)
    check_integer("rows", options.rows, 4)
    check_seed(options.seed)
    read = _read(dictionaries, options)
    unsigned = options.signs == "unsigned" or (options.signs == "auto" and not any(one.signed for one in read))
    tables = options.activations if isinstance(options.activations, tuple | list) else (options.activations,)
    files = [ReadFile.now(one.path) for one in read if one.path is not None] + files_of(*filter(_is_path, tables))
    rows = _activations(options, read)
    device = resolve_device(options.device, *dictionaries)
    placed, rotation = _in_one_space(read, rows, options)
    pairs = list(combinations(range(len(read)), 2))
    steps = Steps(progress, {"matching null dictionaries": 2 * options.nulls * len(pairs), "matching": len(pairs)})
    matched = [_match_pair(placed[i], placed[j], options, unsigned, device, steps, (i, j)) for i, j in pairs]
    codes = _codes(read, matched[0], rows, unsigned) if rows is not None else None
    return FeatureMatch(
        dictionaries=tuple(read),
        pairs=tuple(matched),
        codes=codes,
        labels=None if rows is None or codes is None else _labels(rows, options),
        rotation=rotation,
        notes=tuple(_notes(read, matched, rows, options)),
        settings=_settings(options, files, unsigned),
    )


def _read(dictionaries: Sequence[Any], options: FeatureOptions) -> list[Dictionary]:
    if len(dictionaries) < 2:
        raise InputError(f"match_features takes two or more dictionaries; got {len(dictionaries)}")
    named = [_is_path(one) and not str(one).endswith(".npy") for one in dictionaries]  # whose arrays have names
    read = [
        read_dictionary(one, key=options.key if has or not any(named) else None, transpose=options.transpose)
        for one, has in zip(dictionaries, named, strict=True)
    ]
    names = unique_names([one.name for one in read])
    return [replace(one, name=name) for one, name in zip(read, names, strict=True)]


def _is_path(x: Any) -> bool:
    return isinstance(x, str | os.PathLike)


def _activations(options: FeatureOptions, read: Sequence[Dictionary]) -> PairedRuns | None:
    """The rows of the activations: one matrix for all dictionaries, or one for each, paired."""
    given = options.activations
    if given is None or (isinstance(given, tuple | list) and not given):
        return None
    tables = list(given) if isinstance(given, tuple | list) else [given]
    if len(tables) not in (1, len(read)):
        raise InputError(
            f"activations must be one table, or one for each of {len(read)} dictionaries; got {len(tables)}"
        )
    one = tables * 2 if len(tables) == 1 else tables  # `gather` pairs two or more
    try:
        runs = gather(one, id=options.id, metadata=options.text)
    except InputError:  # the column may have the prefix of metadata, which `_labels` takes into account
        runs = gather(one, id=options.id)
    wide = [int(values.shape[1]) for values in runs.values]
    for dictionary, d in zip(read, wide if len(tables) > 1 else [wide[0]] * len(read), strict=True):
        if dictionary.d != d:
            raise InputError(f"the activations have {d} columns, but {dictionary.name} has features of {dictionary.d}")
    chosen = _sample(np.arange(len(runs.values[0])), options.rows, np.random.default_rng(options.seed))
    picked = (x[chosen.tolist() if is_tensor(x) else chosen] for x in runs.values[: len(tables)])
    taken = [to_numpy(x).astype(np.float32) for x in picked]
    values = taken if len(tables) > 1 else taken * len(read)  # one array for all: `_in_one_space` then fits no rotation
    ids = None if runs.ids is None else runs.ids[chosen]
    labels = {name: column[chosen] for name, column in runs.metadata.items()}
    return replace(runs, values=values, ids=ids, metadata=labels, names=[one.name for one in read])


def _in_one_space(
    read: Sequence[Dictionary], rows: PairedRuns | None, options: FeatureOptions
) -> tuple[list[Dictionary], dict[str, float]]:
    """All features in the space of the first dictionary, and the held-out R² of the rotation from each other space."""
    distinct = rows is not None and any(values is not rows.values[0] for values in rows.values)
    if not distinct or options.aligned:
        wide = {one.d for one in read}
        if len(wide) > 1:
            raise InputError(
                f"the features have {' and '.join(map(str, sorted(wide)))} dimensions, so they are not in one space; "
                "give activations of each model on the same rows (--activations x_a.parquet,x_b.parquet)"
            )
        return list(read), {}
    assert rows is not None
    half, width = len(rows.values[0]) // 2, max(one.d for one in read)
    placed, explained = [replace(read[0], directions=_padded(read[0].directions, width))], {}
    for one, values in zip(read[1:], rows.values[1:], strict=True):
        h = fit_map(values[:half], rows.values[0][:half], "rigid")
        turned = (one.directions.astype(np.float64) @ h.matrix[: one.d]).astype(np.float32)
        placed.append(replace(one, directions=_padded(turned, width)))
        truth = _padded(rows.values[0][half:], h.width)
        spread = float(((truth - truth.mean(0, dtype=np.float64)) ** 2).sum())
        left = float(((truth - h(values[half:]).astype(np.float64)) ** 2).sum())
        explained[one.name] = 1 - left / spread if spread > 0 else math.nan
    return placed, explained


def _padded(x: Array, width: int) -> Array:
    return np.pad(x, ((0, 0), (0, width - x.shape[1])))


def _match_pair(
    a: Dictionary,
    b: Dictionary,
    options: FeatureOptions,
    unsigned: bool,
    device: str,
    steps: Steps,
    where: tuple[int, int],
) -> PairMatch:
    seed = (options.seed, *where)
    null = matching.measure_null(
        a.directions, b.directions, draws=options.nulls, level=options.level, matching=options.matching,
        unsigned=unsigned, device=device, seed=seed, step=steps,
    )  # fmt: skip
    similar = matching.find_similar(place(a.directions, device), place(b.directions, device), null.limit, unsigned)
    one_to_one = matching.match_mutual if options.matching == "mutual" else matching.match_one_to_one
    partner, cosine = one_to_one(similar, null.limit)
    steps(f"matching {a.name} and {b.name}")
    least = max(options.similarity, null.limit)
    lonely = np.flatnonzero(partner < 0), np.setdiff1d(np.arange(len(b.directions)), partner)
    rng = np.random.default_rng((*seed, 1))
    back = _sample(np.flatnonzero(np.nan_to_num(cosine, nan=-2.0) >= least), DISTINCT_ROWS, rng)
    distinct = cosine[back] > matching.nearest_of_own(place(a.directions, device), back, unsigned) + ROUNDING
    full = _full_score(a.directions, b.directions, partner, cosine, similar, unsigned)
    same_size = len(a.directions) == len(b.directions)  # then a best transport is a one-to-one matching
    return PairMatch(
        source=a.name,
        target=b.name,
        partner=partner,
        cosine=cosine,
        nearest=similar.nearest,
        nearest_cosine=similar.cosine,
        back_cosine=similar.back_cosine,
        null=null,
        least=least,
        full=full,
        soft=full if same_size else _soft_score(a.directions, b.directions, partner, cosine, similar, unsigned),
        distinct=float(distinct.mean()) if len(distinct) else math.nan,
        split=_split(a.directions, b.directions, lonely[0], rng, device),
        merged=_split(b.directions, a.directions, lonely[1], rng, device),
        thinned=similar.thinned,
    )


def _full_score(a: Array, b: Array, partner: Array, cosine: Array, similar: Any, unsigned: bool) -> tuple[float, float]:
    """The mean cosine of the best one-to-one matching of all features (PW-MCC), as lower and upper bound.

    Both are the exact value up to `FULL` features. Beyond, the lower bound is a matching that pairs features without a
    partner in their order, and the upper bound lets each feature have its nearest one.
    """
    if max(len(a), len(b)) <= FULL:
        cosines = a @ b.T
        cosines = np.abs(cosines) if unsigned else cosines
        exact = float(cosines[match(cosines)].mean())
        return exact, exact
    free = np.flatnonzero(partner < 0), np.setdiff1d(np.arange(len(b)), partner)
    few = min(map(len, free))
    rest = np.einsum("ij,ij->i", a[free[0][:few]], b[free[1][:few]])
    pairs = min(len(a), len(b))
    low = (np.nansum(cosine) + (np.abs(rest) if unsigned else rest).sum()) / pairs
    high = min(np.sort(side)[-pairs:].mean() for side in (similar.cosine, similar.back_cosine))
    return float(low), float(high)


def _soft_score(a: Array, b: Array, partner: Array, cosine: Array, similar: Any, unsigned: bool) -> tuple[float, float]:
    """The mean cosine of the best transport of uniform weights on a to uniform weights on b, as lower and upper bound.

    Both are the exact value where copies of the features make dictionaries of one size of at most `FULL`. Beyond, the
    lower bound carries matched features together and the rest at random, and the upper bound lets each feature go to
    its nearest one.
    """
    size = math.lcm(len(a), len(b))
    if size <= FULL:
        cosines = np.abs(a @ b.T) if unsigned else a @ b.T
        cosines = cosines.repeat(size // len(a), 0).repeat(size // len(b), 1)
        exact = float(cosines[match(cosines)].mean())
        return exact, exact
    together = min(1 / len(a), 1 / len(b))
    rest = np.full(len(a), 1 / len(a)), np.full(len(b), 1 / len(b))
    matched = np.flatnonzero(partner >= 0)
    rest[0][matched] -= together
    rest[1][partner[matched]] -= together
    mass = max(rest[0].sum(), np.finfo(float).tiny)
    apart = float((rest[0] @ a) @ (rest[1] @ b)) / mass  # the mean cosine of pairs drawn at random from the rest
    low = together * np.nansum(cosine) + (abs(apart) if unsigned else apart)
    return float(low), float(min(similar.cosine.mean(), similar.back_cosine.mean()))


def _split(a: Array, b: Array, lonely: Array, rng: np.random.Generator, device: str) -> Split | None:
    """How many features without a partner are combinations of a few features of the other side; None without any."""
    if not len(lonely) or len(b) < 2:
        return None
    rows = _sample(lonely, SPLIT_ROWS, rng)
    share, chosen = matching.explained_by_few(a[rows], b, device)
    by_chance, _ = matching.explained_by_few(a[rows], matching.draw_null(b, "covariance", rng), device)
    return Split(rows, share, chosen, by_chance)


def _sample(positions: Array, most: int, rng: np.random.Generator) -> Array:
    """At most this many of some positions, in rising order."""
    return positions if len(positions) <= most else np.sort(rng.choice(positions, most, replace=False))


def _codes(read: Sequence[Dictionary], pair: PairMatch, rows: PairedRuns, unsigned: bool) -> CodeStatistics | None:
    """Statistics of codes of the first two dictionaries, on rows that no rotation was fitted on."""
    a, b = read[:2]
    if a.encoder is None or b.encoder is None:
        return None
    half = len(rows.values[0]) // 2 if rows.values[0] is not rows.values[1] else 0
    found = summarise_codes(a, b, rows.values[0][half:], rows.values[1][half:], pair.partner, shown_features(pair))
    top = {feature: at + half for feature, at in found.top.items()}
    correlation = np.abs(found.correlation) if unsigned else found.correlation
    return replace(found, correlation=correlation, top=top)


def shown_features(pair: PairMatch) -> list[int]:
    """The features of the source that a page shows: the best matched ones, and those farthest from any partner."""
    best = np.argsort(-np.where(np.isnan(pair.cosine), -2, pair.cosine), kind="stable")
    matched = [int(i) for i in best[:SHOWN] if pair.partner[i] >= 0]
    lonely = np.flatnonzero(pair.partner < 0)
    far = lonely[np.argsort(pair.nearest_cosine[lonely], kind="stable")][:SHOWN]
    return [*matched, *map(int, far)]


def _labels(rows: PairedRuns, options: FeatureOptions) -> Array | None:
    """What is shown of a row: the column `text`, or its id."""
    if options.text is None:
        return rows.ids
    column = next((name for name in (options.text, PREFIX + options.text) if name in rows.metadata), None)
    if column is None:
        known = ", ".join(rows.metadata) or "none"
        raise InputError(f"text names no metadata column of the activations: {options.text!r}; they have {known}")
    return rows.metadata[column]


def _notes(
    read: Sequence[Dictionary], pairs: Sequence[PairMatch], rows: PairedRuns | None, options: FeatureOptions
) -> list[str]:
    notes = [] if rows is None else list(rows.notes)
    for one in read:
        if one.m < one.size:
            notes.append(f"{one.name}: {one.size - one.m} of {one.size} features are zero and were left out.")
        if rows is not None and one.encoder is None:
            notes.append(f"{one.name}: {one.encoder_note or 'it has no encoder'}, so codes are not compared.")
    if rows is None and not options.aligned:
        notes.append(
            "All dictionaries are taken to be in one space, such as one layer of one model. If each was fitted to its "
            "own model, give activations of each on the same rows (--activations)."
        )
    if len(read) == 2:
        notes.append(
            "The interval is for other features, not for other seeds: give three or more dictionaries for that."
        )
    if any(pair.null.limit > options.similarity for pair in pairs):
        limit = max(pair.null.limit for pair in pairs)
        notes.append(
            f"Unrelated features reach a cosine of {limit:.3f} in so few dimensions, so that is required instead of "
            f"{options.similarity:g}."
        )
    crowded = [pair for pair in pairs if pair.distinct < CROWDED]
    if crowded:
        worst = min(crowded, key=lambda pair: pair.distinct)
        notes.append(
            f"{percent(1 - worst.distinct)} of the features of {worst.source} that come back in {worst.target} are at "
            "least as similar to another feature of their own dictionary. They lie in groups of similar features: the "
            "group comes back, which of its features does is not determined."
        )
    if any(pair.thinned for pair in pairs):
        notes.append("So many pairs are above the chance limit that only the nearest of each feature could be matched.")
    return notes


def _settings(options: FeatureOptions, files: Sequence[ReadFile], unsigned: bool) -> dict[str, Any]:
    keep = ("matching", "similarity", "level", "require", "nulls", "aligned", "seed")
    chosen = {name: getattr(options, name) for name in keep} | {"signs": "unsigned" if unsigned else "signed"}
    return chosen | recorded(map(describe_file, files))
