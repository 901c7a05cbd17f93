"""Find the rotation that aligns one set of rows with another, without pairs of rows.

Rows are tensors of the same width, centred, of unit mean square length. Both clouds are clustered several times. Each
start matches the centres of one clustering of each cloud by their inner products (a quadratic assignment problem) and
takes the rotation and shift of the matched centres. It is refined by matching every centre, of all clusterings, with
its nearest centres of the other cloud, in both directions, and fitting again; the best maps are refined on the rows
in the same way. The objective has many local minima, so there are rounds of starts, each on a sample of the rows,
until the two best rounds agree; the map with the smallest two-way residual is kept. In the spirit of mini-vec2vec (Dar
2025), with centres in the place of relative codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import quadratic_assignment

from congruence.arrays import Array, Float

CENTRES, CLUSTERINGS, LLOYD = 20, 8, 10  # centres of a clustering, clusterings of a cloud, iterations of k-means
NEIGHBOURS = 5  # rows that a row is matched with
ROUND, SAMPLED = 64, 500  # starts of a round, and rows of each cloud that it searches on
TRIED, TRIAL, KEPT = 3, 8, 4  # clusterings and iterations to try starts with, and the number of maps that is kept
STEPS, POLISHING = 40, 20  # iterations on all centres, and on the rows
REFLECTED = 8  # leading directions of the best map that are reflected in turn: a better map, or a rival if symmetric
DIFFERENT = 0.8  # R²: maps that agree less are different
CONVERGED = 2e-3  # change of a rotation in one step, root mean square over its columns


@dataclass(frozen=True, eq=False)
class Found:
    """The best map of a search, and the best one that is different.

    `lead` is the difference of their residuals in standard errors over rows; infinite where there is no other map.
    """

    map: Any  # (p + 1, p), the shift as last row, on the device of the rows
    residual: float
    rival: float
    lead: float


def search(x: Any, y: Any, starts: int, rng: np.random.Generator, guess: Any = None) -> Found:
    """Find the rotation q and the shift t with the smallest two-way residual of x @ q + t, (n, p), and y, (m, p).

    The shift is small, but the means of two samples differ by more than rows differ from their nearest ones. A guess
    of the map counts as a round of starts.
    """
    import torch

    rounds: list[Any] = [] if guess is None else [_refine(x, y, guess[None], POLISHING)]
    for start in range(0, starts, ROUND):
        some_x, some_y = (rows[rng.permutation(len(rows))[:SAMPLED]] for rows in (x, y))
        found = _round(some_x, some_y, min(ROUND, starts - start), rng)
        rounds.append(found[_residuals(x, y, found).argsort()])
        best = torch.stack([one[0] for one in rounds])
        best = best[_residuals(x, y, best).argsort()]
        if len(best) > 1 and not _different(x, best[:2]):
            break
    q = torch.cat([*rounds, _refine(some_x, some_y, _reflect(best[0]), TRIAL)])
    q = q[_residuals(x, y, q).argsort()]
    return _judge_rivals(x, y, _refine(x, y, q[[0, *_different(x, q)[:2]]], POLISHING))


def _reflect(q: Any) -> Any:
    """The map q, (p + 1, p), after a reflection of each of the leading directions in turn."""
    import torch

    reflected = q.repeat(min(REFLECTED, q.shape[1]), 1, 1)
    reflected[:, :-1] *= torch.ones(reflected.shape[::2], device=q.device).fill_diagonal_(-1.0)[:, :, None]
    return reflected


def _round(x: Any, y: Any, starts: int, rng: np.random.Generator) -> Any:
    """The best map from some starts, and up to two different ones, refined on the rows."""
    a, b = (_cluster(rows, CLUSTERINGS, rng) for rows in (x, y))
    q = _start(a, b, starts, rng)
    some_a, some_b, a, b = (one.flatten(0, 1) for one in (a[:TRIED], b[:TRIED], a, b))
    q = _refine(some_a, some_b, q, TRIAL)
    q = _refine(a, b, q[_residuals(some_a, some_b, q).argsort()[:KEPT]], STEPS)
    q = q[_residuals(a, b, q).argsort()]
    return _refine(x, y, q[[0, *_different(x, q)[:2]]], POLISHING)


def _judge_rivals(x: Any, y: Any, q: Any) -> Found:
    """Sort polished maps by their residual, and compare the best with the best of the different ones."""
    distances = [_nearest(x, y, one) for one in q]
    residuals = [float(a.mean() + b.mean()) / 2 for a, b in distances]
    order = np.argsort(residuals)
    best, others = int(order[0]), _different(x, q[order.tolist()])
    if not others:
        return Found(q[best], residuals[best], np.nan, np.inf)
    rival = int(order[others[0]])
    gaps = [np.asarray((b - a).cpu()) for a, b in zip(distances[best], distances[rival], strict=True)]
    error = np.sqrt(sum(gap.var() / len(gap) for gap in gaps)) / 2
    gap = residuals[rival] - residuals[best]
    lead = float(gap / error) if error > 0 else 0.0
    return Found(q[best], residuals[best], residuals[rival], lead)


def agreement(x: Any, a: Any, b: Any) -> float:
    """The R² of x @ a and x @ b: 1 where two rotations do the same to the rows, about -1 where they are unrelated."""
    return float(1 - (x @ a - x @ b).square().sum() / x.square().sum())


def cluster_means(x: Any, rng: np.random.Generator) -> Any:
    """The mean of the cluster of each row, shape (n, p); clusters have at least 10 rows on average."""
    import torch

    centres = _cluster(x, 1, rng, min(CENTRES, len(x) // 10))[0]
    member = torch.nn.functional.one_hot(torch.cdist(x, centres).argmin(1), len(centres)).to(x.dtype)
    return member @ ((member.T @ x) / member.sum(0).clamp(min=1)[:, None])


def nearest_within(x: Any) -> float:
    """The mean distance of a row to the nearest other row of its own cloud."""
    import torch

    distances = torch.cdist(x, x)
    return float(distances.fill_diagonal_(torch.inf).min(1).values.mean())


def _different(x: Any, q: Any) -> list[int]:
    """The indices of the maps that differ from the first."""
    return [i for i in range(1, len(q)) if agreement(x, q[0, :-1], q[i, :-1]) < DIFFERENT]


def _start(a: Any, b: Any, starts: int, rng: np.random.Generator) -> Any:
    """One map per start, shape (starts, p + 1, p), from clusterings (count, k, p) of both clouds."""
    import torch

    pairs = [(a[i], b[j]) for i, j in rng.integers(len(a), size=(starts, 2))]
    return _fit(
        *(torch.stack(side) for side in zip(*((a, b[_match_centres(a, b, rng)]) for a, b in pairs), strict=True))
    )


def _cluster(x: Any, count: int, rng: np.random.Generator, k: int = CENTRES) -> Any:
    """k-means centres of `count` clusterings, each from rows of its own, shape (count, k, p)."""
    import torch

    centres = x[np.stack([rng.permutation(len(x))[:k] for _ in range(count)])]
    for _ in range(LLOYD):
        member = torch.nn.functional.one_hot(torch.cdist(x, centres).argmin(2), k).to(x.dtype)  # (count, n, k)
        size = member.sum(1)[..., None]
        centres = torch.where(size > 0, member.mT @ x / size.clamp(min=1), centres)
    return centres


def _match_centres(a: Any, b: Any, rng: np.random.Generator) -> Array:
    """The order of the rows of b in which their inner products are most like those of a."""
    a, b = (one @ one.T for one in (np.asarray(centres.cpu(), dtype=np.float64) for centres in (a, b)))
    rough = quadratic_assignment(a, b, method="faq", options={"maximize": True, "rng": rng, "P0": "randomized"})
    return swap_pairs(a, b, np.asarray(rough.col_ind))


def swap_pairs(a: Float, b: Float, order: Array) -> Array:
    """Exchange two entries of the order while that increases the sum of a * b[order][:, order], both symmetric.

    The same local optimum as of `scipy.optimize.quadratic_assignment(method="2opt")`, with all gains from one product.
    """
    order = order.copy()
    while True:
        p = b[np.ix_(order, order)]
        (da, dp), cross = (np.diag(one)[:, None] for one in (a, p)), a @ p
        own = np.diag(cross)[:, None]
        apart = (da - a) * (p - dp)  # of the rows that are exchanged themselves
        gain = (da - da.T) * (dp.T - dp) + 2 * (cross + cross.T - own - own.T - apart - apart.T)
        best = np.unravel_index(gain.argmax(), gain.shape)
        if gain[best] <= 1e-9 * np.abs(a * p).sum():
            return order
        order[list(best)] = order[list(best[::-1])]


def _fit(x: Any, y: Any) -> Any:
    """The rotations, with the shift as last row, of x @ q + t = y by least squares: (s, n, p) to (s, p + 1, p)."""
    import torch

    mean_x, mean_y = x.mean(1, keepdim=True), y.mean(1, keepdim=True)
    u, _, vt = torch.linalg.svd(((x - mean_x).mT @ (y - mean_y)).double())
    q = (u @ vt).to(x.dtype)
    return torch.cat([q, mean_y - mean_x @ q], 1)


def _apply(x: Any, q: Any) -> Any:
    return x @ q[..., :-1, :] + q[..., -1:, :]


def _refine(x: Any, y: Any, q: Any, steps: int) -> Any:
    """Alternate between matching rows with their nearest ones and fitting maps, shape (s, p + 1, p)."""
    import torch

    q = q.clone()
    active = torch.arange(len(q), device=q.device)
    k = min(NEIGHBOURS, len(x), len(y))
    for _ in range(steps):
        distances = torch.cdist(_apply(x, q[active]), y)  # (s, n, m)
        forward = y[distances.topk(k, 2, largest=False).indices].mean(2)  # (s, n, p)
        backward = x[distances.topk(k, 1, largest=False).indices].mean(1)  # (s, m, p)
        sources = torch.cat([x.expand(len(active), -1, -1), backward], 1)
        new = _fit(sources, torch.cat([forward, y.expand(len(active), -1, -1)], 1))
        moved = (new - q[active]).norm(dim=(1, 2)) / x.shape[1] ** 0.5
        q[active] = new
        active = active[moved > CONVERGED]
        if not len(active):
            break
    return q


def _nearest(x: Any, y: Any, q: Any) -> tuple[Any, Any]:
    """The distance of each mapped row of x to the nearest of y, and of each row of y to the nearest mapped one."""
    import torch

    distances = torch.cdist(_apply(x, q), y)
    return distances.min(1).values, distances.min(0).values


def _residuals(x: Any, y: Any, q: Any) -> Any:
    """The two-way residual of each rotation, shape (s,): the mean distance to the nearest row of the other cloud."""
    import torch

    return torch.stack([(a.mean() + b.mean()) / 2 for a, b in (_nearest(x, y, one) for one in q)])


def permute_columns(x: Float, rng: np.random.Generator) -> Float:
    """Principal scores (n, p) with each column permuted on its own: same marginals, no joint structure."""
    return np.asarray(rng.permuted(x, axis=0))


def rearrange(x: Float, means: Float, rng: np.random.Generator, block: int = 8) -> Float:
    """Rows (n, p) whose deviations from the given means are whitened and rotated at random.

    The rotation acts within blocks of principal directions of similar variance, so that the covariance of the
    deviations stays the same. Around the mean of all rows, clusters stay clusters but their arrangement is another
    one; around the means of clusters, the arrangement stays and the rows inside are unrelated to it.
    """
    deviations = x - means
    axes = np.linalg.svd(deviations, full_matrices=False)[2]  # (p, p)
    scores = deviations @ axes.T
    spread = np.maximum(np.sqrt(np.square(scores).mean(0)), np.finfo(np.float64).tiny)
    for start in range(0, x.shape[1], block):
        part = slice(start, start + block)
        width = len(spread[part])
        turn = np.linalg.qr(rng.normal(size=(width, width)))[0] * rng.choice([-1.0, 1.0], size=width)
        scores[:, part] = scores[:, part] / spread[part] @ turn * spread[part]
    return np.asarray(means + scores @ axes)
