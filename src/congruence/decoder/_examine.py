"""`examine_decoder`: how much a decoder stretches lengths, and what Theorem 1 guarantees."""

from __future__ import annotations

import math
from typing import Any

from congruence.decoder._latents import read_latents
from congruence.decoder._options import DecoderOptions
from congruence.decoder.bounds import Bound, theorem1
from congruence.decoder.examination import DecoderExamination
from congruence.decoder.premises import premises_of_theorem1
from congruence.decoder.probed import probe
from congruence.decoder.stretch import bilipschitz
from congruence.errors import InputError
from congruence.maps._diameter import diameter
from congruence.options import takes
from congruence.progress import Progress
from congruence.result import Finding, conclude

CLAIM = "Two trainings with such a decoder differ by a rigid motion, up to the bound."


@takes(DecoderOptions)
def examine_decoder(
    decoder: Any, latents: Any, *, options: DecoderOptions, progress: Progress | None = None
) -> DecoderExamination:
    """Measure how much a decoder stretches lengths at given latents, and apply Theorem 1.

    Parameters
    ----------
    decoder : torch module or function
        Maps latents (rows, ...) to outputs (rows, ...) of any shape. A module must be in evaluation mode. It is not
        changed.
    latents : array, tensor, frame, table or path
        The points, (n, d) or (n, ...).
    progress : callable, optional
        Called as progress(what, done, total) while working.
    id, features, metadata, key, drop_missing
        How a file, frame or table is read.
    other, other_latents : as `decoder` and `latents`, optional
        Another training and its latents of the same inputs: do the outputs agree? Tables are paired by row id where
        both have ids, else row by row.
    method, directions, chunk, device, seed
        As in `bilipschitz`.
    diameter : "auto" or float
        Of the support of the latents; "auto" takes that of the rows.
    constant : float, optional
        Your own c_D, as in `theorem1`.

    Returns
    -------
    DecoderExamination
        Its finding is the conclusion of Theorem 1, whose status is never better than that of its premises. A sample
        can refute the premises on the support and the decoder, and never proves them.

    References
    ----------
    Nelson et al. 2026, Theorem 1.
    """
    tell = progress or (lambda what, done, total: None)
    size = _diameter(options.diameter)
    if (options.other is None) != (options.other_latents is None):
        raise InputError("other and other_latents go together: a decoder and its latents of the same inputs")
    z = read_latents(latents, options, options.other_latents, "other_latents")
    tell("differentiating", 0, 2)
    stretch = bilipschitz(
        decoder,
        z.values,
        method=options.method,
        directions=options.directions,
        chunk=options.chunk,
        device=options.device,
        seed=options.seed,
    )
    tell("comparing distances", 1, 2)
    probed = probe(decoder, z.values, options.device)
    measured = diameter(probed.z).high if size is None else size
    bound = theorem1(stretch, measured, constant=options.constant) if measured != 0 else None
    other = None if options.other is None else probe(options.other, z.second, options.device)
    premises = premises_of_theorem1(probed, stretch, other, options.seed)
    return DecoderExamination(
        stretch=stretch,
        bound=bound,
        theorem1=_conclusion(bound, premises),
        diameter=measured,
        diameter_from="latents" if size is None else "given",
        notes=(*z.notes, *stretch.notes),
        settings={
            **z.settings,
            "points": stretch.n,
            "method": stretch.method,
            "diameter": "of the rows" if size is None else size,
            "constant": options.constant,
            "seed": options.seed,
            "device": str(probed.z.device),
        }
        | ({"directions": options.directions} if stretch.method == "directions" else {}),
    )


def _diameter(given: Any) -> float | None:
    """The diameter that was asked for; None for that of the rows."""
    if given is None or given == "auto":
        return None
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < math.inf:
        raise InputError(f"diameter must be 'auto' or a positive number, not {given!r}")
    return value


def _conclusion(bound: Bound | None, premises: tuple[Finding, ...]) -> Finding:
    """The conclusion of Theorem 1; its number is the bound as a share of the diameter, its null the trivial bound."""
    if bound is None:
        return conclude("theorem1", CLAIM, premises, evidence="All latents are the same point.")
    share, trivial = bound.epsilon / bound.diameter, bound.trivial / bound.diameter
    against = "no better than" if bound.vacuous else "against"
    evidence = (
        f"The bound is {100 * share:.3g} % of the diameter, {against} the trivial bound of {100 * trivial:.3g} %."
    )
    return conclude("theorem1", CLAIM, premises, evidence=evidence, number=share, null=trivial)
