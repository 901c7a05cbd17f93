"""The decoder of a command: `mypackage.model:load`, `path/to/file.py:load` or a run folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from congruence.cli import _command as cli
from congruence.errors import InputError
from congruence.importing import load_named
from congruence.options import DATA

DecoderName = Annotated[
    str,
    cli.argument(
        "module:function or path/to/file.py:function, which returns the decoder, or a run folder of train.",
        metavar="DECODER",
    ),
]
LatentsFile = Annotated[
    str | None,
    cli.argument(
        "Table of latents (.npy .csv .parquet ...); of a run folder, its own by default.", metavar="[LATENTS]"
    ),
]
Code = Annotated[
    str | None,
    cli.flag(
        help="The class of the model of a run folder, if that is one of your own; its code is run.",
        panel=DATA,
        metavar="FILE.PY:CLASS",
    ),
]


def latents_of(name: str, latents: str | None) -> str:
    """The latents of a decoder: the file given or, for a run folder, the folder itself."""
    if latents is not None:
        return latents
    if not is_run(name) and ":" not in name and not Path(name).exists():
        raise InputError(f"there is no run folder {name}")
    if not is_run(name):
        raise InputError(f"LATENTS must be given, since {name!r} is not a run folder with latents of its own")
    return name


def is_run(name: str) -> bool:
    """Whether a name is that of a folder of `congruence train`."""
    return (Path(name) / "config.json").is_file()


def load_decoder(name: str, code: str | None = None) -> Any:
    """Import a decoder, which may be anything callable, or load that of a run folder."""
    if is_run(name):
        return _load_run(name, code)
    decoder = load_named(name, "decoder")
    if not callable(decoder):
        raise InputError(f"{name} must return a callable decoder; got {type(decoder).__name__}")
    return decoder


def examine(
    verb: Callable[..., Any], name: str, latents: str, options: Any, outputs: cli.Outputs, code: str | None, also: str
) -> None:
    """Load a decoder, and the one that the option `also` names; examine it and deliver the result."""
    from congruence.decoder.prepared_decoder import import_torch

    import_torch()
    named, decoder, second = {"decoder": name}, load_decoder(name, code), getattr(options, also)
    if second is not None:
        named[also] = second
        options = replace(options, **{also: load_decoder(second, code)})
    with cli.working(outputs) as progress:
        result = verb(decoder, latents, options=options, progress=progress)
    cli.deliver(replace(result, settings=named | dict(result.settings)), outputs)


def _load_run(folder: str, code: str | None) -> Any:
    """The decoder of a training, as a torch module."""
    import torch

    from congruence.experiments.training import load_model

    class Decoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, codes: Any) -> Any:
            return self.model.decode(codes)

    return Decoder(load_model(folder, code)).eval()
