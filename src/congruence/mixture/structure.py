"""Hidden variables from components: counting, Moebius inversion, and the states of each variable.

Components are told apart on each latent by a label. On latents S there are k(S) different rows of labels, which under
P3 is the product of the numbers of states of the hidden variables that touch S. Inverting that over subsets gives, for
each set T of latents, the number of states of the one hidden variable whose neighbourhood is T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from congruence.arrays import Array, Float

MOST_LATENTS = 12  # counts over all subsets
WHOLE = 1e-6  # relative error of a number of states that is whole


@dataclass(frozen=True, eq=False)
class Structure:
    """Hidden discrete variables U_1, ..., U_k behind the components of a mixture.

    Variables are ordered by their neighbourhoods; names of states are arbitrary.
    """

    neighbourhoods: tuple[tuple[int, ...], ...]  # latents that depend on each variable
    dims: tuple[int, ...]  # numbers of states d_1, ..., d_k
    states: Array  # (J, k): of each variable in each component
    probabilities: Float  # of shape `dims`: P(U)

    @property
    def key(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """What does not depend on names of states: each neighbourhood with its number of states."""
        return tuple(zip(self.neighbourhoods, self.dims, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """The fields, as in the JSON contract."""
        return {
            "neighbourhoods": [list(n) for n in self.neighbourhoods],
            "dims": list(self.dims),
            "states": self.states.tolist(),
            "probabilities": self.probabilities.tolist(),
        }

    def __str__(self) -> str:
        return "; ".join(f"{d} states on latents {list(n)}" for n, d in self.key) or "one state"


@dataclass(frozen=True)
class Refusal:
    """Why the components do not follow from such a structure."""

    reason: str


def find_structure(labels: Array, weights: Float) -> Structure | Refusal:
    """The hidden variables behind components with these labels, (J, m), and weights, (J,).

    References
    ----------
    Kivva et al. 2021 and 2022 (P3, Theorem 3.10 c). The inversion over subsets is ours:
    w(T) = sum over S <= T of (-1)^(|T| - |S|) (log k(all) - log k(all but S)) = log d of the variable with
    neighbourhood T.
    """
    count = len(labels)
    if count == 1:
        return no_variables()
    if len(np.unique(labels, axis=0)) < count:
        return Refusal("two components have the same labels on all latents")
    sizes = _sizes(labels)
    if isinstance(sizes, Refusal):
        return sizes
    neighbourhoods = sorted(sizes)
    nested = [(a, b) for a in neighbourhoods for b in neighbourhoods if a != b and {*a} <= {*b}]
    if nested:
        return Refusal(f"the neighbourhood {nested[0][0]} lies within {nested[0][1]}, which P3 (c) excludes")
    dims = tuple(sizes[n] for n in neighbourhoods)
    if math.prod(dims) != count:
        return Refusal(f"there are {count} components, but {len(dims)} variables give {math.prod(dims)}")
    return _with_states(labels, weights, neighbourhoods, dims)


def no_variables() -> Structure:
    """The structure of one component."""
    return Structure((), (), np.zeros((1, 0), dtype=int), np.ones(()))


def _sizes(labels: Array) -> dict[tuple[int, ...], int] | Refusal:
    """The number of states of the variable of each neighbourhood that has one."""
    m = labels.shape[1]
    every = range(m)
    counted = {
        chosen: len(np.unique(labels[:, chosen], axis=0)) if chosen else 1
        for size in range(m + 1)
        for chosen in combinations(every, size)
    }
    whole = counted[tuple(every)]
    sizes = {}
    for size in range(1, m + 1):
        for chosen in combinations(every, size):
            total = 0.0
            for inner in range(size + 1):
                for part in combinations(chosen, inner):
                    rest = tuple(t for t in every if t not in part)
                    total += (-1) ** (size - inner) * (math.log(whole) - math.log(counted[rest]))
            states = math.exp(total)
            if abs(states - round(states)) > WHOLE * states or round(states) < 1:
                return Refusal(f"counting gives {states:.3g} states for the variable on latents {chosen}")
            if round(states) > 1:
                sizes[chosen] = round(states)
    for chosen, count in counted.items():
        touching = math.prod(d for n, d in sizes.items() if {*n} & {*chosen})
        if touching != count:
            return Refusal(f"latents {chosen} show {count} components, not {touching}")
    return sizes


def _with_states(
    labels: Array, weights: Float, neighbourhoods: Sequence[tuple[int, ...]], dims: tuple[int, ...]
) -> Structure | Refusal:
    """Components that differ only on one neighbourhood form lines; a variable is constant along lines of all others."""
    m = labels.shape[1]
    lines = []
    for n in neighbourhoods:
        rest = [t for t in range(m) if t not in n]
        lines.append(
            np.unique(labels[:, rest], axis=0, return_inverse=True)[1].ravel() if rest else np.zeros(len(labels))
        )
    states = np.zeros((len(labels), len(dims)), dtype=int)
    for i in range(len(dims)):
        states[:, i] = _joined([line for j, line in enumerate(lines) if j != i], len(labels))
        if len(np.unique(states[:, i])) != dims[i]:
            return Refusal(f"variable {i} has {len(np.unique(states[:, i]))} states, but counting gives {dims[i]}")
    if len(np.unique(states, axis=0)) < len(labels):
        return Refusal("two components have the same states of all variables")
    probabilities = np.zeros(dims)
    probabilities[tuple(states.T)] = weights / weights.sum()
    return Structure(tuple(neighbourhoods), dims, states, probabilities)


def _joined(partitions: Sequence[Array], count: int) -> Array:
    """Names of the classes that partitions, each an array (count,), generate together, in order of appearance."""
    names = np.arange(count)
    changed = True
    while changed:
        before = names.copy()
        for partition in partitions:
            for value in np.unique(partition):
                here = partition == value
                touched = np.unique(names[here])
                names[np.isin(names, touched)] = touched[0]
        changed = bool((names != before).any())
    return np.unique(names, return_inverse=True)[1].ravel()
