"""`congruence mechanism`: whether blocks of latents act on separate parts of the observation."""

from __future__ import annotations

from dataclasses import replace

from congruence.cli import _command as cli
from congruence.cli._load_decoder import DecoderName, LatentsFile, load_decoder
from congruence.mechanism._options import MechanismOptions


@cli.command
def mechanism(name: DecoderName, latents: LatentsFile, options: MechanismOptions, outputs: cli.Outputs) -> None:
    """Do the factors act on separate parts of the observation?

    Imports a decoder from the current folder or from an installed package,
    and checks blocks of its latents against the criteria of mechanistic
    independence; without --blocks it finds the blocks that the decoder
    supports. The code of the module is run. Examples:

        congruence mechanism mypackage.model:load_decoder latents.npy --blocks '0-1,2,3-4' --report report.html

        congruence mechanism model:decoder latents.parquet --features 'z_*' --json -
    """
    from congruence.decoder.prepared_decoder import import_torch
    from congruence.mechanism.examination import examine_mechanism

    cli.check_outputs(outputs, [latents, *([] if options.codes is None else [options.codes])])
    import_torch()
    decoder = load_decoder(name)
    named = {"decoder": name}
    if options.model is not None:
        named["model"] = options.model
        options = replace(options, model=load_decoder(options.model))
    with cli.working(outputs) as progress:
        result = examine_mechanism(decoder, latents, options=options, progress=progress)
    cli.deliver(replace(result, settings=named | dict(result.settings)), outputs)
