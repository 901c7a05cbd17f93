"""Generators whose slots write to overlapping rows of the observation, with a chosen overlap.

Every slot has a small network (or all share one) that writes `width` rows of x. Neighbours share some of these rows,
and the values written to a shared row are added. Without overlap the slots act on disjoint rows (Type D);
with overlap they still add (Type H2).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_integer
from congruence.errors import InputError

_LEAK = 0.01  # of the LeakyReLU between the two layers of a slot
_DRAWS, _BEST = 400, 0.25  # matrices drawn for each layer, and the best conditioned share of them to choose from


@dataclass(frozen=True, eq=False)
class OverlapGenerator:
    """x = sum over slots i of second_i @ leaky(first_i @ s_i), written to the rows of slot i."""

    first: Float  # (K, hidden, q)
    second: Float  # (K, width, hidden)
    rows: Array  # (K, width) the rows of x that each slot writes to
    outputs: int  # m

    @property
    def slots(self) -> int:
        """The number of slots K."""
        return len(self.rows)

    @property
    def dimension(self) -> int:
        """The number of latents d = K q."""
        return int(self.slots * self.first.shape[2])

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """The columns of the latents of each slot."""
        q = self.first.shape[2]
        return tuple(tuple(range(i * q, (i + 1) * q)) for i in range(self.slots))

    @property
    def overlap(self) -> float:
        """The largest share of a slot's rows that it shares with one other slot."""
        written = np.zeros((self.slots, self.outputs))
        np.put_along_axis(written, self.rows, 1.0, axis=1)
        shared = written @ written.T - np.diag(written.sum(1))
        return float(shared.max() / self.rows.shape[1])

    @property
    def sparsity_gap(self) -> int:
        """rho- minus rho+ of Type S (Matthes et al. 2026), for almost all weights of different networks.

        It is positive if and only if the generator is Type S; where it is negative, it is an upper bound. Let a
        direction move exactly the slots S. Setting an output to zero is a linear equation for the latents of the slots
        in S that write it. For almost all weights, equations have a solution that moves all of S if and only if every T
        in S has at most |T| q - 1 equations that involve slots of T only. This is a matroid, so taking them greedily
        gives the most outputs that can be zero. All vectors of the lightest aligned basis change width - q + 1 outputs,
        and the lightest other basis replaces one of them by the lightest direction that moves two or more slots.
        """
        q, every = self.first.shape[2], range(self.slots)
        writers = [frozenset(np.flatnonzero((self.rows == row).any(1)).tolist()) for row in range(self.outputs)]

        def fewest_changed(moved: frozenset[int]) -> int:
            """How many outputs change at least if the latents of exactly these slots move."""
            inside = [frozenset(some) for size in every for some in combinations(sorted(moved), size + 1)]
            equations, changed = dict.fromkeys(inside, 0), 0
            for row in sorted((moved & row for row in writers if moved & row), key=len):
                limits = [part for part in inside if row <= part]
                if all(equations[part] < q * len(part) - 1 for part in limits):
                    equations |= {part: equations[part] + 1 for part in limits}
                else:
                    changed += 1
            return changed

        several = [frozenset(some) for size in every[1:] for some in combinations(every, size + 1)]
        return int(min(map(fewest_changed, several)) - (self.rows.shape[1] - q + 1))

    def __call__(self, latents: Array) -> Float:
        """Return observations (n, m) of latents (n, d)."""
        inner = self._inner(latents)
        written = np.einsum("nkh,kwh->nkw", np.where(inner > 0, inner, _LEAK * inner), self.second)
        x = np.zeros((len(inner), self.outputs))
        for i in range(self.slots):
            x[:, self.rows[i]] += written[:, i]
        return x

    def jacobian(self, latents: Array) -> Float:
        """Return the Jacobian at each row of latents (n, d), shape (n, m, d), exact away from the kinks."""
        inner = self._inner(latents)
        jacobian = np.zeros((len(inner), self.outputs, self.dimension))
        for i, block in enumerate(self.blocks):
            sloped = np.where(inner[:, i, :, None] > 0, 1.0, _LEAK) * self.first[i]  # (n, hidden, q)
            jacobian[:, self.rows[i], block[0] : block[-1] + 1] = self.second[i] @ sloped
        return jacobian

    def _inner(self, latents: Array) -> Float:
        """The inputs of the LeakyReLU, (n, K, hidden)."""
        parts = np.asarray(latents, dtype=np.float64).reshape(len(latents), self.slots, -1)
        return np.asarray(np.einsum("nkq,khq->nkh", parts, self.first))

    def decoder(self) -> Any:
        """Return the same map as a function of torch tensors (n, d), for all functions that take decoders."""
        import torch

        first, second, rows = (torch.from_numpy(np.array(part)) for part in (self.first, self.second, self.rows))

        def decode(z: Any) -> Any:
            inner = torch.einsum("nkq,khq->nkh", z.reshape(len(z), self.slots, -1), first.to(z))
            written = torch.einsum("nkh,kwh->nkw", torch.nn.functional.leaky_relu(inner, _LEAK), second.to(z))
            x = torch.zeros(len(z), self.outputs, dtype=z.dtype, device=z.device)
            return x.index_add(1, rows.reshape(-1).to(z.device), written.reshape(len(z), -1))

        return decode


def overlap_generator(
    slots: int, overlap: float = 0.0, *, slot_dim: int = 3, width: int = 20, shared_net: bool = False, seed: int = 0
) -> OverlapGenerator:
    """Draw a generator of K slots, each with `slot_dim` latents and `width` rows, of which neighbours share some.

    Two slots share round(overlap * width) rows. Three and more form a ring, and each shares that many rows with the
    slot before and as many others with the slot after it; then the overlap is at most 0.5.

    Parameters
    ----------
    slots : int
        K, at least 2.
    overlap : float
        From 0 (disjoint rows) to below 1, or to 0.5 with more than two slots.
    slot_dim : int
        Latents of each slot.
    width : int
        Rows that each slot writes.
    shared_net : bool
        Whether all slots have the same network, as in Brady et al., or different ones.
    seed : int
        Seed of the weights: uniform, columns of length 1, from the best conditioned quarter of 400 draws.

    References
    ----------
    Brady et al. 2023 (without overlap); Matthes et al. 2026, whose construction of overlapping supports is unknown
    to us.
    """
    check_integer("slots", slots, 2)
    if not (0 <= overlap < 1 if slots == 2 else 0 <= overlap <= 0.5):
        most = "below 1" if slots == 2 else "at most 0.5 with more than two slots"
        raise InputError(f"overlap must be at least 0 and {most}; got {overlap}")
    shift = width - round(overlap * width)
    outputs = width + shift if slots == 2 else slots * shift
    if outputs < slots * slot_dim:
        raise InputError(
            f"{slots} slots with an overlap of {overlap} write {outputs} rows, fewer than their {slots * slot_dim} "
            "latents; decrease overlap or increase width"
        )
    rng = np.random.default_rng([seed, slots])
    nets = [(_layer(rng, width, slot_dim), _layer(rng, width, width)) for _ in range(1 if shared_net else slots)]
    first, second = (np.stack([nets[i % len(nets)][k] for i in range(slots)]) for k in (0, 1))
    rows = (shift * np.arange(slots)[:, None] + np.arange(width)) % outputs
    return OverlapGenerator(first, second, rows, outputs)


def _layer(rng: np.random.Generator, rows: int, columns: int) -> Float:
    """One of the best conditioned of several random matrices with columns of length 1."""
    drawn = rng.uniform(-10, 10, size=(_DRAWS, rows, columns))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    order = np.argsort(np.linalg.cond(drawn))
    return np.asarray(drawn[order[rng.integers(round(_BEST * _DRAWS))]])


def dependent_covariance(dimension: int, degrees: float, seed: int = 0) -> Float:
    """Draw a covariance with unit variances from a Wishart distribution, shape (d, d).

    The fewer `degrees` of freedom (at least d), the more the latents depend on each other; with infinitely many, the
    covariance is the identity. Brady et al. use as many as there are latents.
    """
    if degrees < dimension:
        raise InputError(f"degrees must be at least the {dimension} latents; got {degrees}")
    if np.isinf(degrees):
        return np.eye(dimension)
    drawn = np.random.default_rng([seed, dimension]).normal(size=(int(degrees), dimension))
    covariance = drawn.T @ drawn
    spread = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / spread / spread[:, None])
