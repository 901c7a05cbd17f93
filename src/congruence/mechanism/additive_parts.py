"""The finest H_2 parts at a point, in any smooth coordinates: from the second fundamental form of what is decoded.

Second derivatives change with the coordinates of the latents by what lies in the image of the Jacobian. What is normal
to that image does not, and vanishes across the parts of any sum of functions, however the latents are bent.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, to_numpy
from congruence.errors import InputError
from congruence.mechanism.disjoint_parts import RANK
from congruence.mechanism.graphs import as_stack
from congruence.mechanism.splitting import Splitting, split
from congruence.mechanism.supports import RTOL

LARGEST = 20  # latents: the algebra has d^2 unknowns and d^4 / 4 equations
TRIES = 3  # elements of the algebra that are drawn
SKEW = 1e6  # condition of the parts taken together, beyond which they are not a direct sum
FEW_FORMS = 2  # forms that always fall apart, into single directions and pairs


def finest_additive(jacobian: Any, hessian: Any, *, rtol: float = RTOL, seed: int = 0) -> Splitting:
    """The finest parts across which the second fundamental form vanishes; unique where nothing is flat.

    If the decoder is a sum of functions of separate latents in some smooth coordinates, these are at least as fine as
    their tangent spaces. Flat directions, along which nothing bends, are not determined by H_2 and are `idle`.

    Parameters
    ----------
    jacobian : (m, d)
    hessian : (m, d, d)
        Second derivatives of each output; symmetric.
    rtol : float
        Of the largest curvature: what counts as zero.
    """
    matrix = as_stack(jacobian)[0]
    second = to_numpy(hessian).astype(np.float64)
    d = matrix.shape[1]
    if second.shape != (len(matrix), d, d):
        raise InputError(f"hessian must have shape {(len(matrix), d, d)}, not {second.shape}")
    if d > LARGEST:
        raise InputError(f"H_2 parts can be found for up to {LARGEST} latents, not {d}")
    back, lost = _frame(matrix)
    forms = _normal_forms(matrix @ back, np.einsum("mab,ak,bl->mkl", second, back, back, optimize=True), rtol)
    flat, bent = _radical(forms, rtol)  # (k, .) each, orthonormal
    inner = np.einsum("fab,ak,bl->fkl", forms, bent, bent, optimize=True)
    pieces = _decomposed(inner, rtol, np.random.default_rng(seed)) if len(inner) else []
    idle = np.linalg.qr(np.concatenate([lost, back @ flat], axis=1))[0]
    notes: tuple[str, ...] = ()
    if 0 < len(forms) <= FEW_FORMS:
        notes = (
            f"With only {len(forms)} independent curvatures, any decoder splits into parts of one or two latents.",
        )
    return split(matrix, [back @ bent @ piece for piece in pieces], idle, notes=notes)


def _frame(matrix: Float) -> tuple[Float, Float]:
    """Directions (d, k) along which the decoder moves orthonormally, and the directions (d, d - k) it loses."""
    lengths = np.linalg.norm(matrix, axis=0)
    lengths[lengths == 0] = 1.0
    _, s, vt = np.linalg.svd(matrix / lengths, full_matrices=len(matrix) < len(lengths))  # all of vt, either way
    rank = int((s > RANK * s[0]).sum()) if s[0] > 0 else 0
    lost: Float = np.linalg.qr(vt[rank:].T / lengths[:, None])[0]
    return vt[:rank].T / s[:rank] / lengths[:, None], lost


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
    kept = s > rtol * s[0]
    forms = np.zeros((int(kept.sum()), k, k))
    forms[:, upper[0], upper[1]] = forms[:, upper[1], upper[0]] = (s[kept] / s[0])[:, None] * vt[kept]
    return forms


def _radical(forms: Float, rtol: float) -> tuple[Float, Float]:
    """Directions on which every form vanishes, and those orthogonal to them."""
    k = forms.shape[1]
    if not len(forms):
        return np.eye(k), np.zeros((k, 0))
    _, s, vt = np.linalg.svd(forms.reshape(-1, k), full_matrices=False)  # k rows or more: all of vt
    rank = int((s > rtol * s[0]).sum())
    return vt[rank:].T, vt[:rank].T


def _decomposed(forms: Float, rtol: float, rng: np.random.Generator) -> list[Float]:
    """The finest subspaces (k, .) with F(U, V) = 0 between any two: eigenspaces of what commutes with all forms.

    X with F X = X^T F for every form are an algebra; a splitting is a projection in it, and the generalised eigenspaces
    of an element drawn at random are as fine as can be.
    """
    algebra = _algebra(forms, rtol)
    best: list[Float] = [np.eye(forms.shape[1])]
    for _ in range(TRIES):
        element = np.tensordot(rng.standard_normal(len(algebra)), algebra, axes=1)
        found = _eigenspaces(element, forms, rtol)
        best = found if len(found) > len(best) else best
    return best


def _algebra(forms: Float, rtol: float) -> Float:
    """A basis (b, k, k) of the matrices X for which every F X is symmetric."""
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
    values, vectors = np.linalg.eig(element)
    for label in _groupings(values):
        spaces = []
        for k in range(label.max() + 1):
            chosen = vectors[:, label == k]
            both = np.concatenate([chosen.real, chosen.imag], axis=1)
            spaces.append(np.linalg.svd(both)[0][:, : chosen.shape[1]])
        if np.linalg.cond(np.concatenate(spaces, axis=1)) < SKEW and _unmixed(spaces, forms, rtol):
            return spaces
    return [np.eye(len(element))]


def _groupings(values: Array) -> list[Array]:
    """Labels of eigenvalues, conjugates together, from all apart to all together, the nearest joined first."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(values) == 1:
        return [np.zeros(1, dtype=int)]
    places = np.column_stack([values.real, np.abs(values.imag)])
    tree = linkage(places, method="single")
    heights = np.concatenate([[0.0], tree[:, 2]])
    scale = float(np.abs(values).max()) or 1.0
    cuts = [max(h, 1e-9 * scale) for h in heights]
    cuts = [cuts[0], *(b for a, b in pairwise(cuts) if b > a)]
    return [fcluster(tree, t=cut, criterion="distance") - 1 for cut in cuts]


def _unmixed(spaces: list[Float], forms: Float, rtol: float) -> bool:
    """Whether the forms vanish between any two spaces, relative to their size within them."""
    basis = np.concatenate(spaces, axis=1)
    owner = np.repeat(np.arange(len(spaces)), [space.shape[1] for space in spaces])
    seen = np.abs(np.einsum("fab,ak,bl->fkl", forms, basis, basis, optimize=True))
    across = seen[:, owner[:, None] != owner[None, :]]
    return bool(across.max(initial=0.0) <= max(1e3 * rtol, 1e-6) * seen.max())
