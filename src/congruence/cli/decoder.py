"""`congruence decoder`: how much a decoder stretches lengths, and what follows from it."""

from __future__ import annotations

from dataclasses import replace

from congruence.cli import _command as cli
from congruence.cli._load_decoder import DecoderName, LatentsFile, load_decoder
from congruence.decoder._options import DecoderOptions


@cli.command
def decoder(name: DecoderName, latents: LatentsFile, options: DecoderOptions, outputs: cli.Outputs) -> None:
    """Why is my representation (not) stable? What does the decoder guarantee?

    Imports a decoder from the current folder or from an installed package,
    measures its bi-Lipschitz constant at every row of latents, and applies
    Theorem 1. The code of the module is run. Examples:

        congruence decoder mypackage.model:load_decoder latents.npy

        congruence decoder model:decoder latents.parquet --features 'z_*' --report report.html
    """
    from congruence.decoder.examination import examine_decoder
    from congruence.decoder.prepared_decoder import import_torch

    cli.check_outputs(outputs, [latents, *([] if options.other_latents is None else [options.other_latents])])
    import_torch()
    loaded = load_decoder(name)
    named = {"decoder": name}
    if options.other is not None:
        named["other"] = options.other
        options = replace(options, other=load_decoder(options.other))
    with cli.working(outputs) as progress:
        result = examine_decoder(loaded, latents, options=options, progress=progress)
    cli.deliver(replace(result, settings=named | dict(result.settings)), outputs)
