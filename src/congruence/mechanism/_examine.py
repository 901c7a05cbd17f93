"""`examine_mechanism`: do blocks of latents act on separate parts of the observation?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from congruence.arrays import Array, to_numpy
from congruence.decoder._latents import Latents, read_latents
from congruence.errors import InputError
from congruence.mechanism._options import MechanismOptions
from congruence.mechanism.blocks import Blocks, read_blocks, write_blocks
from congruence.mechanism.checking import check_blocks
from congruence.mechanism.decomposable import Disentanglement, measure_disentanglement
from congruence.mechanism.discovery import Discovery, discover
from congruence.mechanism.domains import LatentDomain
from congruence.mechanism.examination import BlocksFrom, MechanismExamination
from congruence.mechanism.profile import profile_blocks
from congruence.options import takes
from congruence.progress import Progress


@takes(MechanismOptions)
def examine_mechanism(
    decoder: Any, latents: Any, *, options: MechanismOptions, progress: Progress | None = None
) -> MechanismExamination:
    """Check blocks of latents against the criteria of mechanistic independence; find blocks where none are given.

    Parameters
    ----------
    decoder : torch module or function
        Maps latents (rows, ...) to outputs (rows, ...). A module must be in evaluation mode; it is not changed.
    latents : array, tensor, frame, table or path
        The points, (n, d). How they are distributed does not matter.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    id, features, metadata, key, drop_missing
        How a file, frame or table is read.
    blocks : as in `read_blocks`, optional
        Found by `discover` unless given: the first type of `types` with more than one block along the coordinates.
    model : torch module or function, optional
        The decoder of a model, where `decoder` is the generator of its data: are its codes disentangled? The rows of
        latents stand for the domain.
    codes : as `latents`, optional
        The model's codes of the same rows; searched for unless given. Tables are paired by row id where both have
        ids, else row by row.
    points : int, optional
        How many rows to examine, drawn with `seed`; None for all.
    types
        As in `discover`; used where no blocks are given.
    rtol, atol, scale, orders, budget, chunk, device, seed
        As in `check_blocks`. Blocks are found by `rtol` alone.

    Returns
    -------
    MechanismExamination
        Its first finding is that a theorem identifies the blocks; its status is never better than the premises'.

    References
    ----------
    Matthes et al. 2026, "Mechanistic Independence".
    """
    tell = progress or (lambda what, done, total: None)
    if options.points is not None and (isinstance(options.points, bool) or options.points < 1):
        raise InputError(f"points must be a number of rows of at least 1, or None for all, not {options.points!r}")
    if options.codes is not None and options.model is None:
        raise InputError("codes are those of a model: give its decoder as model")
    orders = _orders(options.orders)
    given = read_latents(latents, options, options.codes, "codes")
    every = to_numpy(given.values)
    chosen = _some(len(every), options.points, options.seed)
    rows = every[chosen]
    steps = 3 + (options.blocks is None)
    tell("finding blocks" if options.blocks is None else "checking blocks", 0, steps)
    shared: dict[str, Any] = {"chunk": options.chunk, "device": options.device}
    discovery, blocks = None, options.blocks
    origin: BlocksFrom = "given"
    if blocks is None:
        discovery = discover(
            decoder, rows, types=options.types, rtol=options.rtol, budget=options.budget, seed=options.seed, **shared
        )
        blocks, origin = _chosen(discovery)
        tell("checking blocks", 1, steps)
    check = check_blocks(
        decoder,
        rows,
        blocks,
        rtol=options.rtol,
        atol=options.atol,
        scale=options.scale,
        orders=orders,
        budget=options.budget,
        seed=options.seed,
        **shared,
    )
    tell("measuring effects", steps - 2, steps)
    profile = profile_blocks(decoder, rows, check.blocks, rtol=check.tolerance.rtol, **shared)
    tell("finished" if options.model is None else "examining the model", steps - 1, steps)
    model = None if options.model is None else _model(decoder, options, given, every, chosen, check.blocks)
    notes = [*given.notes, *(discovery.notes if discovery else ()), *check.notes, *(model.notes if model else ())]
    return MechanismExamination(
        check=check,
        profile=profile,
        discovery=discovery,
        blocks_from=origin,
        notes=tuple(dict.fromkeys(notes)),
        settings={
            **given.settings,
            "blocks": "found" if options.blocks is None else write_blocks(check.blocks),
            **({"types": [one.type for one in discovery.found]} if discovery else {}),
            **({"codes": "searched for"} if options.model is not None and options.codes is None else {}),
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
    )


def _orders(orders: Sequence[Any]) -> tuple[int, ...]:
    """Orders of derivatives without repetitions; on the command line they are text."""
    numbers = [int(n) if isinstance(n, str) and n.isdigit() else n for n in orders]
    wrong = next((n for n in numbers if isinstance(n, bool | str) or n != int(n) or n < 2), None)
    if wrong is not None or not numbers:
        raise InputError(f"orders must be whole numbers of at least 2, such as 2,3, not {wrong!r}")
    return tuple(dict.fromkeys(int(n) for n in numbers))


def _some(n: int, points: int | None, seed: int) -> Array:
    """The numbers of at most `points` of n rows, in their order."""
    if points is None or n <= points:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).permutation(n)[:points])


def _chosen(discovery: Discovery) -> tuple[Blocks, BlocksFrom]:
    """The partition of the first type that has more than one block, or single latents."""
    for found in discovery.found:
        if found.partition is not None and found.dims and len(found.partition) > 1:
            return found.partition, cast(BlocksFrom, found.type)
    return read_blocks(None, discovery.dimension), "none"


def _model(
    generator: Any, options: MechanismOptions, given: Latents, every: Array, chosen: Array, blocks: Blocks
) -> Disentanglement:
    """Whether the codes of a model are disentangled; all rows stand for the domain."""
    return measure_disentanglement(
        generator,
        options.model,
        every[chosen],
        blocks,
        codes=None if given.second is None else to_numpy(given.second)[chosen],
        domain=LatentDomain.sample(every.reshape(len(every), -1)),
        device=options.device,
        seed=options.seed,
    )
