"""`examine_mechanism`: do blocks of latents act on separate parts of the observation, and are they identified?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, cast

import numpy as np

from congruence.arrays import to_numpy
from congruence.checks import check_integer
from congruence.decoder._latents import read_latents
from congruence.decoder.stretch import unseen_share
from congruence.errors import InputError
from congruence.formatting import count, number
from congruence.mechanism._blocks import Blocks, read_blocks, write_blocks
from congruence.mechanism._options import MechanismOptions
from congruence.mechanism.block_check import BlockCheck, BlockCheckNumbers, check_blocks, check_orders
from congruence.mechanism.discovery import Discovery, discover
from congruence.mechanism.disentanglement import Disentanglement, measure_disentanglement
from congruence.mechanism.domains import LatentDomain
from congruence.mechanism.part_curve import PartCurve, measure_part_curve
from congruence.mechanism.profile import BlockProfile, profile_blocks
from congruence.mechanism.theorems import ORIGIN, Criterion, Theorem, apply_to_model, strongest
from congruence.options import takes
from congruence.progress import Progress
from congruence.result import Finding, Result, as_data, conclude

BlocksFrom = Literal["given", "D", "S", "H2", "near D", "none"]
_ORIGINS: Mapping[BlocksFrom, str] = {
    "given": "The blocks were specified by the user.",
    "D": "The blocks were discovered: the finest along the coordinates that act on disjoint outputs (Type D).",
    "S": "The blocks were discovered: the finest along the coordinates that make the Jacobian sparsest (Type S).",
    "H2": "The blocks were discovered: the finest along the coordinates whose curvatures do not mix (Type H2).",
    "near D": "No blocks are exact. These are the parts with disjoint outputs at a tolerance of {}.",
    "none": "No blocks were specified or discovered along the coordinates, so each latent is a block.",
}
_REASONS = {  # why a theorem identifies the blocks
    "D": "they act on disjoint outputs",
    "M_coord": "no latent moves all outputs of a latent of another block",
    "M_sparsest": "no direction of one moves all outputs of a direction of another",
    "S": "mixing them moves more outputs",
    "H2": "they are additive",
}


class MechanismNumbers(TypedDict):
    """The numbers of an examination; `blocks_from` is "given", the type that was discovered, or "none".

    "near D": no exact blocks were found, and these have disjoint outputs at the tolerance in the middle of `parts`.

    `parts` is the curve of parts with disjoint outputs over tolerances, `model_check` that of the model's decoder.
    """

    blocks: list[list[int]]
    blocks_from: BlocksFrom
    check: BlockCheckNumbers
    parts: dict[str, Any]
    model_check: BlockCheckNumbers | None
    profile: dict[str, Any]
    discovery: dict[str, Any] | None
    disentanglement: dict[str, Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class MechanismExamination(Result):
    """The answer to "do factors act on separate parts of the observation?".

    The first finding is that a theorem identifies the blocks: the conclusion of the strongest theorem, with its
    premises. Some of these are about a model: without one they are assumed, and the conclusion is unknown at best. With
    a model, two more findings state whether its codes are disentangled. ``examination["D"]`` is one criterion,
    ``examination["theorem2_D"]`` one theorem.
    """

    check: BlockCheck
    profile: BlockProfile
    curve: PartCurve  # parts with disjoint outputs over tolerances, in any basis
    discovery: Discovery | None  # None if blocks were set
    blocks_from: BlocksFrom
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    disentanglement: Disentanglement | None = None  # of the model, if there is one
    model_check: BlockCheck | None = None  # of the model's decoder in the blocks of its codes

    @property
    def strongest(self) -> Theorem:
        """The strongest theorem that applies to the blocks."""
        return strongest(self.check.theorems)

    @property
    def identified(self) -> Finding:
        """Whether a theorem identifies the blocks."""
        best = self.strongest
        claim = f"Theorem {best.number} (Type {best.criterion}) identifies the blocks {self.blocks_text}."
        assumed, rest = (
            ", ".join(one.name for one in best.open_premises if (one.name in best.assumed) == known)
            for known in (True, False)
        )
        evidence = f"Open premises: {rest or 'none'}." + (f" Assumed: {assumed}." if assumed else "")
        return conclude("identified", claim, best.conclusion.premises, evidence=evidence)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Whether the blocks are identified and, with a model, whether its codes are disentangled."""
        model = self.disentanglement
        return (self.identified,) if model is None else (self.identified, model.local, model.everywhere)

    @property
    def blocks_text(self) -> str:
        """The blocks as text, such as "0-1,2"."""
        return write_blocks(self.check.blocks)

    @property
    def headlines(self) -> tuple[str, ...]:
        """The sentences of the verdict, the answer first."""
        every = self.check.points
        names = [
            one.name if one.points == every else f"{one.name} (at {one.points})"  # S is computed at a few
            for one in self.check.criteria
            if one.status == "holds"
        ]
        small = f"with derivatives up to {number(self.check.tolerance.rtol, 1)} of the largest counted as zero"
        criteria = f"Criteria that hold at {count(every, 'point')}, {small}: {', '.join(names) or 'none'}"
        if names:
            few = {one.name: unseen_share(one.points) for one in self.check.criteria if one.status == "holds"}
            fewer = "".join(f", {100 * n:.2g} % for {name}," for name, n in few.items() if n > self.check.unseen)
            criteria += (
                f"; regions with less than {100 * self.check.unseen:.2g} % of the latents{fewer} are not excluded"
            )
        model = () if self.disentanglement is None else self.disentanglement.headlines  # at least one
        failing = [one.claim for one in self.strongest.conclusion.premises if one.status == "fails"]
        why = [f"This premise of Theorem {self.strongest.number} fails: “{claim}”" for claim in failing[:1] if model]
        origin = _ORIGINS[self.blocks_from].format(number(self.curve.middle, 1))
        return (self._answer, *why, f"{criteria}.", self.curve.sentence, origin, *model)

    @property
    def _answer(self) -> str:
        best = self.strongest
        why = _REASONS.get(best.criterion, f"no derivative of order {best.criterion[1:]} mixes them")
        if best.strength == "holds":
            return (
                f"Theorem {best.number} identifies the blocks {self.blocks_text} near the points: {why}, and the model "
                "fulfils its premises as well."
            )
        if best.strength == "conditional":
            like = "its Jacobian is as sparse" if best.number == 3 else f"is of Type {best.criterion}"
            model = f"If a model explains the same observations and {like}"
            return f"{model}, Theorem {best.number} identifies the blocks {self.blocks_text} near the points: {why}."
        if self.disentanglement is not None and best.strength == "premise fails":
            return f"No theorem identifies the blocks {self.blocks_text} in this model."
        if self.blocks_from == "none" and self.discovery is not None:
            for parts in self.discovery.found:
                if parts.dims is not None and len(parts.dims) > 1 and parts.agreeing == 1 and not parts.forced:
                    return f"The decoder has {len(parts.dims)} parts of type {parts.type}, but its latents mix them."
        return f"No theorem is known to identify the blocks {self.blocks_text}."

    def parts(self) -> dict[str, Finding | Criterion]:
        """The findings, the conclusions of the theorems and the criteria, by name."""
        return {**{one.name: one for one in self.findings}, **self.check.parts()}

    def numbers(self) -> MechanismNumbers:
        """Criteria, theorems, overlaps, discovered parts, and the disentanglement of a model."""
        return {
            "blocks": as_data(self.check.blocks),
            "blocks_from": self.blocks_from,
            "check": as_data(self.check),
            "parts": as_data(self.curve),
            "model_check": as_data(self.model_check),
            "profile": as_data(self.profile),
            "discovery": as_data(self.discovery),
            "disentanglement": as_data(self.disentanglement),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each criterion."""
        for one in self.check.criteria:
            values = {key: value for key, value in one.to_dict().items() if key not in ("claim", "sweep")}
            yield values | {"remarks": "; ".join(one.remarks)}


@takes(MechanismOptions)
def examine_mechanism(
    decoder: Any, latents: Any, *, options: MechanismOptions, progress: Progress | None = None
) -> MechanismExamination:
    """Check blocks of latents against the criteria of mechanistic independence; find blocks if none are set.

    Parameters
    ----------
    decoder : torch module or function
        Maps latents (rows, ...) to outputs (rows, ...). A module must be in evaluation mode; it is not changed.
    latents : array, tensor, frame, table or path
        The points, (n, d). Their distribution does not matter.
    progress : callable, optional
        Called as progress(what, done, total) while working.

    Returns
    -------
    MechanismExamination
        Its first finding is that a theorem identifies the blocks; its status is never better than that of its premises,
        of which some are about a model.

    References
    ----------
    Matthes et al. 2026, "Mechanistic Independence".
    """
    report = progress or (lambda what, done, total: None)
    if options.points is not None:
        check_integer("points", options.points)
    if options.codes is not None and options.model is None:
        raise InputError("codes require model, the decoder of the model that they belong to")
    texts: Sequence[Any] = options.orders  # on the command line
    given = [int(n) if isinstance(n, str) and n.isdigit() else n for n in texts]
    if not given:
        raise InputError("orders must be integers of at least 2, such as 2,3; got none")
    orders = check_orders(given)
    inputs = read_latents(latents, options, options.codes, "codes")
    every = to_numpy(inputs.values)
    chosen = np.arange(len(every))
    if options.points is not None and len(every) > options.points:
        chosen = np.sort(np.random.default_rng(options.seed).permutation(len(every))[: options.points])
    rows = every[chosen]
    shared: dict[str, Any] = {"chunk": options.chunk, "device": options.device}
    searching: dict[str, Any] = {**shared, "rtol": options.rtol, "budget": options.budget, "seed": options.seed}
    steps = 3 + (options.blocks is None)
    report("finding blocks" if options.blocks is None else "checking blocks", 0, steps)
    curve = measure_part_curve(decoder, rows, device=options.device, seed=options.seed)
    discovery, blocks = None, options.blocks
    origin: BlocksFrom = "given"
    if blocks is None:
        discovery = discover(decoder, rows, types=options.types, **searching)
        blocks, origin = _choose_blocks(discovery, curve)
        report("checking blocks", 1, steps)
    checking: dict[str, Any] = {**searching, "atol": options.atol, "scale": options.scale, "orders": orders}
    check = check_blocks(decoder, rows, blocks, **checking)
    report("measuring effects", steps - 2, steps)
    profile = profile_blocks(decoder, rows, check.blocks, rtol=check.tolerance.rtol, **shared)
    report("finished" if options.model is None else "examining the model", steps - 1, steps)
    model, model_check = None, None
    if options.model is not None:
        model = measure_disentanglement(
            decoder,
            options.model,
            rows,
            check.blocks,
            codes=None if inputs.second is None else to_numpy(inputs.second)[chosen],
            domain=LatentDomain.sample(every.reshape(len(every), -1)),
            device=options.device,
            seed=options.seed,
        )
        check, model_check = _check_model(check, options.model, model, checking)
    parts = (inputs, discovery, check, model)
    notes = [*(note for part in parts if part is not None for note in part.notes), ORIGIN]
    return MechanismExamination(
        check=check,
        profile=profile,
        curve=curve,
        discovery=discovery,
        blocks_from=origin,
        notes=tuple(dict.fromkeys(notes)),
        settings={
            **inputs.settings,
            "blocks": "discovered" if options.blocks is None else write_blocks(check.blocks),
            **({"types": [one.type for one in discovery.found]} if discovery else {}),
            **({"codes": "by inverting the model"} if options.model is not None and options.codes is None else {}),
            "points": len(rows),
            "rtol": check.tolerance.rtol,
            "atol": options.atol,
            "scale": options.scale,
            "orders": list(orders),
            "budget": options.budget,
            "seed": options.seed,
            "device": options.device,
        },
        disentanglement=model,
        model_check=model_check,
    )


def _check_model(
    check: BlockCheck, decoder: Any, model: Disentanglement, checking: Mapping[str, Any]
) -> tuple[BlockCheck, BlockCheck | None]:
    """Measure what the theorems assume about a model: its type in the blocks of its codes, and its outputs.

    The blocks are the codes that each factor moves most. If the premises hold for any blocks, the theorem says that
    they are these.
    """
    own, reason = None, ""
    if not all(model.code_blocks):
        reason = "No code belongs to one of the factors."
    elif model.codes is not None and model.reached.any():
        own = check_blocks(decoder, model.codes[model.reached], model.code_blocks, **checking)
    missed = float(np.max(model.misses)) if len(model.misses) else float("nan")
    theorems = apply_to_model(check.theorems, own.criteria if own else (), missed, model.sparse, reason)
    return replace(check, theorems=theorems), own


def _choose_blocks(discovery: Discovery, curve: PartCurve) -> tuple[Blocks, BlocksFrom]:
    """The partition of the first type that has more than one block, that of nearly disjoint parts, or single latents.

    A type whose parts any decoder of this size has is left out.
    """
    for parts in discovery.found:
        if parts.partition is not None and parts.dims and len(parts.partition) > 1:
            return parts.partition, cast(BlocksFrom, parts.type)
    if len(curve.blocks) > 1:
        return curve.blocks, "near D"
    return read_blocks(None, discovery.dimension), "none"
