"""The finest parts of the latent directions at a point, in any basis: of Type D and of Type H_2.

Type D comes from the hat matrix J J^+ of the Jacobian, whose rows are the outputs. Type H_2 comes from the second
fundamental form: second derivatives change with the coordinates of the latents by what lies in the image of the
Jacobian. What is normal to that image does not, and vanishes across the parts of any sum of functions, however the
latents are transformed. Type S is in `_sparsity_gap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.errors import InputError
from congruence.formatting import count
from congruence.mechanism._blocks import Blocks, group_labels, merge_groups
from congruence.mechanism._criteria import RTOL
from congruence.mechanism._matroid import scale_to_unit

MOST_LATENTS = 20  # for H_2: the algebra has d^2 unknowns and d^4 / 4 equations
_RANK = 1e-8  # of the largest singular value, after columns were scaled to length 1
_FAINT = 0.5  # of a dimension: outputs that together hold less are too faint for the tolerance
_TRIES = 3  # elements of the algebra that are drawn
_SKEW = 1e6  # condition number of the parts taken together, beyond which they are not a direct sum
_FEW_FORMS = 2  # forms that always split into single directions and pairs


@dataclass(frozen=True, eq=False)
class Splitting:
    """The latent directions at one point as a direct sum of parts, and of directions that are not determined."""

    parts: tuple[Float, ...]  # each (d, k), orthonormal columns; determined up to `idle`
    idle: Float  # (d, k), may be empty
    shares: Float  # (parts, d): the share of each coordinate's effect that acts through each part
    rows: tuple[Array, ...] = ()  # the outputs of each part, if the parts act on separate ones
    notes: tuple[str, ...] = ()
    forced: bool = False  # any decoder of this size splits at least as finely

    @property
    def dims(self) -> tuple[int, ...]:
        """Dimensions of the parts, from the smallest."""
        return tuple(sorted(part.shape[1] for part in self.parts))

    def partition(self, rtol: float) -> Blocks:
        """Return the finest blocks of coordinates that are sums of parts.

        Two coordinates belong together if both have more than `rtol` of their effect in one part.
        """
        return merge_groups(self.shares.shape[1], (np.flatnonzero(part > rtol) for part in self.shares))


def split(
    jacobian: Float,
    parts: Sequence[Float],
    idle: Float,
    rows: Sequence[Array] = (),
    notes: Sequence[str] = (),
    forced: bool = False,
) -> Splitting:
    """Create a splitting from parts that span all directions together with `idle`; order them by their coordinates.

    The share of coordinate a in part c is |J P_c e_a| / |J e_a|, with P_c the projection onto the part along the
    others: it does not depend on the units of the latents.
    """
    unit = [np.linalg.qr(part)[0] for part in parts]
    inverse = np.linalg.inv(np.concatenate([*unit, idle], axis=1))  # (d, d)
    whole = np.linalg.norm(jacobian, axis=0)
    shares, first = [], 0
    for part in unit:
        projected = jacobian @ part @ inverse[first : first + part.shape[1]]  # (m, d)
        shares.append(np.linalg.norm(projected, axis=0) / np.where(whole > 0, whole, 1.0))
        first += part.shape[1]
    order = sorted(range(len(unit)), key=lambda c: (int(np.argmax(shares[c])), c))
    ordered = np.array([shares[c] for c in order]).reshape(len(unit), len(whole))
    outputs = tuple(rows[c] for c in order) if rows else ()
    return Splitting(tuple(unit[c] for c in order), idle, ordered, outputs, tuple(notes), forced)


def as_jacobians(jacobian: Any) -> Float:
    """Check Jacobians at one point, (m, d), or at several, (r, m, d), and return them as (r, m, d) float64."""
    stack = to_numpy(jacobian).astype(np.float64)
    if stack.ndim == 2:
        stack = stack[None]
    if stack.ndim != 3 or 0 in stack.shape:
        raise InputError(f"jacobian must have shape (m, d) or (r, m, d), with at least one of each; got {stack.shape}")
    if not np.isfinite(stack).all():
        raise InputError("jacobian has NaN or infinite values")
    return stack


def _whiten(jacobian: Float) -> tuple[Float, Float, Float]:
    """Orthonormal outputs (m, k), the directions (d, k) that map to them, and those (d, d - k) that are lost."""
    lengths = np.linalg.norm(jacobian, axis=0)
    lengths[lengths == 0] = 1.0
    u, s, vt = np.linalg.svd(jacobian / lengths, full_matrices=len(jacobian) < len(lengths))  # all of vt, either way
    rank = int((s > _RANK * s[0]).sum()) if s[0] > 0 else 0
    lost = np.linalg.qr(vt[rank:].T / lengths[:, None])[0]
    return u[:, :rank], vt[:rank].T / s[:rank] / lengths[:, None], lost


@dataclass(frozen=True, eq=False)
class HatTree:
    """The hat matrix P = J J^+ of a Jacobian, as its strongest tree of links between outputs.

    P depends on the column space of J alone, so no change of latents alters it. The parts at any tolerance follow from
    the tree.
    """

    jacobian: Float  # (m, d)
    rows: Float  # (m, k) whitened: P is rows @ rows.T
    back: Float  # (d, k): whitened directions as directions of the latents
    idle: Float  # (d, d - k): directions that no output depends on
    ends: Array  # (links, 2) outputs
    weights: Float  # (links,)

    def components(self, rtol: float) -> tuple[Array, ...]:
        """Return the outputs of each component if links up to `rtol` are cut; faint ones are left out."""
        label = _label_linked(self.ends[self.weights > rtol], len(self.rows))
        held = np.bincount(label, weights=np.square(self.rows).sum(1))  # the trace of P: dimensions
        return tuple(np.array(part) for part in group_labels(np.where(held[label] < _FAINT, -1, label)))

    def dims(self, rtol: float) -> tuple[int, ...]:
        """Return the dimensions of the parts at a tolerance, from the smallest."""
        return tuple(sorted(round(float(np.square(self.rows[part]).sum())) for part in self.components(rtol)))

    def splitting(self, rtol: float) -> Splitting:
        """Return the parts at a tolerance: directions that move the outputs of one component and no others."""
        outputs, k = self.components(rtol), self.rows.shape[1]
        spans = [self.rows[part].T @ self.rows[part] for part in outputs]  # (k, k), projections if parts are exact
        sizes = [round(float(np.trace(span))) for span in spans]
        notes = []
        if sum(sizes) != k:
            notes.append("At this tolerance the outputs do not split, so all directions form one part.")
            every = np.sort(np.concatenate(outputs)) if outputs else np.arange(len(self.rows))  # if all are faint
            outputs, sizes, spans = (every,), [k], [np.eye(k)]
        # Eigenvectors from the largest eigenvalue down; the first `size` of them span the part.
        parts = [
            self.back @ np.linalg.eigh(span)[1][:, ::-1][:, :size] for span, size in zip(spans, sizes, strict=True)
        ]
        return split(self.jacobian, parts, self.idle, rows=outputs, notes=notes)


def finest_disjoint(jacobian: Any, *, rtol: float = RTOL) -> Splitting:
    """Find the finest parts of the latent directions that act on disjoint outputs, in any basis; unique and exact.

    Two outputs are linked if the hat matrix J J^+ has an entry for them; the components of that graph are those of the
    linear matroid of the rows of J. The directions that move one component alone are a part. Links up to `rtol` are
    cut: the cosine of two whitened rows, times the shorter's length over the longest's. A Jacobian (m, d) with m <= d
    is uninformative: every invertible square one splits into d parts.
    """
    return hat_tree(as_jacobians(jacobian)[0]).splitting(rtol)


def hat_tree(jacobian: Float) -> HatTree:
    """Whiten the rows of a Jacobian (m, d) and join them to the tree of strongest links; O(m^2 d), memory O(m d)."""
    rows, back, idle = _whiten(jacobian)
    live = np.flatnonzero(np.abs(jacobian).max(axis=1, initial=0.0) > 0)  # of images, mostly a few
    ends, weights = _strongest_tree(rows[live])
    return HatTree(jacobian, rows, back, idle, live[ends], weights)


def _strongest_tree(rows: Float) -> tuple[Array, Float]:
    """The maximum spanning tree of the links between outputs (Prim), a row of the hat matrix at a time."""
    size, unit = np.linalg.norm(rows, axis=1), scale_to_unit(rows, 1)
    size = size / max(float(size.max(initial=0.0)), np.finfo(float).tiny)
    m = len(rows)
    name, best, source = np.arange(m), np.zeros(m), np.zeros(m, dtype=int)
    ends, weights = np.zeros((max(m - 1, 0), 2), dtype=int), np.zeros(max(m - 1, 0))
    for k in range(1, m):  # those before k are in the tree
        link = np.abs(unit[k:] @ unit[k - 1]) * np.minimum(size[k:], size[k - 1])
        better = link > best[k:]
        best[k:][better], source[k:][better] = link[better], name[k - 1]
        j = k + int(np.argmax(best[k:]))
        for array in (unit, size, name, best, source):
            array[[k, j]] = array[[j, k]]
        ends[k - 1], weights[k - 1] = (source[k], name[k]), best[k]
    return ends, weights


def _label_linked(links: Array, m: int) -> Array:
    """The component of each of m outputs in the graph of links (links, 2)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(links)), tuple(links.T)), shape=(m, m))
    return np.asarray(connected_components(graph, directed=False)[1])


def global_components(trees: Sequence[HatTree], rtol: float) -> tuple[Array, ...]:
    """Return the outputs of each component if a link at any point counts; outputs that nothing moves are left out.

    It needs no coordinates: outputs are the same at every point, for any latents.
    """
    label = _label_linked(np.concatenate([tree.ends[tree.weights > rtol] for tree in trees]), len(trees[0].rows))
    acting = np.zeros(len(label), dtype=bool)
    for tree in trees:
        for part in tree.components(rtol):
            acting[part] = True
    return tuple(np.array(part) for part in group_labels(np.where(acting, label, -1)))


def finest_additive(jacobian: Any, hessian: Any, *, rtol: float = RTOL, seed: int = 0) -> Splitting:
    """Find the finest parts across which the second fundamental form vanishes; unique if no direction is flat.

    If the decoder is a sum of functions of separate latents in some smooth coordinates, these are at least as fine as
    their tangent spaces. Flat directions, without curvature, are not determined by H_2 and are `idle`.

    Parameters
    ----------
    jacobian : (m, d)
        Of at most 20 latents.
    hessian : (m, d, d)
        Second derivatives of each output; symmetric.
    rtol : float
        Curvatures up to rtol times the largest count as zero.
    seed : int
        Seed of the elements drawn from the algebra that splits the forms.
    """
    matrix = as_jacobians(jacobian)[0]
    second = to_numpy(hessian).astype(np.float64)
    d = matrix.shape[1]
    if second.shape != (len(matrix), d, d):
        raise InputError(f"hessian must have shape {(len(matrix), d, d)}; got {second.shape}")
    if d > MOST_LATENTS:
        raise InputError(f"jacobian must have at most {MOST_LATENTS} latents for H_2 parts; got {d}")
    _, back, lost = _whiten(matrix)
    forms = _normal_forms(matrix @ back, np.einsum("mab,ak,bl->mkl", second, back, back, optimize=True), rtol)
    flat, curved, pieces = np.eye(back.shape[1]), np.zeros((back.shape[1], 0)), []
    if len(forms):
        _, s, vt = np.linalg.svd(forms.reshape(-1, len(flat)), full_matrices=False)  # k rows or more: all of vt
        rank = int((s > rtol * s[0]).sum())
        flat, curved = vt[rank:].T, vt[:rank].T  # directions on which every form vanishes, and the others
        inner = np.einsum("fab,ak,bl->fkl", forms, curved, curved, optimize=True)
        algebra, rng, pieces = symmetric_algebra(inner, rtol), np.random.default_rng(seed), [np.eye(rank)]
        for _ in range(_TRIES):  # eigenspaces of a random element of the algebra are as fine as possible
            element = np.tensordot(rng.standard_normal(len(algebra)), algebra, axes=1)
            pieces = max(pieces, _eigenspaces(element, inner, rtol), key=len)
    idle = np.linalg.qr(np.concatenate([lost, back @ flat], axis=1))[0]
    notes, few = [], 0 < len(forms) <= _FEW_FORMS
    if few:
        number = count(len(forms), "independent curvature")
        notes.append(f"With only {number}, any decoder splits into parts of one or two latents.")
    return split(matrix, [back @ curved @ piece for piece in pieces], idle, notes=notes, forced=few)


def _normal_forms(tangent: Float, second: Float, rtol: float) -> Float:
    """The curvature normal to the image as few symmetric forms (f, k, k), the largest first, of size 1 at most."""
    k = tangent.shape[1]
    upper = np.triu_indices(k)
    flat = second[:, upper[0], upper[1]]  # (m, k (k + 1) / 2)
    size = float(np.abs(flat).max(initial=0.0))
    normal = flat - tangent @ (tangent.T @ flat)
    normal -= tangent @ (tangent.T @ normal)  # twice: rounding of the first is as large as what is left of a flat map
    _, s, vt = np.linalg.svd(normal, full_matrices=False)
    if not len(s) or s[0] <= rtol * max(size, np.finfo(float).tiny):
        return np.zeros((0, k, k))
    large = s > rtol * s[0]
    forms = np.zeros((int(large.sum()), k, k))
    forms[:, upper[0], upper[1]] = forms[:, upper[1], upper[0]] = (s[large] / s[0])[:, None] * vt[large]
    return forms


def symmetric_algebra(forms: Float, rtol: float) -> Float:
    """Return a basis (b, k, k) of the matrices X for which F X is symmetric for all forms F, (f, k, k).

    They are an algebra, and a projection X in it splits the forms: F(U, V) = 0 between its image and its kernel.
    """
    k = forms.shape[1]
    i, j = np.triu_indices(k, 1)
    equations = np.zeros((len(forms), len(i), k, k))
    at = np.arange(len(i))
    for f, form in enumerate(forms):  # (F X)_ij - (F X)_ji = sum_a F_ia X_aj - F_ja X_ai
        equations[f, at, :, j] += form[i]
        equations[f, at, :, i] -= form[j]
    matrix = equations.reshape(-1, k * k)
    if not len(matrix):
        return np.eye(k * k).reshape(-1, k, k)
    values, vectors = np.linalg.eigh(matrix.T @ matrix)  # (k^2, k^2), far smaller than the equations
    null = vectors[:, np.sqrt(np.maximum(values, 0)) <= max(rtol, 1e-7) * np.sqrt(values[-1])]
    return null.T.reshape(-1, k, k)


def _eigenspaces(element: Float, forms: Float, rtol: float) -> list[Float]:
    """The finest grouping of eigenvalues whose spaces are a direct sum on which the forms do not mix.

    Eigenvalues of a block that cannot be diagonalised are scattered by rounding, so groupings are tried from the finest
    to the coarsest, and the forms decide.
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    values, vectors = np.linalg.eig(element)
    if len(values) == 1:
        return [np.eye(1)]
    # Conjugates together; from all apart to all together, the nearest joined first.
    tree = linkage(np.column_stack([values.real, np.abs(values.imag)]), method="single")
    scale = float(np.abs(values).max()) or 1.0
    for cut in np.unique(np.maximum([0.0, *tree[:, 2]], 1e-9 * scale)):
        label = fcluster(tree, t=cut, criterion="distance") - 1
        spaces = []
        for k in range(label.max() + 1):
            chosen = vectors[:, label == k]
            both = np.concatenate([chosen.real, chosen.imag], axis=1)
            spaces.append(np.linalg.svd(both)[0][:, : chosen.shape[1]])
        basis = np.concatenate(spaces, axis=1)
        if np.linalg.cond(basis) < _SKEW:
            owner = np.repeat(np.arange(len(spaces)), [space.shape[1] for space in spaces])
            seen = np.abs(np.einsum("fab,ak,bl->fkl", forms, basis, basis, optimize=True))
            across = seen[:, owner[:, None] != owner[None, :]].max(initial=0.0)
            if across <= max(1e3 * rtol, 1e-6) * seen.max():
                return spaces
    return [np.eye(len(element))]
