"""Translation with no row that both models embedded. Experimental.

Each model is unmixed on its own, and its components are matched by the shapes of their distributions. That can only
work where components differ in shape: not where they are Gaussian, alike or, for the sign, symmetric. Everything is
therefore repeated on halves of the rows, and what two halves do not agree on is not trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, finite_rows, to_numpy
from congruence.errors import InputError
from congruence.files import describe_file
from congruence.ica.components import Unmixing, independent_components
from congruence.maps.groups import Map
from congruence.options import reading
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.tables import Table
from congruence.tables.inputs import paths_of, read_runs
from congruence.translation._options import TranslateOptions
from congruence.translation._verdict import judge_matching
from congruence.translation.marginals import Matching, half_squares, match_shapes, quantile_functions
from congruence.translation.result import ComponentMatch, ComponentMatching, Translation
from congruence.translation.translator import Translator

ROWS_PER_COMPONENT = 20  # in every half, so that it can be unmixed at all
NULLS = 200
FITS = 2.25  # times what sampling leaves open: shapes that differ by more are not those of one component


def translate_unpaired(old: Any, new: Any, options: TranslateOptions, progress: Progress | None) -> Translation:
    """Map a new model's vectors into the old space although no row was embedded by both; see `translate`."""
    _check(options)
    normalize, seed = options.normalize, options.seed
    tables = read_runs([new, old], ["new", "old"], reading(options))
    x, y = (_rows(table, normalize, options.drop_missing) for table in tables)
    k = min(options.components, x.shape[1], y.shape[1])
    _check_rows(x, y, k)
    rng = np.random.default_rng(seed)
    step = Steps(progress, 1 + options.splits)
    whole = _fit(x, y, k, seed)
    step("matching")
    spread = np.cov(x, rowvar=False, ddof=0).reshape(x.shape[1], -1)
    agreed = []
    for _ in range(options.splits):
        agreed.append(_agreement(whole, x, y, spread, rng))
        step("matching halves")
    matches = _matches(whole, agreed, options.trust, y)
    carried = whole.matrix(np.array([match.trusted or options.keep == "all" for match in matches]))
    matching = ComponentMatching(
        matches=tuple(matches),
        confidence=float(np.mean([one.overall for one in agreed])),
        chance=float(np.quantile(np.mean([one.nulls for one in agreed], axis=0), 0.95)),
    )
    verdict = judge_matching(matching)
    return Translation(
        translator=_translator(whole, carried, normalize),
        n_old=len(y),
        n_new=len(x),
        finding=verdict.finding,
        headlines=verdict.headlines,
        notes=(*verdict.notes, *(note for table in tables for note in table.notes)),
        settings={
            "unpaired": True,
            "components": len(matches),
            "normalize": normalize,
            "splits": options.splits,
            "trust": options.trust,
            "keep": options.keep,
            "seed": seed,
            "device": "cpu",
            **recorded(map(describe_file, paths_of(tables))),
        },
        matching=matching,
    )


def _check(options: TranslateOptions) -> None:
    for name in ("components", "splits"):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
    if not isinstance(options.trust, int | float | np.number) or not 0 < options.trust <= 1:
        raise InputError(f"trust must be above 0 and at most 1, such as 0.9, not {options.trust!r}")
    if options.keep not in ("trusted", "all"):
        raise InputError(f"keep must be 'trusted' or 'all', not {options.keep!r}")
    if options.device not in ("auto", "cpu"):
        raise InputError(f"unpaired translation runs on the CPU; leave device out, not {options.device!r}")


def _rows(table: Table, normalize: str | None, drop_missing: bool) -> Float:
    """The rows of one model as float64; those that are not finite are refused or left out."""
    name = table.name
    rows = to_numpy(as_matrix(table.values, name, finite=not drop_missing)).astype(np.float64)
    rows = rows[finite_rows(rows)] if drop_missing else rows
    if normalize is None:
        return np.asarray(rows)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    if not length.all():
        raise InputError(f"{name} has rows that are all zero and so have no direction")
    return np.asarray(rows / length)


def _check_rows(x: Float, y: Float, k: int) -> None:
    least = 2 * ROWS_PER_COMPONENT * k
    for name, rows in (("new", x), ("old", y)):
        if len(rows) and not np.ptp(rows, axis=0).any():
            raise InputError(f"all rows of {name} are equal, so there are no components to match")
        if len(rows) < least:
            raise InputError(
                f"{name} has {len(rows)} rows, but halves of {k} components take at least {least}; "
                "give more rows or ask for fewer components"
            )


@dataclass(frozen=True, eq=False)
class _Fit:
    """Both models unmixed, and their components matched."""

    new: Unmixing
    old: Unmixing
    matching: Matching

    def matrix(self, kept: Array) -> Float:
        """The matrix W^T P A^T that carries centred rows over along some old components (k,), shape (d_new, d_old)."""
        signs = np.where(kept, self.matching.signs, 0.0)
        return np.asarray(self.new.unmixing.T @ signs @ self.old.mixing.T)


def _fit(x: Float, y: Float, k: int, seed: int) -> _Fit:
    new, old = (independent_components(rows, n_components=k, starts=1, seed=seed).unmixing for rows in (x, y))
    if new.k != old.k:  # rows of low rank have fewer
        return _fit(x, y, min(new.k, old.k), seed)
    return _Fit(new, old, match_shapes(quantile_functions(x, new), quantile_functions(y, old)))


@dataclass(frozen=True, eq=False)
class _Agreement:
    """How far two halves agree: on what is carried over in all, on each old component, and by chance."""

    overall: float
    each: Float  # (k,)
    nulls: Float  # (NULLS,)
    sampling: Float  # (k_new, k_old) squared distance of shapes that the number of rows leaves open


def _agreement(whole: _Fit, x: Float, y: Float, spread: Float, rng: np.random.Generator) -> _Agreement:
    """Do everything on two halves, and correlate what their maps make of the new rows."""
    halves = [_halves(len(rows), rng) for rows in (x, y)]
    seeds = rng.integers(2**31, size=2)  # of other starts, for what depends on them is not to be trusted either
    fits = [_fit(x[a], y[b], whole.new.k, int(seed)) for a, b, seed in zip(*halves, seeds, strict=True)]
    halved = _Halved.of(fits, spread, whole.old)
    overall, each = halved.correlations([fit.matching.signs for fit in fits])
    nulls = [halved.correlations([_random_signs(fit.new.k, rng) for fit in fits])[0] for _ in range(NULLS)]
    left_open = half_squares(x, halves[0], whole.new)[:, None] + half_squares(y, halves[1], whole.old)[None]
    return _Agreement(overall, each, np.array(nulls), left_open / 4)


def _halves(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    order = rng.permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


def _random_signs(k: int, rng: np.random.Generator) -> Float:
    return np.asarray(np.eye(k)[rng.permutation(k)] * rng.choice([-1.0, 1.0], size=k))


@dataclass(frozen=True, eq=False)
class _Halved:
    """What two fits, of matrices W^T P A^T, make of the same rows: small products, and any signs P fit into them."""

    between: list[list[Float]]  # covariance of the new components of either fit, (k, k) each
    lengths: list[list[Float]]  # products of the old mixings of either fit, (k, k) each
    onto: list[Float]  # the old components of either fit in those of all rows, (k, k) each

    @staticmethod
    def of(fits: list[_Fit], spread: Float, old: Unmixing) -> _Halved:
        return _Halved(
            between=[[a.new.unmixing @ spread @ b.new.unmixing.T for b in fits] for a in fits],
            lengths=[[a.old.mixing.T @ b.old.mixing for b in fits] for a in fits],
            onto=[old.unmixing @ fit.old.mixing for fit in fits],
        )

    def correlations(self, signs: list[Float]) -> tuple[float, Float]:
        """The correlation of what both carry over: over all old dimensions, and along each old component, (k,).

        From -1 to 1: 1 where both maps do the same, about 0 where they have nothing to do with each other.
        """
        carried = {(a, b): signs[a].T @ self.between[a][b] @ signs[b] for a, b in ((0, 1), (0, 0), (1, 1))}
        overall = [np.sum(carried[a, b] * self.lengths[a][b]) for a, b in carried]
        along = [np.einsum("ij,jk,ik->i", self.onto[a], carried[a, b], self.onto[b]) for a, b in carried]
        return float(_ratio(*overall)), np.asarray(_ratio(*along))


def _ratio(cross: Any, a: Any, b: Any) -> Any:
    size = np.sqrt(np.maximum(a, 0) * np.maximum(b, 0))
    return np.where(size > 0, cross / np.where(size > 0, size, 1.0), 0.0)


def _matches(whole: _Fit, agreed: list[_Agreement], trust: float, y: Float) -> list[ComponentMatch]:
    confidence = np.mean([one.each for one in agreed], axis=0)
    sampling = np.sqrt(np.mean([one.sampling for one in agreed], axis=0))
    shares = np.square(whole.old.mixing).sum(0) / y.var(0).sum()
    found = []
    for j in range(whole.old.k):
        i, sign, distance, next_best = whole.matching.of_old(j)
        found.append((j, i, sign, distance, next_best, float(sampling[i, j]), float(confidence[j]), float(shares[j])))
    fits = [distance <= FITS * open_ for _, _, _, distance, _, open_, _, _ in found]
    alike = np.mean(fits) >= 0.5  # else the models are made of other components, and some are alike by accident
    return [
        ComponentMatch(*one, fits=fit, trusted=bool(fit and alike and one[6] >= trust))
        for one, fit in zip(found, fits, strict=True)
    ]


def _translator(whole: _Fit, carried: Float, normalize: str | None) -> Translator:
    d_new, d_old = carried.shape
    width = max(d_new, d_old)
    matrix = np.zeros((width, width))
    matrix[:d_new, :d_old] = carried
    means = [np.pad(found.mean, (0, width - len(found.mean))) for found in (whole.new, whole.old)]
    return Translator(Map("linear", matrix, *means), normalize, d_new, d_old)
