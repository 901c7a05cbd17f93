"""Many small autoencoders trained at once: one batched product for each layer of all of them.

Every member has the same widths; leak, seed and rows may differ. Layers have no bias and orthonormal columns (or rows),
with LeakyReLU between the layers of the encoder and of the decoder, after the warm-up of Nelson et al. (4.1, A.7.1).
The weights are kept orthonormal by the polar retraction after each step of Adam, not by a parametrisation. Members do
not depend on each other: each ends as it would alone, to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import check_number, require
from congruence.errors import InputError
from congruence.experiments.training.settings import row_order
from congruence.rows.devices import one_thread, training_device

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam
TINY = 1e-6  # added to the norm that a gradient is clipped by, as torch does
ENOUGH = 1e-4  # largest entry of Z A Z - 1 from which one more step on the matrix itself converges to rounding
ROUNDS = 7  # of Newton-Schulz; a training step needs 3 to 5, and a matrix that needs more has lost digits in its square
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Member:
    """One autoencoder: the slope for negative values (1 is linear, 0 is ReLU), its seed, and its rows."""

    leak: float
    seed: int  # of the initial weights and of the order of the rows
    rows: Array | None = None  # row numbers; None for all
    onto: Array | None = None  # (latent, p) orthonormal directions to start at; None for random ones


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained autoencoders; arrays in, arrays out. The first axis is that of members."""

    leaks: Float  # (members,)
    weights: tuple[Array, ...]  # for each layer (members, out, in); the first half is the encoder
    epochs: Array  # (members,) that each was trained for
    losses: Float  # (members,) the mean training loss of the last epoch
    device: str = "cpu"

    def __len__(self) -> int:
        return len(self.leaks)

    def encode(self, x: Array) -> Array:
        """The codes of rows x (n, p), or of separate rows for each member (members, n, p): (members, n, latent)."""
        return self._apply(self._tensors[: len(self.weights) // 2], x)

    def decode(self, codes: Array) -> Array:
        """The reconstructions of codes, (members, n, latent) -> (members, n, p)."""
        return self._apply(self._tensors[len(self.weights) // 2 :], codes)

    def reconstruction_error(self, x: Array) -> Float:
        """The mean squared error over rows and columns, (members,)."""
        return np.asarray(((self.decode(self.encode(x)) - x) ** 2).mean((1, 2), dtype=np.float64))

    def jacobian(self, member: int, codes: Array) -> Float:
        """The Jacobian of one decoder at codes (n, latent), shape (n, p, latent), exact.

        The decoder is piecewise linear: the Jacobian is the product of the weights, with rows scaled by the leak where
        a unit is negative.
        """
        inner, last = self._inner_jacobian(member, codes)
        return np.asarray((last @ inner).cpu().numpy())

    def metric(self, member: int, codes: Array) -> Float:
        """J^T J of one decoder at codes (n, latent), shape (n, latent, latent): the pullback metric.

        Its eigenvalues are the squared singular values of J, and |J v|^2 = v^T (J^T J) v.
        """
        inner, last = self._inner_jacobian(member, codes)
        return np.asarray((inner.mT @ ((last.mT @ last) @ inner)).cpu().numpy())

    def _inner_jacobian(self, member: int, codes: Array) -> tuple[Any, Any]:
        """The Jacobian of all but the last layer of one decoder, (n, hidden, latent), and the last layer; float64."""
        import torch

        *layers, last = (weight[member].double() for weight in self._tensors[len(self.weights) // 2 :])
        values = torch.from_numpy(np.asarray(codes, dtype=np.float64)).to(self.device)
        jacobian = torch.eye(codes.shape[1], dtype=torch.float64, device=self.device).expand(len(codes), -1, -1)
        for weight in layers:
            values = values @ weight.mT
            slope = torch.ones_like(values).masked_fill_(values <= 0, float(self.leaks[member]))  # (n, out)
            jacobian, values = slope[..., None] * (weight @ jacobian), slope * values
        return jacobian, last

    @cached_property
    def _tensors(self) -> list[Any]:
        torch = require("torch", "an ensemble", "torch")
        return [torch.from_numpy(np.ascontiguousarray(weight)).to(self.device) for weight in self.weights]

    def _apply(self, layers: Sequence[Any], rows: Array) -> Array:
        import torch

        leaks = torch.from_numpy(self.leaks.astype(np.float32)).to(self.device)
        values = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)).to(self.device)
        values = values.expand(len(self), *values.shape[-2:])
        with torch.no_grad():
            return np.asarray(_forward(layers, values, leaks[:, None, None]).cpu().numpy())


def train_ensemble(
    x: Array,
    members: Sequence[Member],
    *,
    widths: Sequence[int],
    epochs: int = 2000,
    batch: int = 256,
    learning_rate: float = 1e-3,
    cosine: bool = False,
    clip: float = 1.0,
    patience: int | None = 50,
    threshold: float = 0.0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Ensemble:
    """Train autoencoders on the rows of x, shape (n, p), all at once; the loss is the mean squared error.

    Each member has its own order of rows, its own clipped gradient and its own early stopping: one that has not
    improved its loss by more than `threshold` for `patience` epochs is frozen and leaves the batch.

    Parameters
    ----------
    x : (n, p)
        Rows.
    members : sequence of Member
        All must have the same number of rows, so that they make the same steps.
    widths : sequence of int
        From the p columns of x down to the latent width; the decoder has them in reverse order.
    epochs : int
        The most epochs.
    batch : int
        Rows in a step.
    learning_rate : float
        Of Adam.
    cosine : bool
        Whether the learning rate falls to 0 along a cosine over all epochs, or is constant.
    clip : float
        The largest norm of a member's gradient.
    patience : int, optional
        Epochs without improvement after which a member is frozen; None for never.
    threshold : float
        The smallest decrease of the loss that counts as an improvement.
    device : str
        "auto" takes a GPU if torch finds one.
    progress : callable, optional
        Called as progress(epoch, epochs, mean loss of the active members) after each epoch.
    """
    torch = require("torch", "training", "torch")
    x = np.ascontiguousarray(x, dtype=np.float32)
    rows = _check_members(x, members, widths)
    where = training_device(device)
    training = _Batch(torch.from_numpy(x).to(where), members, rows, widths, learning_rate, clip)
    steps = epochs * math.ceil(rows.shape[1] / batch)
    with one_thread():
        for epoch in range(epochs):
            losses = training.epoch(epoch, batch, steps if cosine else None)
            if progress is not None:
                progress(epoch + 1, epochs, float(losses.mean()))
            training.stop(losses, epoch + 1, math.inf if patience is None else patience, threshold)
            if not len(training.active):
                break
    return training.finish(where)


def _check_members(x: Array, members: Sequence[Member], widths: Sequence[int]) -> Array:
    """Check the arguments, and return the row numbers of each member, (members, rows)."""
    if not members:
        raise InputError("members must have at least one member; got none")
    if len(widths) < 2 or widths[0] != x.shape[1]:
        raise InputError(f"widths must start with the {x.shape[1]} columns of x; got {list(widths)}")
    for member in members:
        check_number("leak", member.leak, 0, 1)
    rows = [np.arange(len(x)) if member.rows is None else np.asarray(member.rows) for member in members]
    sizes = {len(one) for one in rows}
    if len(sizes) > 1:
        raise InputError(f"all members must have the same number of rows; got {min(sizes)} to {max(sizes)}")
    return np.stack(rows)


class _Batch:
    """The active members: their weights and Adam's averages, which shrink as members are frozen."""

    def __init__(
        self, x: Any, members: Sequence[Member], rows: Array, widths: Sequence[int], rate: float, clip: float
    ) -> None:
        import torch

        self.x, self.rows, self.rate, self.clip, self.step = x, rows, rate, clip, 0
        self.seeds = [member.seed for member in members]
        self.all_leaks = np.array([member.leak for member in members], dtype=float)
        self.leaks = torch.from_numpy(self.all_leaks.astype(np.float32))[:, None, None].to(x.device)
        stacks = [draw_orthogonal([*widths, *reversed(widths[:-1])], member.seed) for member in members]
        for i, member in enumerate(members):
            stacks[i] = stacks[i] if member.onto is None else start_at(stacks[i], member.onto)
        self.weights = [torch.from_numpy(np.stack(layer)).to(x.device) for layer in zip(*stacks, strict=True)]
        self.means = [torch.zeros_like(weight) for weight in self.weights]
        self.squares = [torch.zeros_like(weight) for weight in self.weights]
        self.active = np.arange(len(members))
        self.best, self.stale = np.full(len(members), np.inf), np.zeros(len(members), dtype=int)
        self.epochs, self.losses = np.zeros(len(members), dtype=int), np.full(len(members), np.nan)
        self.frozen: list[Any] = [np.empty(tuple(weight.shape), np.float32) for weight in self.weights]

    def epoch(self, number: int, batch: int, steps: int | None) -> Float:
        """Visit all rows once and return the mean loss of each active member; a cosine schedule has `steps`."""
        import torch

        n = self.rows.shape[1]
        order = np.stack([self.rows[i][row_order(n, self.seeds[i], number)] for i in self.active])
        order = torch.from_numpy(order).to(self.x.device)
        total = torch.zeros(len(self.active), dtype=torch.float64, device=self.x.device)
        for start in range(0, n, batch):
            rows = order[:, start : start + batch]
            pace = 1.0 if steps is None else 0.5 + 0.5 * math.cos(math.pi * self.step / steps)
            total += rows.shape[1] * self._one_step(self.x[rows], pace * self.rate)
        return np.asarray((total / n).cpu().numpy())

    def _one_step(self, x: Any, rate: float) -> Any:
        """One step of Adam on rows x (members, batch, p); returns the losses (members,)."""
        import torch

        weights = [weight.requires_grad_() for weight in self.weights]
        half = len(weights) // 2
        codes = _forward(weights[:half], x, self.leaks)
        losses = (_forward(weights[half:], codes, self.leaks) - x).square().mean((1, 2))
        gradients = torch.autograd.grad(losses.sum(), weights)
        with torch.no_grad():
            self.step += 1
            gradients = [tangent(w, g) for w, g in zip(weights, gradients, strict=True)]
            norm = sum(g.square().sum((1, 2)) for g in gradients).sqrt()
            share = (self.clip / (norm + TINY)).clamp(max=1.0)[:, None, None]
            for i, gradient in enumerate(gradients):
                self.weights[i] = self._adam_step(i, share * gradient, rate)
        return losses.detach()

    def _adam_step(self, i: int, gradient: Any, rate: float) -> Any:
        """The weights of layer i after a step of Adam (Kingma and Ba 2015) and the retraction."""
        self.means[i].lerp_(gradient, 1 - BETAS[0])
        self.squares[i].lerp_(gradient * gradient, 1 - BETAS[1])
        mean = self.means[i] / (1 - BETAS[0] ** self.step)
        scale = (self.squares[i] / (1 - BETAS[1] ** self.step)).sqrt() + EPSILON
        return nearest_orthogonal(self.weights[i].detach() - rate * mean / scale)

    def stop(self, losses: Float, epoch: int, patience: float, threshold: float) -> None:
        """Freeze the members whose patience is exceeded, or whose loss is not finite."""
        here = self.active
        better = losses < self.best[here] - threshold
        self.best[here] = np.where(better, losses, self.best[here])
        self.stale[here] = np.where(better, 0, self.stale[here] + 1)
        self.epochs[here], self.losses[here] = epoch, losses
        leave = (self.stale[here] >= patience) | ~np.isfinite(losses)
        if leave.any():
            self._freeze(np.flatnonzero(leave), np.flatnonzero(~leave))

    def _freeze(self, leave: Array, stay: Array) -> None:
        import torch

        for frozen, weight in zip(self.frozen, self.weights, strict=True):
            frozen[self.active[leave]] = weight.detach().cpu().numpy()[leave]
        kept = torch.from_numpy(stay).to(self.x.device)
        self.weights, self.means, self.squares = (
            [one.detach()[kept] for one in group] for group in (self.weights, self.means, self.squares)
        )
        self.leaks, self.active = self.leaks[kept], self.active[stay]

    def finish(self, device: str) -> Ensemble:
        """Freeze all members and return them."""
        self._freeze(np.arange(len(self.active)), np.empty(0, dtype=int))
        return Ensemble(self.all_leaks, tuple(self.frozen), self.epochs, self.losses, device)


def _forward(layers: Sequence[Any], x: Any, leaks: Any) -> Any:
    """Send rows x (members, n, in) through layers (members, out, in) with LeakyReLU between them."""
    import torch

    for i, weight in enumerate(layers):
        x = torch.bmm(x, weight.mT)
        if i < len(layers) - 1:
            x = torch.relu(x) + leaks * x.clamp(max=0)  # faster than torch.where, and as exact
    return x


def draw_orthogonal(widths: Sequence[int], seed: int) -> list[Any]:
    """Draw layers uniformly: a matrix (out, in) in float32 with orthonormal columns or rows for each pair of widths."""
    rng = np.random.default_rng(seed)
    stack = []
    for inside, out in pairwise(widths):
        q, r = np.linalg.qr(rng.normal(size=(max(inside, out), min(inside, out))))
        q = q * np.sign(np.diag(r))  # without the signs the distribution would not be uniform
        stack.append(np.ascontiguousarray(q if out >= inside else q.T).astype(np.float32))
    return stack


def start_at(stack: Sequence[Array], directions: Array) -> list[Array]:
    """Layers near those of `stack` whose linear encoder projects onto orthonormal directions (latent, p).

    The rotation of the codes is the one nearest to that of `stack`; the decoder is the transposed encoder.
    """
    first, *rest = (layer.astype(np.float64) for layer in stack[: len(stack) // 2])
    inner = np.eye(len(first)) if not rest else rest[0] if len(rest) == 1 else np.linalg.multi_dot(rest[::-1])
    u, _, vt = np.linalg.svd(inner @ first @ directions.T)
    k = len(directions)
    others = np.linalg.qr(inner.T, mode="complete")[0][:, k:]  # of the first layer's outputs, which codes do not use
    outside = np.linalg.qr((first - first @ directions.T @ directions).T)[0][:, : len(first) - k]
    layers = [inner.T @ (u @ vt) @ directions + others @ outside.T, *rest]
    layers += [layer.T for layer in reversed(layers)]
    return [np.ascontiguousarray(layer).astype(np.float32) for layer in layers]


def tangent(weight: Any, gradient: Any) -> Any:
    """The part of a gradient that keeps a matrix orthonormal to first order: G - W sym(W^T G) for a tall W."""
    if weight.shape[-2] < weight.shape[-1]:
        return tangent(weight.mT, gradient.mT).mT
    inner = weight.mT @ gradient
    return gradient - weight @ ((inner + inner.mT) / 2)


def nearest_orthogonal(weight: Any) -> Any:
    """The polar retraction, the nearest matrix with orthonormal columns (or rows): W (W^T W)^(-1/2) for a tall W.

    The root is computed by coupled Newton-Schulz steps, which are products and so are fast for many small matrices on
    any device; if they do not converge soon, because a matrix is far from orthogonal, by singular values.
    """
    import torch

    if weight.shape[-2] < weight.shape[-1]:
        return nearest_orthogonal(weight.mT).mT
    square = weight.mT @ weight
    size = square.abs().sum(-1).amax(-1)[..., None, None].clamp(min=torch.finfo(weight.dtype).tiny)
    one = torch.eye(square.shape[-1], dtype=weight.dtype, device=weight.device)
    size = torch.where(size > 1.9, size / 1.9, torch.ones_like(size))  # it converges only for eigenvalues below 2
    root, inverse = square / size, one.expand_as(square)
    for _ in range(ROUNDS):
        product = inverse @ root
        done = (product - one).abs().amax((-1, -2), keepdim=True) < ENOUGH
        if bool(done.all()):
            near = weight @ (inverse / size.sqrt())
            # on the matrix itself: free of the rounding of its square
            return near @ (1.5 * one - 0.5 * (near.mT @ near))
        half = torch.where(done, one, 1.5 * one - 0.5 * product)  # so that no matrix depends on how long others take
        root, inverse = root @ half, half @ inverse
    u, _, vt = torch.linalg.svd(weight, full_matrices=False)
    return u @ vt
