"""`congruence decoder`: how much a decoder stretches lengths, and what follows from it."""

from __future__ import annotations

from dataclasses import replace

from congruence.cli import _command as cli
from congruence.cli._load_decoder import Code, DecoderName, LatentsFile, examine, is_run, latents_of
from congruence.decoder._options import DecoderOptions


@cli.command
def decoder(
    name: DecoderName, options: DecoderOptions, outputs: cli.Outputs, latents: LatentsFile = None, code: Code = None
) -> None:
    """Why is my representation (not) stable? What does the decoder guarantee?

    Imports a decoder by module or file, or loads that of a run folder,
    measures its bi-Lipschitz constant at every row of latents, and applies
    Theorem 1; with --other, to both decoders. The code of the module is run.

    For example:

        congruence decoder mypackage.model:load_decoder latents.npy

        congruence decoder path/to/model.py:decoder latents.csv --features 'z_*'

        congruence decoder runs/vae-0 --other runs/vae-1

        congruence decoder runs/MyModel-0 --code mymodel.py:MyModel
    """
    from congruence.decoder.examination import examine_decoder

    latents = latents_of(name, latents)
    if options.other is not None and options.other_latents is None and is_run(options.other):
        options = replace(options, other_latents=options.other)
    cli.check_outputs(outputs, [one for one in (latents, options.other_latents) if one is not None])
    examine(examine_decoder, name, latents, options, outputs, code, "other")
