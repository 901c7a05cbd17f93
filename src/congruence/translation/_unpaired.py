"""Translation without a row that both models embedded. Experimental.

Each model is unmixed on its own, and its components, of unit variance, are matched by their quantile functions: their
distance is Wasserstein's of order 2, up to the sign, which independent components leave open. That can only work where
components differ in shape: not where they are Gaussian, alike or, for the sign, symmetric. Everything is therefore
repeated on halves of the rows, and a component on which two halves do not agree is not trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, finite_rows, to_numpy
from congruence.checks import check_choice, check_integers, check_number, check_seed
from congruence.errors import InputError
from congruence.files import describe_file
from congruence.ica.components import Unmixing, independent_components
from congruence.maps.groups import Map
from congruence.options import reading
from congruence.progress import Progress, Steps
from congruence.result import recorded
from congruence.stats.matching import match
from congruence.tables import Table
from congruence.tables.inputs import paths_of, read_runs
from congruence.translation._options import TranslateOptions
from congruence.translation._verdict import judge_matching
from congruence.translation.result import ComponentMatch, ComponentMatching, Translation
from congruence.translation.translator import Translator

LEVELS = (np.arange(200) + 0.5) / 200  # of the quantile functions
ROWS_PER_COMPONENT = 20  # in every half, so that it can be unmixed
NULLS = 200
FITS = 2.25  # times the sampling error: shapes that differ by more are not those of one component


def translate_unpaired(old: Any, new: Any, options: TranslateOptions, progress: Progress | None) -> Translation:
    """Map a new model's vectors into the old space although no row was embedded by both; see `translate`."""
    check_choice("normalize", options.normalize, (None, "cosine"))
    check_seed(options.seed)
    check_integers(1, components=options.components, splits=options.splits)
    check_number("trust", options.trust, 0, 1, open_low=True)
    check_choice("keep", options.keep, ("trusted", "all"))
    if options.device not in ("auto", "cpu"):
        raise InputError(f"device must be 'auto' or 'cpu' for an unpaired translation; got {options.device!r}")
    normalize, seed = options.normalize, options.seed
    tables = read_runs([new, old], ["new", "old"], reading(options))
    x, y = (_read_rows(table, normalize, options.drop_missing) for table in tables)
    k = min(options.components, x.shape[1], y.shape[1])
    _check_rows(x, y, k)
    rng = np.random.default_rng(seed)
    step = Steps(progress, 1 + options.splits)
    whole = _fit(x, y, k, seed)
    step("matching")
    covariance = np.cov(x, rowvar=False, ddof=0).reshape(x.shape[1], -1)
    halves = []
    for _ in range(options.splits):
        halves.append(_compare_halves(whole, x, y, covariance, rng))
        step("matching halves")
    matches = _judge_components(whole, halves, options.trust, y)
    kept = np.array([match.trusted or options.keep == "all" for match in matches])
    matching = ComponentMatching(
        matches=tuple(matches),
        confidence=float(np.mean([half.overall for half in halves])),
        chance=float(np.quantile(np.mean([half.nulls for half in halves], axis=0), 0.95)),
    )
    finding, headlines, notes = judge_matching(matching)
    return Translation(
        translator=whole.translator(kept, normalize),
        n_old=len(y),
        n_new=len(x),
        finding=finding,
        headlines=headlines,
        notes=(*notes, *(note for table in tables for note in table.notes)),
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


def _read_rows(table: Table, normalize: str | None, drop_missing: bool) -> Float:
    """The rows of one model as float64; rows that are not finite are refused or left out."""
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
                f"{name} must have at least {least} rows for two halves of {k} components; got {len(rows)}: "
                "use more rows or fewer components"
            )


@dataclass(frozen=True, eq=False)
class _ComponentFit:
    """Both models unmixed, and their components matched.

    `signs` has one entry of 1 or -1 in the row and column of every match; `squares` are the squared distances of all
    pairs of quantile functions, for the better sign.
    """

    new: Unmixing
    old: Unmixing
    signs: Float  # (k, k)
    squares: Float  # (k, k)

    def translator(self, kept: Array, normalize: str | None) -> Translator:
        """The map W^T P A^T of centred rows along the old components that are `kept`, shape (k,)."""
        matrix = self.new.unmixing.T @ np.where(kept, self.signs, 0.0) @ self.old.mixing.T
        d_new, d_old = matrix.shape
        width = max(d_new, d_old)
        square = np.zeros((width, width))
        square[:d_new, :d_old] = matrix
        means = [np.pad(one.mean, (0, width - len(one.mean))) for one in (self.new, self.old)]
        return Translator(Map("linear", square, *means), normalize, d_new, d_old)


def _fit(x: Float, y: Float, k: int, seed: int) -> _ComponentFit:
    new, old = (
        independent_components(rows, n_components=k, starts=1, check=False, seed=seed).unmixing for rows in (x, y)
    )
    if new.k != old.k:  # rows of low rank have fewer components
        return _fit(x, y, min(new.k, old.k), seed)
    return _ComponentFit(new, old, *_match_shapes(_quantile_functions(x, new), _quantile_functions(y, old)))


def _match_shapes(new: Float, old: Float) -> tuple[Float, Float]:
    """Match quantile functions (k, levels) one to one by least squares: `signs` and `squares` of `_ComponentFit`."""
    mirrored = -old[:, ::-1]  # of the components with the other sign
    same, flipped = (np.square(new[:, None] - one[None]).mean(2) for one in (old, mirrored))
    squares = np.minimum(same, flipped)
    rows, columns = match(-squares)
    signs = np.zeros(squares.shape)
    signs[rows, columns] = np.where(same <= flipped, 1.0, -1.0)[rows, columns]
    return signs, squares


def _quantile_functions(rows: Float, model: Unmixing) -> Float:
    """The quantile functions of the components of `rows` (n, d), each of mean 0 and mean square 1, shape (k, levels).

    The levels leave out the most extreme rows, which in heavy tails would dominate the variance.
    """
    shapes = np.quantile((rows - model.mean) @ model.unmixing.T, LEVELS, axis=0).T
    shapes -= shapes.mean(1, keepdims=True)
    size = np.sqrt(np.square(shapes).mean(1, keepdims=True))
    return np.asarray(shapes / np.where(size > 0, size, 1.0))


@dataclass(frozen=True, eq=False)
class _HalfAgreement:
    """The correlation of the maps of two halves, over all dimensions and along each old component, and by chance."""

    overall: float
    each: Float  # (k,)
    nulls: Float  # (NULLS,) overall, for random matches
    sampling: Float  # (k_new, k_old) squared distance of shapes that is expected from sampling


def _compare_halves(
    whole: _ComponentFit, x: Float, y: Float, covariance: Float, rng: np.random.Generator
) -> _HalfAgreement:
    """Repeat the fit on two halves of the rows, and correlate the images of the new rows under both maps."""
    orders = [rng.permutation(len(rows)) for rows in (x, y)]
    parts = [(np.sort(o[: len(o) // 2]), np.sort(o[len(o) // 2 :])) for o in orders]
    seeds = rng.integers(2**31, size=2)  # different starts, so that a dependence on them shows as disagreement
    fits = [_fit(x[a], y[b], whole.new.k, int(seed)) for a, b, seed in zip(*parts, seeds, strict=True)]
    # Both maps have the form W^T P A^T: all but the signs P enters through small products.
    between = [[a.new.unmixing @ covariance @ b.new.unmixing.T for b in fits] for a in fits]
    lengths = [[a.old.mixing.T @ b.old.mixing for b in fits] for a in fits]
    onto = [whole.old.unmixing @ fit.old.mixing for fit in fits]

    def correlations(signs: list[Float]) -> tuple[float, Float]:
        """The correlation of both maps over all old dimensions, and along each old component, (k,)."""
        mapped = {(a, b): signs[a].T @ between[a][b] @ signs[b] for a, b in ((0, 1), (0, 0), (1, 1))}
        overall = [np.sum(mapped[a, b] * lengths[a][b]) for a, b in mapped]
        along = [np.einsum("ij,jk,ik->i", onto[a], mapped[a, b], onto[b]) for a, b in mapped]
        return float(_ratio(*overall)), np.asarray(_ratio(*along))

    overall, each = correlations([fit.signs for fit in fits])
    nulls = [correlations([_random_signs(fit.new.k, rng) for fit in fits])[0] for _ in range(NULLS)]
    open_x, open_y = (
        np.square(np.subtract(*(_quantile_functions(rows[half], model) for half in split))).mean(1)
        for rows, split, model in ((x, parts[0], whole.new), (y, parts[1], whole.old))
    )
    # Each half has half of the rows, and both vary: four times the sampling variance of a shape.
    return _HalfAgreement(overall, each, np.array(nulls), (open_x[:, None] + open_y[None]) / 4)


def _random_signs(k: int, rng: np.random.Generator) -> Float:
    return np.asarray(np.eye(k)[rng.permutation(k)] * rng.choice([-1.0, 1.0], size=k))


def _ratio(cross: Any, a: Any, b: Any) -> Any:
    size = np.sqrt(np.maximum(a, 0) * np.maximum(b, 0))
    return np.where(size > 0, cross / np.where(size > 0, size, 1.0), 0.0)


def _judge_components(
    whole: _ComponentFit, halves: list[_HalfAgreement], trust: float, y: Float
) -> list[ComponentMatch]:
    confidence = np.mean([half.each for half in halves], axis=0)
    sampling = np.sqrt(np.mean([half.sampling for half in halves], axis=0))
    shares = np.square(whole.old.mixing).sum(0) / y.var(0).sum()
    distances, partners = np.sqrt(whole.squares), np.abs(whole.signs).argmax(0)
    fits = [bool(distances[i, j] <= FITS * sampling[i, j]) for j, i in enumerate(partners)]
    alike = np.mean(fits) >= 0.5  # otherwise the models have different components, and some match by chance
    return [
        ComponentMatch(
            old=j,
            new=int(i),
            sign=float(whole.signs[i, j]),
            distance=float(distances[i, j]),
            next_best=float(np.delete(distances[:, j], i).min(initial=np.inf)),
            sampling=float(sampling[i, j]),
            confidence=float(confidence[j]),
            share=float(shares[j]),
            fits=fits[j],
            trusted=bool(fits[j] and alike and confidence[j] >= trust),
        )
        for j, i in enumerate(partners)
    ]
