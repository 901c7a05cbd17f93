"""The groups of allowed ambiguity, and the least-squares map of each.

From small to large: `identity` (raw difference), `permutation` (signed), `rigid` (rotation or reflection),
`similarity` (rigid and one scale; what Table 1 of the paper calls "rigid"), `ridge` (linear, with a penalty on its
size), `ridge_similarity` (linear, with a penalty on its distance from the best similarity) and `linear` (least
squares). Every group but `identity` includes the translation that matches the means. Each map minimises the squared
error, and the two ridge maps the squared error and the penalty: they are no groups, but where rows are few for their
width they are the linear maps that predict other rows best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import linalg

from congruence.arrays import Float, as_float64_like, as_matrix, like
from congruence.checks import check_choice
from congruence.errors import InputError, NotInvertibleError
from congruence.formatting import number
from congruence.maps._names import FITTED
from congruence.maps._names import GROUPS as GROUPS
from congruence.rows.algebra import multiply
from congruence.rows.engine import Rows
from congruence.rows.sums import PairScatter, sums_of
from congruence.stats.matching import signed_permutation
from congruence.tables import as_paired

_ARRAYS = ("matrix", "source_mean", "target_mean")  # of a saved map
_LEAST, _MOST = 1e-12, 1e4  # penalties of `ridge`, as multiples of the least and the largest eigenvalue of the source
_CAUTION = 0.05  # by how much more than 1 a degree of freedom counts (Cummins, Filloon and Nychka 2001)
_TRIED, _FINER = 4, 8  # penalties for each factor of e, and how much finer they are around the best


@dataclass(frozen=True, eq=False, repr=False)
class Map:
    """The map x -> (x - source_mean) @ matrix + target_mean, a member of `group`.

    It acts on rows of `width` numbers and returns as many. If the rows of the fit were narrower, rows of `d_x` columns
    (of `d_y` for its inverse) are accepted too and zero-padded; any other width is rejected. numpy arrays are mapped
    to numpy arrays, torch tensors to tensors on the same device.
    """

    group: str
    matrix: Float  # (width, width)
    source_mean: Float  # (width,)
    target_mean: Float  # (width,)
    d_x: int | None = None  # columns of the rows it was fitted on; None where they are not known
    d_y: int | None = None

    @property
    def width(self) -> int:
        """The number of columns of its input and its output."""
        return len(self.matrix)

    @property
    def scale(self) -> float:
        """The factor by which the map stretches lengths (root mean square over directions); 1 for a rigid map."""
        return float(linalg.norm(self.matrix) / np.sqrt(self.width))

    def __call__(self, x: Any) -> Any:
        """Map the rows of x, shape (n, width) or (n, d_x), to shape (n, width)."""
        x = as_matrix(x, "x", finite=False)
        d = int(x.shape[1])
        if d > self.width:
            raise InputError(f"x must have at most {self.width} columns, the width of this map; got {d}")
        if self.d_x is not None and d not in (self.d_x, self.width):
            raise InputError(f"x must have {self.d_x} columns, as the rows of the fit; got {d}")
        shift = self.target_mean - self.source_mean[d:] @ self.matrix[d:]  # padded columns are zeros minus the mean
        matrix, mean, shift = (as_float64_like(a, x) for a in (self.matrix[:d], self.source_mean[:d], shift))
        return like((as_float64_like(x, x) - mean) @ matrix + shift, x)

    def inverse(self) -> Map:
        """The inverse map. A linear map of low rank or a similarity of scale 0 has none."""
        if self.group in ("identity", "permutation", "rigid"):
            matrix = self.matrix.T.copy()
        else:
            singular = linalg.svdvals(self.matrix)
            rank = int((singular > singular[0] * self.width * np.finfo(np.float64).eps).sum())
            if rank < self.width:
                raise NotInvertibleError(
                    f"this {self.group} map has rank {rank} of {self.width}, so it has no inverse; "
                    "fit a rigid map, or fit the map from y to x"
                )
            matrix = linalg.inv(self.matrix)
        return Map(self.group, matrix, self.target_mean, self.source_mean, self.d_y, self.d_x)

    def then(self, other: Map) -> Map:
        """The map that applies this one first and `other` second; its group is the larger of the two."""
        if self.width != other.width:
            raise InputError(f"other must be a map of width {self.width}, like this one; got width {other.width}")
        group = max(self.group, other.group, key=FITTED.index)
        target_mean = (self.target_mean - other.source_mean) @ other.matrix + other.target_mean
        return Map(group, self.matrix @ other.matrix, self.source_mean, target_mean, self.d_x, other.d_y)

    def save(self, path: str | Path, **about: Any) -> None:
        """Write the map as safetensors, with its group and `about` as JSON in the header, for `congruence.load`."""
        write_map(path, "map", self, about)

    def __repr__(self) -> str:
        return f"<Map {self.group}, width {self.width}, scale {number(self.scale)}>"


def write_map(
    path: str | Path, kind: str, h: Map, about: Mapping[str, Any], further: Mapping[str, Float] | None = None
) -> None:
    """Write a map, header entries `about` and `further` arrays as a file of this kind."""
    from congruence._saved import write_saved

    arrays = {name: getattr(h, name) for name in _ARRAYS} | dict(further or {})
    write_saved(path, kind, {"group": h.group, "d_x": h.d_x, "d_y": h.d_y, "about": dict(about)}, arrays)


def load_map(path: str | Path) -> Map:
    """Read a map written by `Map.save`; it loads on any machine and nothing in it is executed."""
    return read_map(path, "map")[0]


def read_map(
    path: str | Path, kind: str, further: tuple[str, ...] = ()
) -> tuple[Map, dict[str, Any], dict[str, Float]]:
    """Read a file written by `write_map`: the map, `about` and the further arrays, if it has all of them.

    Version 0.1.0 gave every file the kind "map".
    """
    from congruence._saved import read_saved

    header, found = read_saved(path, _ARRAYS, kinds=(kind, "map"), what=f"a {kind}", optional=further)
    arrays = {name: found[name] for name in _ARRAYS}
    if header.get("group") not in FITTED:
        raise InputError(f"{path} does not hold a map: its group is {header.get('group')!r}")
    width = arrays["source_mean"].size
    shapes = [array.shape for array in arrays.values()]
    if shapes != [(width, width), (width,), (width,)] or any(a.dtype != np.float64 for a in arrays.values()):
        raise InputError(f"{path} does not hold a map: its arrays have shapes {shapes}")
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise InputError(f"{path} does not hold a map: it has NaN or infinite values")
    columns = header.get("d_x"), header.get("d_y")  # None in files of version 0.1.0
    if any(d is not None and not (type(d) is int and 0 < d <= width) for d in columns):
        raise InputError(f"{path} does not hold a map: it is of width {width}, between rows of {columns} columns")
    about = header.get("about")
    more = {name: found[name] for name in further} if set(further) <= found.keys() else {}
    return (
        Map(header["group"], **arrays, d_x=columns[0], d_y=columns[1]),
        about if isinstance(about, dict) else {},
        more,
    )


def fit_map(x: Any, y: Any, group: str = "similarity") -> Map:
    """Fit the map of `group` that carries the rows of x onto the rows of y with the least squared error.

    Where the data do not determine the map (dead units, low rank, fewer rows than dimensions), `linear` takes the
    solution of minimum norm, and `rigid` and `similarity` take the rotation nearest to the identity. `ridge` minimises
    |(x - mean) B - (y - mean)|^2 + penalty |B|^2, with the penalty that minimises the generalised cross-validation
    score; it is invariant to rotations of x and of y and to the scale of each. `ridge_similarity` penalises |B - sQ|^2
    instead, with sQ the best similarity.

    Parameters
    ----------
    x, y : (n, d_x) and (n, d_y)
        Paired rows, anything that `congruence.tables.as_table` takes: arrays are paired by position, tables and data
        frames joined by id. The narrower one is zero-padded.
    group : str
        One of `GROUPS`, or "ridge_similarity".

    Returns
    -------
    Map
        Callable, with `inverse`, `then` and `save`.

    References
    ----------
    Schönemann 1966 (rigid); Umeyama 1991 (similarity); Golub, Heath and Wahba 1979, eq. 2.3 (ridge).

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> h = fit_map(x, 2 * x[:, ::-1] + 1)
    >>> h
    <Map similarity, width 2, scale 2.00>
    >>> bool(np.allclose(h.inverse()(h(x)), x))
    True
    """
    check_choice("group", group, FITTED)
    x, y = as_paired(x, y)
    return fit_group(sums_of(Rows(x), Rows(y)), group)


def fit_group(paired: PairScatter, group: str) -> Map:
    """Fit the map of `group` from the sums of paired rows."""
    width = paired.width
    if group == "identity":
        return Map(group, np.eye(width), np.zeros(width), np.zeros(width), *paired.cross.shape)
    if group == "permutation":
        matrix = signed_permutation(paired.padded)
    elif group in ("rigid", "similarity"):
        matrix = _similarity(paired) if group == "similarity" else paired.rotation
    else:
        d_x, d_y = paired.cross.shape
        matrix = np.zeros((width, width))
        if group == "linear":
            matrix[:d_x, :d_y] = paired.source.solve(paired.cross)  # least squares of minimum norm
        else:
            centre = np.zeros((d_x, d_y)) if group == "ridge" else _similarity(paired)[:d_x, :d_y]
            matrix[:d_x, :d_y] = _ridge(paired, centre)
    return centred_map(paired, group, matrix)


def _similarity(paired: PairScatter) -> Float:
    """The rotation times the best scale, shape (width, width)."""
    size = paired.source.size
    return (
        paired.rotation * (paired.nuclear_norm / size) if size > 0 else paired.rotation
    )  # a constant fits at every scale


def _ridge(paired: PairScatter, centre: Float) -> Float:
    """The matrix B that minimises |xB - y|^2 + penalty |B - centre|^2 over centred rows, shape (d_x, d_y).

    In the principal axes of the source, of eigenvalues l and with g the cross product of x and y - x centre,
    B = centre + g / (l + penalty). All that the score needs is the norm of each row of g, so a penalty costs a sum over
    the axes.
    """
    axes, singular = paired.source.axes
    if not len(singular):
        return centre
    size = singular**2  # falling
    onto = multiply(axes.T, paired.cross)
    cross = onto - size[:, None] * multiply(axes.T, centre)  # (r, d_y)
    explained = np.square(cross / singular[:, None]).sum(1)  # by each axis, without a penalty; no square overflows
    spare = max(paired.source.n - 1 - len(size), 0)  # degrees of freedom of the residual
    rest = 0.0
    if spare:  # what the source does not explain is the same for every centre
        of_zero = np.square(onto / singular[:, None]).sum()
        rest = max(np.trace(paired.target.scatter) - of_zero, 0.0)

    def score(log_penalty: Float) -> Float:
        """Generalised cross-validation, RSS / (1 - 1.05 df / n)^2 up to a constant.

        With as many rows as dimensions, the score without that factor may have its minimum at a map through all rows.
        """
        penalty = np.exp(log_penalty)[:, None]
        shrunk = penalty / (size + penalty)  # (penalties, r)
        free = spare + shrunk.sum(1) - _CAUTION * (1 - shrunk).sum(1)
        with np.errstate(divide="ignore"):
            return np.where(free > 0, (rest + np.square(shrunk) @ explained) / np.square(free), np.inf)

    # On a grid that starts at the largest eigenvalue, the choice does not depend on the last digits of the sums.
    high, span = np.log(_MOST * size[0]), np.log(_MOST * size[0]) - np.log(_LEAST * size[-1])
    tried = high - np.arange(int(_TRIED * span) + 2) / _TRIED
    closer = tried[score(tried).argmin()] + np.arange(-_FINER, _FINER + 1) / (_FINER * _TRIED)
    penalty = np.exp(closer[score(closer).argmin()])
    return centre + multiply(axes, cross / (size + penalty)[:, None])


def centred_map(paired: PairScatter, group: str, matrix: Float) -> Map:
    """The map with the given matrix that carries the mean of the source onto the mean of the target."""
    source, target = (
        np.pad(s.rows.mean + s.mean, (0, paired.width - s.rows.d)) for s in (paired.source, paired.target)
    )
    return Map(group, matrix, source, target, *paired.cross.shape)
