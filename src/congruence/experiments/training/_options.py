"""The options of `train`, for Python and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from congruence.options import DATA, ReadOptions, option

MODEL, MIXTURE = "Model and loss", "Models with a mixture prior"  # panels of --help


@dataclass(frozen=True)
class TrainOptions(ReadOptions):
    """What is trained, on which data, and how. Options of the model that are None have their published values."""

    n: int | None = option(
        None, "Number of images or rows, drawn at random; all by default, 10,000 of generated rows.", panel=DATA
    )
    continuous: bool = option(False, "Factors of rooms and sprites from ranges, not levels.", panel=DATA)
    size: int | None = option(None, "Scale images of a folder and crop them to squares of this side.", panel=DATA)

    weight_decay: float | None = option(None, "Of all weights but biases; as published by default.", panel=MODEL)
    latents: int | None = option(None, "Dimensions of a code; twice the number of factors by default.", panel=MODEL)
    net: str = option("auto", "published, small, or auto: small on a CPU.", panel=MODEL)
    beta: float | None = option(None, "vae: weight of the divergence.", panel=MODEL)
    tc: float | None = option(None, "tcvae: weight of the total correlation.", panel=MODEL)
    nonnegativity: float | None = option(None, "bioae: weight of negative codes.", panel=MODEL)
    activity: float | None = option(None, "bioae: weight of the squared codes.", panel=MODEL)
    values: int | None = option(None, "vqvae, qlae: number of values of a latent.", panel=MODEL)
    quantisation: float | None = option(None, "vqvae, qlae: weight that moves the values.", panel=MODEL)
    commitment: float | None = option(None, "vqvae, qlae: weight that keeps codes near values.", panel=MODEL)

    clusters: int | None = option(
        None, "Components of the prior (of each facet); as many as the data has by default.", panel=MIXTURE
    )
    facets: int | None = option(None, "mfcvae: parts of the code, each with a mixture.", panel=MIXTURE)
    activation: str | None = option(None, "relu or leaky_relu; relu by default.", panel=MIXTURE)
    hidden: str | Sequence[int] | None = option(None, "Widths of layers, e.g. 50,50.", panel=MIXTURE)
    noise: float | None = option(None, "Rows: standard deviation of the likelihood; 0.1 by default.", panel=MIXTURE)
    pretraining: int | None = option(None, "vade, mfcvae: steps as a plain autoencoder first.", panel=MIXTURE)
    fade: int | None = option(None, "mfcvae: steps over which a facet is faded in.", panel=MIXTURE)
    prior: Any = option(
        None, "mixvae: .npz or .json with weights, means, covariances; N(0, I) by default.", panel=MIXTURE
    )
    auxiliary: str | None = option(
        None, "ivae: the factor it observes; the first one with levels by default.", panel=MIXTURE
    )

    seeds: str | Sequence[int] = option("0", "One training for each, e.g. 0,1,2 or 0-4.")
    steps: int = option(20_000, "Number of steps; published: 200000. More than a finished training has continue it.")
    batch: int = option(128, "Images or rows in a step.")
    learning_rate: float = option(1e-3, "Of AdamW.")
    device: str = option("auto", "auto, cpu, cuda or cuda:1.")
    precision: str = option("auto", "float32, bfloat16, or auto: the latter on a GPU.")
    deterministic: bool = option(False, "Same seed and device, same weights to the bit.")
    jobs: int = option(1, "Processes that train at once.")


OF_MODELS = (
    "beta", "tc", "nonnegativity", "activity", "values", "quantisation", "commitment", "clusters", "facets",
    "activation", "hidden", "noise", "pretraining", "fade", "prior", "auxiliary",
)  # fmt: skip
