"""One step of a training: gather a batch, forward, backward, clip, update, and sum the losses on the device."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from congruence.errors import InputError
from congruence.experiments.training.settings import Training
from congruence.rows.devices import can_compile

# Steps: for the published nets on an H200 compiling takes half a minute, and saves 0.8 ms a step relative to a graph.
WORTH_A_GRAPH, WORTH_COMPILING = 100, 40_000
COMPILED, FORGET = itertools.count(1), 4  # torch keeps a function compiled for at most eight models
WARM_UP = 3  # steps before one is recorded, in which kernels are chosen and buffers allocated


def choose_engine(how: Training, device: str, steps: int) -> str:
    """Turn the engine "auto" into another, and refuse one that the device does not support.

    "eager" is plain torch. "compiled" compiles the loss with torch.compile. "graph" records the whole step once as a
    CUDA graph and replays it: a net of many small layers spends most of an eager step on launching kernels. "compiled
    graph" does both. "auto" is eager on a CPU and a graph on a GPU, compiled if the training is long enough to save
    time (and, as compiled kernels are chosen by timing them, not with `deterministic`).
    """
    on_gpu = device.startswith("cuda")
    if how.engine != "auto":
        if "graph" in how.engine and not on_gpu:
            raise InputError(f"engine {how.engine!r} needs a CUDA device; got {device}; use 'eager'")
        return how.engine
    if not on_gpu or steps < WORTH_A_GRAPH:
        return "eager"
    worth = steps >= WORTH_COMPILING and not how.deterministic
    return "compiled graph" if worth and can_compile() else "graph"


class Stepper:
    """The model, its optimiser and the rows, and the steps of the training."""

    def __init__(self, model: Any, data: list[Any], how: Training, engine: str, *, drawn: bool = False) -> None:
        import torch

        self.model, self.data, self.how, self.device = model, data, how, data[0].device
        self.drawn = drawn  # whether `data` is one batch, which the caller replaces before each step
        self.after_step = getattr(model, "after_step", None)
        if self.device.type == "cuda":
            model.to(memory_format=torch.channels_last)  # fast for convolutions
        self.graphed, self.compiled = "graph" in engine, "compiled" in engine
        self.optimiser = make_optimiser(model, how, on_device=self.graphed, compiled=self.graphed and self.compiled)
        if self.compiled and next(COMPILED) % FORGET == 0:
            torch.compiler.reset()
        self.loss = torch.compile(model.loss, options=self._compiler_options()) if self.compiled else model.loss
        self._update_arguments = (self.optimiser, parameter_groups(model)[0], how.clip_value)
        self._eager_update = partial(_clip_and_step, *self._update_arguments)
        self._update: Callable[[], None] = self._eager_update
        self.careful = how.check_every == 1 and not self.graphed  # whether each step is checked before it is made
        self.names: tuple[str, ...] = ()
        self._sums, self._last = self._zeros(0), self._zeros(1)  # one sum for each name, and the last loss
        self._order = torch.zeros(len(data[0]), dtype=torch.int64, device=self.device)
        self._start = torch.zeros((), dtype=torch.int64, device=self.device)  # of the next batch, for the graph
        self._places = torch.arange(how.batch, device=self.device)
        self._graph: Any = None

    def _zeros(self, count: int) -> Any:
        """Zeros in float64, on the GPU; on a CPU Python's numbers are faster than tensors of a few."""
        import torch

        on_cpu = self.device.type == "cpu"
        return array("d", [0.0] * count) if on_cpu else torch.zeros(count, dtype=torch.float64, device=self.device)

    def _compiler_options(self) -> dict[str, Any]:
        import torch

        able = self.device.type == "cuda" and "combo_kernels" in torch._inductor.list_options()
        return {"combo_kernels": True} if able else {}  # fuses independent kernels

    @property
    def sums(self) -> dict[str, float]:
        """The sums of the parts of the loss, each times the rows of its batch; reading waits for the device."""
        return dict(zip(self.names, self._sums.tolist(), strict=True))

    @sums.setter
    def sums(self, values: Mapping[str, float]) -> None:
        if values:
            self.names, self._sums = tuple(values), self._zeros(len(values))
        for place in range(len(self._sums)):
            self._sums[place] = values.get(self.names[place], 0.0)

    @property
    def last(self) -> float:
        """The loss of the last step."""
        return float(self._last[0])

    def is_sound(self, *, weights: bool) -> bool:
        """Whether the summed losses and, if requested, the weights are finite."""
        if not math.isfinite(self.sums.get("loss", 0.0)) or not math.isfinite(self.last):
            return False
        return self.careful or not weights or self.are_weights_finite()

    def are_weights_finite(self) -> bool:
        """Whether no weight is NaN or infinite; this waits for the device."""
        import torch

        return bool(torch.stack([torch.isfinite(weight).all() for weight in self.model.parameters()]).all())

    def begin(self, order: Any, place: int) -> None:
        """Start an epoch with this order of rows, at batch `place`."""
        import torch

        self._order.copy_(torch.from_numpy(order))
        self._start.fill_(place * self.how.batch)

    def step(self, place: int, rate: float) -> bool:
        """Make the step of a batch; a `careful` step that is not finite returns False and changes nothing."""
        set_rate(self.optimiser, rate)
        batch = self.how.batch
        rows = None if self.drawn else self._order[place * batch : (place + 1) * batch]
        if rows is not None and len(rows) < batch:  # not the shape that was compiled or recorded
            return self._step(rows, self.model.loss, self._eager_update)
        if not self.graphed:
            return self._step(rows, self.loss, self._update)
        if self._graph is None:
            self._record()
        self._graph.replay()
        return True

    def _step(self, rows: Any, loss: Callable[..., Any], update: Callable[[], None]) -> bool:
        import torch

        self.optimiser.zero_grad()
        batch = [self._gather(tensor, rows) for tensor in self.data]
        if self.how.precision == "bfloat16":
            with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
                parts = loss_parts(loss(*batch))
        else:
            parts = loss_parts(loss(*batch))
        parts["loss"].backward()
        if self.careful or self.how.clip is not None:
            limit = math.inf if self.how.clip is None else self.how.clip
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
            if self.careful and not (math.isfinite(float(norm)) and math.isfinite(float(parts["loss"].detach()))):
                return False
        update()
        if self.after_step is not None:
            with torch.no_grad():
                self.after_step()
        self._add(parts, len(batch[0]))
        return True

    def _gather(self, tensor: Any, rows: Any) -> Any:
        import torch

        batch = tensor if rows is None else tensor[rows]
        images = self.device.type == "cuda" and batch.ndim == 4
        return batch.contiguous(memory_format=torch.channels_last) if images else batch

    def _add(self, parts: Mapping[str, Any], count: int) -> None:
        import torch

        if not self.names:
            self.names, self._sums = tuple(parts), self._zeros(len(parts))
        if self.device.type == "cpu":
            if missing := [name for name in self.names if name not in parts]:
                raise InputError(f"the loss has no part {missing[0]}, which those of earlier steps have")
            for place, name in enumerate(self.names):
                self._sums[place] += count * parts[name].item()
            self._last[0] = parts["loss"].item()
        else:
            values = torch.stack([parts[name].detach().double() for name in self.names])
            self._sums += count * values
            self._last[0] = values[self.names.index("loss")]

    def _record(self) -> None:
        """Record the step as a CUDA graph; the state is the same afterwards."""
        import torch

        current, side = torch.cuda.current_stream(self.device), torch.cuda.Stream(self.device)
        with self._state_restored(), torch.cuda.stream(side):
            side.wait_stream(current)  # also for the copies of the state
            for _ in range(WARM_UP):
                self._recorded_step()
                self._start -= self.how.batch
                if self.compiled and self._update is self._eager_update:
                    self._update = _compile_update(*self._update_arguments)
        current.wait_stream(side)
        self.optimiser.zero_grad()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._recorded_step()
        except RuntimeError as error:
            raise InputError(
                f"the loss of the model cannot be recorded as a CUDA graph; use engine='eager' ({error})"
            ) from error
        self._graph = graph

    def _recorded_step(self) -> None:
        rows = None if self.drawn else self._order[self._start + self._places]
        self._step(rows, self.loss, self._update)
        self._start += self.how.batch

    @contextlib.contextmanager
    def _state_restored(self) -> Iterator[None]:
        """Restore weights, averages, sums and generators, in place, to their values before the block."""
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
    """The result of a model's `loss` as a dict, of which "loss" is minimised."""
    if not isinstance(loss, Mapping):
        return {"loss": loss}
    if "loss" not in loss:
        raise InputError(f"a loss with several parts must have one named 'loss'; got {', '.join(loss)}")
    return dict(loss)


def _averages(optimiser: Any) -> list[Any]:
    return [value for state in optimiser.state.values() for value in state.values() if hasattr(value, "zero_")]


def parameter_groups(model: Any) -> tuple[list[Any], list[Any]]:
    """The weights with weight decay, and those without.

    They are `decayed_parameters()` and `undecayed_parameters()` of the model; without these methods all are decayed.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not hasattr(model, "decayed_parameters"):
        return weights, []
    decayed = [weight for weight in model.decayed_parameters() if weight.requires_grad]
    rest = [weight for weight in model.undecayed_parameters() if weight.requires_grad]
    if sorted(map(id, (*decayed, *rest))) != sorted(map(id, weights)):
        raise InputError(
            f"decayed_parameters and undecayed_parameters must together have each of the {len(weights)} weights of the "
            f"model once; got {len(decayed)} and {len(rest)}"
        )
    return decayed, rest


def make_optimiser(model: Any, how: Training, *, on_device: bool = False, compiled: bool = False) -> Any:
    """Adam or AdamW over the groups of `parameter_groups`; only the first has weight decay.

    Without weight decay AdamW is Adam. With `on_device` the learning rate and the counts of steps are GPU tensors, so
    that a step can be recorded in a CUDA graph. With `compiled` it is suited to `_compile_update`.
    """
    import torch

    decayed, rest = parameter_groups(model)
    groups = [{"params": decayed, "weight_decay": how.weight_decay}]
    if rest:
        groups.append({"params": rest, "weight_decay": 0.0})
    device = next(iter((*decayed, *rest))).device
    rate: Any = torch.tensor(how.learning_rate, device=device) if on_device else how.learning_rate
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[how.optimiser]
    fast = {"fused": True} if how.fused else {}
    if device.type == "cuda":
        fast = {"foreach" if compiled else "fused": True, "capturable": on_device}
    return kind(groups, lr=rate, **fast)


def set_rate(optimiser: Any, rate: float) -> None:
    """Set the learning rate of all groups; one on a GPU is changed in place."""
    for group in optimiser.param_groups:
        if hasattr(group["lr"], "fill_"):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _clip_and_step(optimiser: Any, clipped: Sequence[Any], limit: float | None) -> None:
    _clip_elements(clipped, limit)
    optimiser.step()


def _compile_update(optimiser: Any, clipped: Sequence[Any], limit: float | None) -> Callable[[], None]:
    """Compile `_clip_and_step`. The optimiser must have made a step before, which allocates its averages.

    For the published autoencoder on an H200 that is 0.1 ms a step faster than clipping and torch's fused AdamW.
    """
    import torch

    step = inspect.unwrap(type(optimiser).step)  # without its hooks for profilers, which cannot be compiled

    def update() -> None:
        _clip_elements(clipped, limit)
        with torch.no_grad():
            step(optimiser)

    return cast("Callable[[], None]", torch.compile(update))


def _clip_elements(weights: Sequence[Any], limit: float | None) -> None:
    import torch

    if limit is not None:
        torch.nn.utils.clip_grad_value_(weights, limit)
