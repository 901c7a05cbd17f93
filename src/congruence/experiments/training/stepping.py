"""One step of a training: gather a batch, forward, backward, clip, update, and add up the losses on the device.

Engines: "eager" is plain torch. "compiled" hands the loss to torch.compile. "graph" records the whole step once as a
CUDA graph and then replays it, so that nothing waits for Python: a net of many small layers spends most of an eager
step on launching kernels. "compiled graph" does both. "auto" takes what pays: eager on a CPU, a graph on a GPU,
compiled where the training is long enough to make up for the compiling (and, as compiled kernels are chosen by
timing them, not where the same bits are wanted again).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from congruence.errors import InputError
from congruence.experiments.training.optimisers import compiled_move, make_optimiser, move, parameter_groups, set_rate
from congruence.experiments.training.settings import Training
from congruence.rows.devices import can_compile

# Steps: for the published nets on an H200 compiling takes half a minute, and saves 0.8 ms a step beside a graph.
WORTH_A_GRAPH, WORTH_COMPILING = 100, 40_000
COMPILED, FORGET = itertools.count(1), 4  # torch compiles a function for eight models, and forgets them when it is told
WARM_UP = 3  # steps before one is recorded: kernels are chosen and buffers made in them


def training_engine(how: Training, device: str, steps: int) -> str:
    """Turn "auto" into an engine, and refuse one that the device has not."""
    on_gpu = device.startswith("cuda")
    if how.engine != "auto":
        if "graph" in how.engine and not on_gpu:
            raise InputError(f"engine {how.engine!r} needs a CUDA device, not {device}; eager would do")
        return how.engine
    if not on_gpu or steps < WORTH_A_GRAPH:
        return "eager"
    worth = steps >= WORTH_COMPILING and not how.deterministic
    return "compiled graph" if worth and can_compile() else "graph"


class Stepper:
    """The model, its optimiser and the rows, and the steps that they make together."""

    def __init__(self, model: Any, data: list[Any], how: Training, engine: str) -> None:
        import torch

        self.model, self.data, self.how, self.device = model, data, how, data[0].device
        if self.device.type == "cuda":
            model.to(memory_format=torch.channels_last)  # what its convolutions are fast with
        self.graphed, self.compiled = "graph" in engine, "compiled" in engine
        self.optimiser = make_optimiser(model, how, on_device=self.graphed, compiled=self.graphed and self.compiled)
        if self.compiled and next(COMPILED) % FORGET == 0:
            torch.compiler.reset()
        self.loss = torch.compile(model.loss, options=self._options()) if self.compiled else model.loss
        self._moving = (self.optimiser, parameter_groups(model)[0], how.clip_value)
        self._plain_move = partial(move, *self._moving)
        self.move: Callable[[], None] = self._plain_move
        self.careful = how.check_every == 1 and not self.graphed
        self.names: tuple[str, ...] = ()
        self._sums = torch.zeros(0, dtype=torch.float64, device=self.device)  # one for each name
        self._last = torch.zeros((), dtype=torch.float64, device=self.device)
        self._order = torch.zeros(len(data[0]), dtype=torch.int64, device=self.device)
        self._start = torch.zeros((), dtype=torch.int64, device=self.device)  # of the next batch, for the graph
        self._places = torch.arange(how.batch, device=self.device)
        self._graph: Any = None

    def _options(self) -> dict[str, Any]:
        """Those of the compiler: on a GPU kernels that do not need each other are one, where the compiler can do so."""
        import torch

        able = self.device.type == "cuda" and "combo_kernels" in torch._inductor.list_options()
        return {"combo_kernels": True} if able else {}

    @property
    def sums(self) -> dict[str, float]:
        """What the parts of the loss add up to, each times the rows of its batch; reading waits for the device."""
        return dict(zip(self.names, self._sums.tolist(), strict=True))

    @sums.setter
    def sums(self, values: Mapping[str, float]) -> None:
        import torch

        if values:
            self.names = tuple(values)
            self._sums = torch.tensor(list(values.values()), dtype=torch.float64, device=self.device)
        else:
            self._sums.zero_()

    @property
    def last(self) -> float:
        """The loss of the last step."""
        return float(self._last)

    def is_sound(self, *, weights: bool) -> bool:
        """Whether the losses added up so far are finite and, if these are asked for, the weights."""
        import torch

        if not math.isfinite(self.sums.get("loss", 0.0)) or not math.isfinite(self.last):
            return False
        if self.careful or not weights:
            return True
        return bool(torch.stack([torch.isfinite(weight).all() for weight in self.model.parameters()]).all())

    def begin(self, order: Any, place: int) -> None:
        """Take the rows of an epoch in this order, from the batch `place` on."""
        import torch

        self._order.copy_(torch.from_numpy(order))
        self._start.fill_(place * self.how.batch)

    def step(self, place: int, rate: float) -> bool:
        """Make the step of a batch. Eager steps that are each checked change nothing where they give False."""
        set_rate(self.optimiser, rate)
        batch = self.how.batch
        rows = self._order[place * batch : (place + 1) * batch]
        if len(rows) < batch:  # another shape than was compiled or recorded
            return self._update(rows, self.model.loss, self._plain_move)
        if not self.graphed:
            return self._update(rows, self.loss, self.move)
        if self._graph is None:
            self._record()
        self._graph.replay()
        return True

    def _update(self, rows: Any, loss: Callable[..., Any], move: Callable[[], None]) -> bool:
        import torch

        self.optimiser.zero_grad()
        with self._autocast():
            parts = loss_parts(loss(*(self._gather(tensor, rows) for tensor in self.data)))
        parts["loss"].backward()
        if self.careful or self.how.clip is not None:
            limit = math.inf if self.how.clip is None else self.how.clip
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
            if self.careful and not (math.isfinite(float(norm)) and math.isfinite(float(parts["loss"].detach()))):
                return False
        move()
        if hasattr(self.model, "after_step"):
            with torch.no_grad():
                self.model.after_step()
        self._add(parts, len(rows))
        return True

    def _gather(self, tensor: Any, rows: Any) -> Any:
        import torch

        batch = tensor[rows]
        images = self.device.type == "cuda" and batch.ndim == 4
        return batch.contiguous(memory_format=torch.channels_last) if images else batch

    def _autocast(self) -> Any:
        import torch

        wanted = self.how.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=wanted, cache_enabled=False)

    def _add(self, parts: Mapping[str, Any], count: int) -> None:
        import torch

        if not self.names:
            self.names = tuple(parts)
            self._sums = torch.zeros(len(parts), dtype=torch.float64, device=self.device)
        values = torch.stack([parts[name].detach().double() for name in self.names])
        self._sums += count * values
        self._last.copy_(values[self.names.index("loss")])

    def _record(self) -> None:
        """Make the step a CUDA graph; everything is left as it was."""
        import torch

        here, side = torch.cuda.current_stream(self.device), torch.cuda.Stream(self.device)
        with self._left_alone(), torch.cuda.stream(side):
            side.wait_stream(here)  # also for the copies that were just made
            for _ in range(WARM_UP):
                self._recorded()
                self._start -= self.how.batch
                if self.compiled and self.move is self._plain_move:
                    self.move = compiled_move(*self._moving)
        here.wait_stream(side)
        self.optimiser.zero_grad()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._recorded()
        except RuntimeError as error:
            raise InputError(
                f"the loss of the model cannot be recorded as a CUDA graph; engine='eager' would do ({error})"
            ) from error
        self._graph = graph

    def _recorded(self) -> None:
        self._update(self._order[self._start + self._places], self.loss, self.move)
        self._start += self.how.batch

    @contextlib.contextmanager
    def _left_alone(self) -> Iterator[None]:
        """Bring weights, averages, sums and generators back, in their places, to what they were before the block."""
        import torch

        fixed = [*self.model.parameters(), *self.model.buffers(), self._last, self._sums]
        before = [tensor.detach().clone() for tensor in fixed]
        averages = {id(tensor): tensor.clone() for tensor in _averages(self.optimiser)}
        random = torch.get_rng_state(), torch.cuda.get_rng_state(self.device)
        yield
        torch.cuda.synchronize(self.device)
        with torch.no_grad():
            for tensor, value in zip(fixed, before, strict=True):
                tensor.copy_(value)
            self._sums.copy_(before[-1]) if len(before[-1]) else self._sums.zero_()
            for tensor in _averages(self.optimiser):
                tensor.copy_(averages[id(tensor)]) if id(tensor) in averages else tensor.zero_()
        torch.set_rng_state(random[0])
        torch.cuda.set_rng_state(random[1], self.device)


def loss_parts(loss: Any) -> dict[str, Any]:
    """The parts of what a model's `loss` gave, of which "loss" is minimised."""
    if not isinstance(loss, Mapping):
        return {"loss": loss}
    if "loss" not in loss:
        raise InputError(f"a loss of several parts must name the one to minimise 'loss', but has {', '.join(loss)}")
    return dict(loss)


def _averages(optimiser: Any) -> list[Any]:
    return [value for state in optimiser.state.values() for value in state.values() if hasattr(value, "zero_")]
