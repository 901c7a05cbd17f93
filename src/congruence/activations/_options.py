"""The options of `extract`, for Python and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from congruence.options import DATA, option


@dataclass(frozen=True)
class ExtractOptions:
    """How inputs are read, and which outputs of layers are stored."""

    kind: str | None = option(
        None, "Content of the path of inputs: array, images or text; by default the suffix decides.", in_shell=False
    )
    key: str | None = option(None, "Array to read from a file with several.", panel=DATA)
    column: str | None = option(None, "Column of the table that holds the text.", panel=DATA)
    id: str | None = option(None, "Column of the table with row ids.", panel=DATA)
    size: int | None = option(
        None, "Crop images to squares of this side; by default that of the model's settings.", panel=DATA
    )
    mean: Sequence[float] | None = option(None, "Mean of the pixels in [0, 1], e.g. 0.485,0.456,0.406.", panel=DATA)
    std: Sequence[float] | None = option(None, "Standard deviation of the pixels, e.g. 0.229,0.224,0.225.", panel=DATA)
    revision: str | None = option(None, "Commit of a model on a hub (40 hex digits).")
    pool: str = option(
        "none",
        "Positions (tokens, patches, pixels) of an input that become rows: none (all, with ids input:position), mean "
        "(their mean), cls (the first), last (the last that is not padding) or patch (one drawn at random).",
    )
    skip: int = option(0, "Number of first positions that mean, patch and none leave out, such as a class token.")
    context: int = option(
        40, "With pool none, characters of the text to both sides of a token that are kept as metadata; 0 for none."
    )
    batch: int = option(64, "Number of inputs per forward pass.")
    precision: str = option("float32", "float32; or bfloat16 or float16, which run the model under autocast.")
    fast: bool = option(
        False,
        "On a GPU, allow kernels whose results differ between calls; without it, an operation without a deterministic "
        "kernel fails.",
    )
    seed: int = option(0, "The same seed gives the same result.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
