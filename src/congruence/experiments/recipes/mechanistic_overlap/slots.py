"""Autoencoders with slots, trained with the compositional contrast: all with the same number of slots in one batch.

The loss of a member is its mean squared error plus its strength times the raw contrast of its decoder (Brady et al.
2023). Latents can be standardised before they are decoded, so that growing them does not lower the contrast. The
columns of the Jacobian go through the layers of the decoder together with the values, in the same batched products. A
member ends where it would have ended alone, to rounding.

Training moves latents between slots slowly, and often gets stuck half way, since the decoder has to be relearned. But a
rotation of all latents does not change the reconstruction, because encoder and decoder can absorb it. So at some steps
the best rotation is searched for, with the Jacobian at a few points fixed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.training._step import set_rate
from congruence.experiments.training.settings import row_order
from congruence.mechanism.losses import lengths, pair_products
from congruence.rows.devices import can_compile, one_thread, short_products

LEAK = 0.2  # of the LeakyReLU in both networks
TINY = 1e-8  # added to the variance of a latent
WHITENED = 2048  # rows that the latents are whitened by before they are rotated
FIRST_STRENGTH = 1e-4  # at the start of the ramp
REPORT_EVERY = 200  # steps
WARM_UP = 3  # steps before one is recorded as a CUDA graph
WORTH_COMPILING = 5000  # steps on a GPU
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class RotationSearch:
    """How rotations are searched for: by Adam on Cayley's map, for each pair of slots."""

    points: int = 32  # at which the Jacobian is taken
    starts: int = 4  # the identity, and random rotations
    steps: int = 60
    sweeps: int = 4  # over all pairs of slots
    rate: float = 0.08


@dataclass(frozen=True)
class SlotMember:
    """One autoencoder: the number of its data set, the strength of the contrast, and the seed of its first weights."""

    data: int
    strength: float
    seed: int


@dataclass(frozen=True)
class SlotPlan:
    """How all members are trained: Adam, whose rate falls to 0 along a cosine or to a tenth after half of the steps."""

    steps: int
    batch: int = 64
    rate: float = 4e-3
    hidden: int = 80
    slot_dim: int = 3
    cosine: bool = True
    standardised: bool = True  # whether latents have mean 0 and variance 1 in each batch; rotations need it
    ramp: tuple[float, float] = (0.1, 0.6)  # shares of the steps between which strengths grow to 1
    rotate_at: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4)  # shares of the steps after which latents are rotated
    search: RotationSearch = field(default_factory=RotationSearch)
    short: bool = True  # whether products on a GPU may use TF32


@dataclass(frozen=True, eq=False)
class SlotOutcome:
    """Results on held-out rows; members come first."""

    error: Float  # (members,) mean squared error over rows and outputs
    contrast: Float  # (members,) raw, of the latents that are decoded
    unexplained: Float  # (members,) squared error over the variance of the outputs
    codes: Float  # (members, n, d), standardised


def train_slots(
    x: Array,
    held_out: Sequence[Array],
    outputs: Sequence[int],
    members: Sequence[SlotMember],
    slots: int,
    plan: SlotPlan,
    *,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
) -> list[SlotOutcome]:
    """Train members on data sets x (sets, n, m), of which the first `outputs` columns are real and the others 0.

    Returns the outcome on each of `held_out`, other rows (sets, n, m) of the same data sets. `seed` determines the
    order of rows and the rotations, the same for all members. `progress` is called as progress(step, steps, mean loss).
    """
    import torch

    with one_thread():
        training = SlotTraining(x, outputs, members, slots, plan, device)
        with short_products() if plan.short else contextlib.nullcontext():
            training.run(seed, progress)
        return [training.outcome(torch.from_numpy(np.asarray(rows, dtype=np.float32)).to(device)) for rows in held_out]


class SlotTraining:
    """The weights of all members, and their common steps."""

    def __init__(
        self, x: Array, outputs: Sequence[int], members: Sequence[SlotMember], slots: int, plan: SlotPlan, device: str
    ) -> None:
        import torch

        self.plan, self.slots = plan, slots
        self.x = torch.from_numpy(np.asarray(x, dtype=np.float32)).to(device)
        self.which = torch.tensor([member.data for member in members], device=device)
        self.outputs = torch.tensor([float(outputs[member.data]) for member in members], device=device)
        self.real = (torch.arange(x.shape[2], device=device) < self.outputs[:, None]).float()  # (members, m)
        self.strength = torch.tensor([member.strength for member in members], device=device)
        width = slots * plan.slot_dim
        stacks = [first_weights(m.seed, outputs[m.data], x.shape[2], plan.hidden, width) for m in members]
        self.weights = [torch.from_numpy(np.stack(w)).to(device).requires_grad_() for w in zip(*stacks, strict=True)]
        rate: Any = torch.tensor(plan.rate, device=device) if self.x.is_cuda else plan.rate
        fast = {"fused": True, "capturable": True} if self.x.is_cuda else {}
        self.optimiser = torch.optim.Adam(self.weights, lr=rate, **fast)
        self.rows = torch.zeros(plan.batch, dtype=torch.int64, device=device)
        self.most = torch.zeros((), device=device)  # the largest strength, which grows along the ramp
        self.last = torch.zeros(len(members), device=device)
        self.graph: Any = None
        fused = self.x.is_cuda and plan.steps >= WORTH_COMPILING and can_compile()
        self.measure = torch.compile(self.losses) if fused else self.losses

    def run(self, seed: int, progress: Progress | None) -> None:
        """Make all steps, with rotations in between."""
        import torch

        plan, n = self.plan, self.x.shape[1]
        each = n // plan.batch
        rotations = {round(share * plan.steps): number for number, share in enumerate(plan.rotate_at)}
        for step in range(plan.steps):
            if step in rotations:
                self.rotate(seed + rotations[step])
            if step % each == 0:
                order = torch.from_numpy(row_order(n, seed, step // each)).to(self.x.device)
            start = step % each * plan.batch
            self.rows.copy_(order[start : start + plan.batch])
            self.most.fill_(allowed_strength(step / plan.steps, *plan.ramp))
            set_rate(self.optimiser, plan.rate * rate_share(step / plan.steps, plan.cosine))
            self.step()
            if progress is not None and ((step + 1) % REPORT_EVERY == 0 or step + 1 == plan.steps):
                progress(step + 1, plan.steps, float(self.last.mean()))

    def step(self) -> None:
        """One step of all members; on a GPU all of it is one CUDA graph, since its kernels are small."""
        if not self.x.is_cuda:
            self._update()
            return
        if self.graph is None:
            self._record()
        self.graph.replay()

    def _update(self) -> None:
        error, contrast = self.measure(self.x[:, self.rows][self.which])
        losses = error + self.strength.minimum(self.most) * contrast
        self.optimiser.zero_grad()
        losses.sum().backward()
        self.optimiser.step()
        self.last.copy_(losses.detach())

    def _record(self) -> None:
        """Record the step as a CUDA graph; weights and averages are restored."""
        import torch

        before = [weight.detach().clone() for weight in self.weights]
        side = torch.cuda.Stream(self.x.device)
        side.wait_stream(torch.cuda.current_stream(self.x.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._update()
        torch.cuda.current_stream(self.x.device).wait_stream(side)
        self.optimiser.zero_grad()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._update()
        torch.cuda.synchronize(self.x.device)
        with torch.no_grad():
            for weight, value in zip(self.weights, before, strict=True):
                weight.copy_(value)
                for average in self.optimiser.state[weight].values():
                    average.zero_()

    def rotate(self, seed: int) -> None:
        """Replace whitened latents by the rotation of them that has the lowest contrast.

        The last layer of the encoder and the first of the decoder are linear and absorb the rotation, so that the
        reconstruction stays the same.
        """
        import torch

        with torch.no_grad():
            codes = self.encode(self.x[:, :WHITENED][self.which])  # (members, rows, d)
            mean, spread = codes.mean(1, keepdim=True), codes.var(1, keepdim=True, unbiased=False).add(TINY).sqrt()
            z = (codes - mean) / spread
            values, vectors = torch.linalg.eigh(z.mT @ z / z.shape[1])
            values = values.clamp(min=TINY)[:, None]
            out, back = (vectors * values.sqrt()) @ vectors.mT, (vectors * values.rsqrt()) @ vectors.mT
            columns = out[:, None] @ self.decode(z[:, : self.plan.search.points])[1]  # of whitened latents
            rotation = find_rotation(columns, self.slots, self.plan.search, seed)  # (members, d, d)
            onto = back @ rotation
            last, bias, first = self.weights[4:7]
            last.copy_((last / spread) @ onto)
            bias.copy_((bias - mean) / spread @ onto)
            first.copy_(rotation.mT @ out @ first)

    def losses(self, x: Any) -> tuple[Any, Any]:
        """The error and the contrast of each member on rows x (members, n, m), (members,) each."""
        codes = self.encode(x)
        values, columns = self.decode(standardise(codes) if self.plan.standardised else codes)
        error = (values - x).square().mean(1).sum(1) / self.outputs
        norms = lengths(columns.unflatten(2, (self.slots, -1)), 3)  # (members, n, K, m)
        return error, pair_products(norms.movedim(2, -1)).sum(-1).mean(1)

    def encode(self, x: Any) -> Any:
        """Latents (members, n, d) of rows x (members, n, m), not yet standardised."""
        import torch

        for i in (0, 2):
            x = torch.nn.functional.leaky_relu(torch.baddbmm(self.weights[i + 1], x, self.weights[i]), LEAK)
        return torch.baddbmm(self.weights[5], x, self.weights[4])

    def decode(self, z: Any) -> tuple[Any, Any]:
        """Outputs (members, n, m) of latents z (members, n, d), and the transposed Jacobian (members, n, d, m)."""
        import torch

        n, d = z.shape[1:]
        values, columns = torch.bmm(z, self.weights[6]), self.weights[6][:, None]  # (members, 1, d, hidden)
        for i in (8, 10):
            values = values + self.weights[i - 1]
            slope = torch.ones_like(values).masked_fill_(values <= 0, LEAK)
            both = torch.cat([(slope * values)[:, :, None], slope[:, :, None] * columns], 2)  # (members, n, 1 + d, .)
            both = torch.bmm(both.flatten(1, 2), self.weights[i]).unflatten(1, (n, 1 + d))
            values, columns = both[:, :, 0], both[:, :, 1:]
        return (values + self.weights[11]) * self.real[:, None], columns * self.real[:, None, None]

    def outcome(self, rows: Any) -> SlotOutcome:
        """Errors, contrasts and codes of rows (sets, n, m) that were not trained on, in chunks."""
        import torch

        errors, contrasts, codes = [], [], []
        with torch.no_grad():
            for chunk in range(0, rows.shape[1], WHITENED):
                x = rows[:, chunk : chunk + WHITENED][self.which]
                error, contrast = self.losses(x)
                errors.append(error)
                contrasts.append(contrast)
                codes.append(self.encode(x))
            spread = (rows - rows.mean(1, keepdim=True)).square().mean(1).sum(1)[self.which] / self.outputs
            error, contrast = (torch.stack(values).mean(0) for values in (errors, contrasts))
            results = (error, contrast, error / spread, standardise(torch.cat(codes, 1)))
            return SlotOutcome(*(np.asarray(value.double().cpu().numpy()) for value in results))


def standardise(z: Any) -> Any:
    """Latents (members, n, d) with mean 0 and variance 1 over the rows."""
    centred = z - z.mean(1, keepdim=True)
    return centred * (centred.square().mean(1, keepdim=True) + TINY).rsqrt()


def rate_share(done: float, cosine: bool) -> float:
    """The rate after a share of the steps, as a share of the first."""
    return 0.5 + 0.5 * math.cos(math.pi * done) if cosine else 1.0 if done < 0.5 else 0.1


def allowed_strength(done: float, first: float, last: float) -> float:
    """The largest strength after a share of the steps: 0, then from FIRST_STRENGTH to 1 by equal factors, then any."""
    if done < first or done >= last:
        return 0.0 if done < first else math.inf
    return float(FIRST_STRENGTH ** ((last - done) / (last - first)))


def first_weights(seed: int, outputs: int, padded: int, hidden: int, latent: int) -> list[Array]:
    """Weights (in, out) and biases (1, out) of the six layers of one member, as torch draws them; 0 for padding."""
    rng = np.random.default_rng([seed, 77])
    widths = [outputs, hidden, hidden, latent, hidden, hidden, outputs]
    drawn: list[Array] = []
    for fan_in, fan_out in pairwise(widths):
        bound = 1 / math.sqrt(fan_in)
        drawn += [rng.uniform(-bound, bound, size=(rows, fan_out)) for rows in (fan_in, 1)]
    more = padded - outputs
    drawn[0] = np.pad(drawn[0], ((0, more), (0, 0)))
    drawn[-2:] = [np.pad(layer, ((0, 0), (0, more))) for layer in drawn[-2:]]
    return [layer.astype(np.float32) for layer in drawn]


def find_rotation(columns: Any, slots: int, how: RotationSearch, seed: int) -> Any:
    """The rotation R (members, d, d) for which latents z R have the lowest contrast that was found.

    `columns` (members, n, d, m) are the transposed Jacobian of each member's decoder at n points, by whitened latents,
    in slots of the same width. The random starts are the same for all members.
    """
    import torch

    members, _, d, _ = columns.shape
    width = d // slots
    draw = torch.Generator(device="cpu").manual_seed(seed)
    total = torch.eye(d, device=columns.device).repeat(members, 1, 1)
    columns = columns.clone()
    for _ in range(how.sweeps):
        for i, j in combinations(range(slots), 2):
            pair = [*range(i * width, (i + 1) * width), *range(j * width, (j + 1) * width)]
            norms = lengths(columns.unflatten(2, (slots, width)), 3)  # (members, n, K, m)
            others = norms.sum(2) - norms[:, :, i] - norms[:, :, j]
            starts = torch.linalg.qr(torch.randn(how.starts, 2 * width, 2 * width, generator=draw))[0]
            starts[0] = torch.eye(2 * width)
            best = _rotate_pair(columns[:, :, pair], others, starts.to(columns.device), how)
            columns[:, :, pair] = best.mT[:, None] @ columns[:, :, pair]
            total[:, :, pair] = total[:, :, pair] @ best
    return total


def _rotate_pair(columns: Any, others: Any, starts: Any, how: RotationSearch) -> Any:
    """The best rotation of two slots (members, 2 q, 2 q), while the others, whose norms add up to `others`, stay."""
    import torch

    members, half = len(columns), columns.shape[2] // 2
    unit = torch.eye(2 * half, device=columns.device)
    bend = torch.zeros(members, len(starts), half, half, device=columns.device, requires_grad=True)
    optimiser = torch.optim.Adam([bend], lr=how.rate)

    def rotation() -> Any:
        above = torch.nn.functional.pad(bend, (half, 0, 0, half))  # rotations inside a slot change nothing
        skew = above - above.mT
        cayley = torch.linalg.solve_ex(unit + skew, unit - skew).result  # it always exists, so it need not be checked
        return starts @ cayley  # (members, starts, 2 q, 2 q)

    flat, rest = columns.movedim(1, 2).flatten(2)[:, None], others.flatten(1)[:, None]  # (members, 1, 2 q, n m)

    def contrast(rotated: Any) -> Any:
        norms = lengths((rotated.mT @ flat).unflatten(2, (2, half)), 3)  # (members, starts, 2, n m)
        return (norms[:, :, 0] * norms[:, :, 1] + norms.sum(2) * rest).sum(-1)  # (members, starts)

    with torch.enable_grad():
        for step in range(how.steps):
            optimiser.param_groups[0]["lr"] = how.rate * (1 - step / how.steps)
            optimiser.zero_grad()
            contrast(rotation()).sum().backward()
            optimiser.step()
    with torch.no_grad():
        rotations = rotation()
        best = contrast(rotations).argmin(1)
        return rotations[torch.arange(members, device=best.device), best]
