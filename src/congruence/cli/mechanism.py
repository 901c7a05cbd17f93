"""`congruence mechanism`: whether blocks of latents act on separate parts of the observation."""

from __future__ import annotations

from congruence.cli import _command as cli
from congruence.cli._load_decoder import Code, DecoderName, LatentsFile, examine, latents_of
from congruence.mechanism._options import MechanismOptions


@cli.command
def mechanism(
    name: DecoderName, options: MechanismOptions, outputs: cli.Outputs, latents: LatentsFile = None, code: Code = None
) -> None:
    """Do the factors act on separate parts of the observation?

    Imports a decoder by module or file, or loads that of a run folder, and
    checks blocks of its latents against the criteria of mechanistic
    independence; without --blocks it finds the blocks that the decoder
    supports. The code of the module is run. Examples:

        congruence mechanism mymodel:load_decoder latents.npy --blocks '0-1,2,3'

        congruence mechanism path/to/model.py:decoder latents.csv --json -
    """
    from congruence.mechanism.examination import examine_mechanism

    latents = latents_of(name, latents)
    cli.check_outputs(outputs, [one for one in (latents, options.codes) if one is not None])
    examine(examine_mechanism, name, latents, options, outputs, code, "model")
