"""The section "mechanism" of `calibration.py`: decoders whose blocks are known to act apart or not, and models of them.

Every simulation draws a decoder of two blocks of two latents and calls `examine_mechanism` with its default settings.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from calibration_readings import Cell, Quantity

BLOCKS = "0-1,2-3"
OUTPUTS = 12  # of each block
Decoder = Callable[[Any], Any]


@dataclass(frozen=True)
class Case:
    """A generator, the latents at which it is examined, and optionally a model of it with its codes."""

    decoder: Decoder
    latents: Any
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MechanismCell(Cell):
    """A cell whose truth is a `Case`, and whose quantities read a `MechanismExamination`."""

    def simulate(self, seed: int) -> list[Any]:
        from congruence.mechanism import examine_mechanism

        rng = np.random.default_rng([zlib.crc32(f"{self.section} {self.name} {self.n} {self.d}".encode()), seed])
        case = self.draw(rng, self.n, self.d)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"blocks": BLOCKS, "orders": (2,), "points": self.n} | case.options
            result = examine_mechanism(case.decoder, case.latents, **options)
        return [quantity.read(result) for quantity in self.quantities]


# Truths.


def slots(rng: Any, dtype: str = "float64") -> Decoder:
    """Two smooth maps of two latents, one below the other: Type D, irreducible."""
    import torch

    kind = getattr(torch, dtype)
    nets = [
        tuple(torch.as_tensor(rng.normal(size=size) / np.sqrt(size[1]), dtype=kind) for size in ((8, 2), (OUTPUTS, 8)))
        for _ in range(2)
    ]

    def decode(z: Any) -> Any:
        z = z.to(kind)
        parts = [torch.tanh(z[:, 2 * k : 2 * k + 2] @ a.T) @ b.T for k, (a, b) in enumerate(nets)]
        return torch.cat(parts, dim=1)

    return decode


def latents(rng: Any, n: int, d: int) -> Any:
    return rng.normal(size=(n, d))


def separate(rng: Any, n: int, d: int, dtype: str = "float64") -> Case:
    return Case(slots(rng, dtype), latents(rng, n, d))


def leaking(rng: Any, n: int, d: int, leak: float, dtype: str) -> Case:
    """The second block moves the outputs of the first by a share `leak`."""
    import torch

    decode = slots(rng, dtype)
    weights = torch.as_tensor(rng.normal(size=(2, 2 * OUTPUTS)), dtype=getattr(torch, dtype))
    weights[:, OUTPUTS:] = 0
    return Case(lambda z: decode(z) + leak * z[:, 2:].to(weights.dtype) @ weights, latents(rng, n, d))


def overlapping_rarely(rng: Any, n: int, d: int, share: float) -> Case:
    """The blocks overlap only where the first latent is among its largest values, in a share of the latents."""
    import torch
    from scipy.stats import norm

    decode, edge = slots(rng), float(norm.isf(share))

    def decode_all(z: Any) -> Any:
        extra = torch.relu(z[:, :1] - edge) ** 2 * z[:, 2:3]
        out = decode(z)
        return torch.cat([out[:, :1] + extra, out[:, 1:]], dim=1)

    return Case(decode_all, latents(rng, n, d))


def weak_block(rng: Any, n: int, d: int, strength: float, overlap: bool, scale: str) -> Case:
    """The second block acts `strength` times as much as the first, on the same outputs or on others."""
    import torch

    first, second = slots(rng), slots(rng)

    def decode(z: Any) -> Any:
        own, other = first(z), second(z)
        weak = strength * other[:, OUTPUTS:]
        parts = [own[:, :OUTPUTS] + weak, weak] if overlap else [own[:, :OUTPUTS], weak]
        return torch.cat(parts, dim=1)

    return Case(decode, latents(rng, n, d), {"scale": scale})


def modelled(rng: Any, n: int, d: int, entangled: bool) -> Case:
    """A model that reconstructs exactly, with codes that are the latents, rotated if they are entangled."""
    import torch

    decode, z = slots(rng), latents(rng, n, d)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0] if entangled else np.diag(rng.uniform(0.5, 2, size=d))
    back = torch.as_tensor(np.linalg.inv(turn))
    return Case(decode, z, {"model": lambda codes: decode(codes @ back), "codes": z @ turn})


def dense(rng: Any, n: int, d: int, outputs: int = 2 * OUTPUTS) -> Case:
    import torch

    a, b = (torch.as_tensor(rng.normal(size=size) / np.sqrt(size[1])) for size in ((16, d), (outputs, 16)))
    return Case(lambda z: torch.tanh(z @ a.T) @ b.T, latents(rng, n, d))


def saturated(rng: Any, n: int, d: int, outputs: int = 6) -> Case:
    """One dense layer with few outputs, whose blocks are not set: any such decoder has parts of Type H2 at a point."""
    import torch

    weights = torch.as_tensor(rng.normal(size=(outputs, d)))
    return Case(lambda z: torch.tanh(z @ weights.T), latents(rng, n, d), {"blocks": None})


def nearly_separate(rng: Any, n: int, d: int, noise: float) -> Case:
    """A decoder of Type D and a dense one, `noise` times as strong: as a trained network, without exact zeros."""
    apart, mixed = slots(rng), dense(rng, n, d).decoder
    return Case(lambda z: apart(z) + noise * mixed(z), latents(rng, n, d))


# Readings of the result.


def holds(name: str, result: Any) -> bool:
    return bool(result[name].status == "holds")


def holds_silently(name: str, result: Any) -> bool:
    """Whether it holds without a remark on derivatives that are not zero."""
    return holds(name, result) and not any("count as zero" in remark for remark in result[name].remarks)


def holds_without_rule(result: Any) -> bool:
    """Whether D holds, and no sentence says which regions the points may have missed."""
    return holds("D", result) and "are not excluded" not in result.verdict


def is_identified(result: Any) -> bool:
    return bool(result["identified"].status == "holds" or result.headlines[0].startswith("Theorem"))


def contradicts_codes(result: Any) -> bool:
    """Whether blocks are called identified in a model whose codes are called entangled."""
    return is_identified(result) and result["disentangled"].status == "fails"


def has_two_parts(result: Any) -> bool:
    return result.curve.longest is not None and result.curve.longest[0] == 2


def names_parts(result: Any) -> bool:
    """Whether the first sentence says that the decoder has parts."""
    return result.blocks_from != "none" or "parts of type" in result.headlines[0]


def grade(name: str, result: Any) -> float:
    """How far a criterion is from holding, over the same number for random directions."""
    return float(result[name].typical / result[name].null)


def rate(name: str, read: Callable[[Any], bool], least: float | None = None, most: float | None = None) -> Quantity:
    return Quantity(name, read, least, most)


def mechanism() -> Iterator[Cell]:
    """Blocks that act apart or not: float32, rare overlap, weak blocks, models, and decoders without exact zeros."""

    def cell(name: str, draw: Callable[..., Case], *quantities: Quantity, n: int = 50) -> Cell:
        return MechanismCell("mechanism", name, n, 4, draw, quantities)

    true, false = (rate("D holds", partial(holds, "D"), **limit) for limit in ({"least": 0.95}, {"most": 0.05}))
    silent = rate("D holds without a remark", partial(holds_silently, "D"), most=0.05)
    for dtype in ("float64", "float32"):
        yield cell(f"disjoint, {dtype}", partial(separate, dtype=dtype), true)
    for leak in (1e-7, 1e-6, 1e-5, 1e-4, 1e-2):
        above = (false,) if leak >= 1e-5 else ()  # the level of rounding is 2e-6
        yield cell(f"leak {leak:g}, float32", partial(leaking, leak=leak, dtype="float32"), silent, *above)
    yield cell("leak 1e-5, float64", partial(leaking, leak=1e-5, dtype="float64"), silent, false)
    for share in (0.01, 0.06, 0.1):
        found = (false,) if share >= 0.06 else (rate("D holds", partial(holds, "D")),)  # the rule of three: 3 / 50
        unsaid = rate("D holds, regions not named", holds_without_rule, most=0.05)
        yield cell(f"overlap in {share:g} of the latents", partial(overlapping_rarely, share=share), unsaid, *found)
    for scale in ("global", "column"):
        for strength in (1e-7, 1e-9):
            draw = partial(weak_block, strength=strength, overlap=True, scale=scale)
            yield cell(f"overlap, one block {strength:g} as strong, {scale}", draw, false)
    draw = partial(weak_block, strength=1e-7, overlap=False, scale="column")
    yield cell("disjoint, one block 1e-07 as strong, column", draw, true)
    contradiction = rate("identified though codes are entangled", contradicts_codes, most=0.05)
    for entangled in (True, False):
        limit = {"most": 0.05} if entangled else {"least": 0.95}
        name = f"model with {'entangled' if entangled else 'disentangled'} codes"
        identified = rate("identified", is_identified, **limit)
        yield cell(name, partial(modelled, entangled=entangled), identified, contradiction, n=20)
    chosen = rate("M_sparsest holds", partial(holds, "M_sparsest"), most=0.05)
    two = partial(rate, "two parts at some tolerance", has_two_parts)

    def graded(name: str, **limit: float) -> Quantity:
        return Quantity(f"{name}, over random directions", partial(grade, name), is_rate=False, **limit)

    names = ("D", "M_sparsest", "S")
    grades = [graded(name, least=0.5 if name == "S" else 0.8, most=1.5 if name == "S" else 1.2) for name in names]
    yield cell("dense, 24 outputs", dense, false, chosen, two(most=0.05), *grades, n=20)
    yield cell("dense, 768 outputs", partial(dense, outputs=768), false, chosen, n=3)
    named = rate("parts named in the headline", names_parts, most=0.05)
    yield cell("dense, 6 outputs, blocks not set", saturated, two(most=0.05), named, n=20)
    for noise in (0.003, 0.03):  # random directions may save no outputs at all, so S has no ratio here
        draw, small = partial(nearly_separate, noise=noise), [graded(name, most=0.1) for name in names if name != "S"]
        yield cell(f"disjoint, and {noise:g} of a dense one", draw, two(least=0.95), *small, n=20)
