"""The models by name, and the values that were published for them on each data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from congruence.errors import InputError

HOMES = {
    "ae": ("autoencoders", "AutoEncoder"),
    "vae": ("vaes", "VAE"),
    "tcvae": ("vaes", "TCVAE"),
    "bioae": ("autoencoders", "BioAE"),
    "vqvae": ("quantised", "VQVAE"),
    "qlae": ("quantised", "QLAE"),
}
MODELS = tuple(HOMES)  # of images, with settings that were published for each data set
MIXTURE_HOMES = {
    "vade": ("vade", "VaDE"),
    "mfcvae": ("faceted_vaes", "MFCVAE"),
    "mixvae": ("mixture_vaes", "MixtureVAE"),
    "ivae": ("auxiliary_vaes", "IVAE"),
}
MIXTURES = tuple(MIXTURE_HOMES)  # whose prior is a Gaussian mixture, of rows or images

# Twice the number of factors.
LATENTS = {"shapes3d": 12, "mpi3d": 14, "falcor3d": 14, "isaac3d": 18}
BETA = {"shapes3d": 3.0, "mpi3d": 0.1, "falcor3d": 10.0, "isaac3d": 0.3}
TC = {"shapes3d": 3.0, "mpi3d": 0.3, "falcor3d": 3.0, "isaac3d": 1.0}
ACTIVITY = {"shapes3d": 0.01, "mpi3d": 0.01, "falcor3d": 0.01, "isaac3d": 0.1}
DECAY = {
    "ae": {"shapes3d": 1e-3, "mpi3d": 1e-3, "falcor3d": 0.0, "isaac3d": 0.0},
    "bioae": dict.fromkeys(LATENTS, 1e-4),
    "qlae": {"shapes3d": 0.1, "mpi3d": 1e-3, "falcor3d": 0.1, "isaac3d": 0.1},
}

# Data that the authors did not train on. Rooms are a twin of Shapes3D. For the others the choice is ours: the values of
# Shapes3D, but a beta of 1 and a weight of 1 for the total correlation, since most of their pixels are black and their
# cross-entropy small; latents are twice the factors of sprites, and as many for handwritten digits.
STANDS_FOR = {"rooms": "shapes3d", "sprites": "shapes3d", "dsprites": "shapes3d", "mnist": "shapes3d"}
OURS = {name: {"latents": 10, "beta": 1.0, "tc": 1.0} for name in ("sprites", "dsprites", "mnist")}
DATA = (*LATENTS, *STANDS_FOR)


def build_model(config: Mapping[str, Any]) -> Any:
    """A model from what its `config()` gave, or from the same by hand: {"model": "vae", "latents": 10, "net": "small"}.

    The first weights are those of the config's seed; trained ones are put in with `load_state_dict`.
    """
    options = dict(config)
    kind = _class(options.pop("model", None))
    try:
        return kind(**options)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:  # the last where no memory is that large
        raise InputError(f"the config of a model cannot be used: {error}") from error


def published_settings(model: str, data: str) -> dict[str, Any]:
    """The keyword arguments of a model (a name of `MODELS`) that Hsu et al. chose for a data set (a name of `DATA`).

    Rooms are given the values of Shapes3D; those of sprites, dSprites and MNIST are ours. The shape of images, and the
    number of rows that a TCVAE wants to know, are those of the data at hand, and not told here.
    """
    known = _known(model, data)
    ours = OURS.get(data, {})
    settings: dict[str, Any] = {"latents": ours.get("latents", LATENTS[known])}
    if model == "vae":
        settings["beta"] = ours.get("beta", BETA[known])
    elif model == "tcvae":
        settings["tc"] = ours.get("tc", TC[known])
    elif model == "bioae":
        settings |= {"nonnegativity": 1.0, "activity": ACTIVITY[known]}
    elif model == "vqvae":
        settings |= {"values": 512, "quantisation": 1.0, "commitment": 0.25}
    elif model == "qlae":
        settings |= {"values": 10, "quantisation": 0.01, "commitment": 0.01}
    return settings


def published_weight_decay(model: str, data: str) -> float:
    """The weight decay that goes with `published_settings`; the authors also train a VQ-VAE with 0.01."""
    known = _known(model, data)
    return DECAY.get(model, {}).get(known, 0.0)


def mixture_settings(model: str, *, images: bool, latents: int | None = None, clusters: int = 10) -> dict[str, Any]:
    """The keyword arguments of a model of `MIXTURES` that we start from, for images or for rows.

    For images the widths are those that were published for MNIST, 500-500-2000 for VaDE and 500-2000 for the ladder
    of MFCVAE, with 10 latents; for rows the choice is ours.

    Parameters
    ----------
    latents : int, optional
        How many numbers tell a row; 10 for images.
    clusters : int
        How many the data has; for MFCVAE on images it is 25 in each facet, as published.
    """
    if model not in MIXTURES:
        raise InputError(f"model must be one of {', '.join(MIXTURES)}, not {model!r}")
    settings: dict[str, Any] = {"latents": latents or (10 if images else 2)}
    settings["hidden"] = [500, 500, 2000] if images else [50, 50]
    settings |= {"activation": "relu", "noise": 0.1}
    if model == "vade":
        settings |= {"clusters": clusters, "pretraining": 2000}
    elif model == "mfcvae":
        ladder = {"clusters": 25, "hidden": [500, 2000]} if images else {"clusters": clusters}
        settings |= {"facets": 2, "fade": 0, "pretraining": 2000} | ladder
    elif model == "ivae":
        settings |= {"classes": clusters}
    return settings


def _known(model: str, data: str) -> str:
    if model not in MODELS:
        raise InputError(f"model must be one of {', '.join(MODELS)}, not {model!r}")
    if data not in DATA:
        raise InputError(f"data must be one of {', '.join(DATA)}, not {data!r}")
    return STANDS_FOR.get(data, data)


def _class(model: Any) -> Any:
    from importlib import import_module

    homes = HOMES | MIXTURE_HOMES
    if model not in homes:
        raise InputError(f"the config of a model must name one of {', '.join(homes)} as its 'model', not {model!r}")
    module, name = homes[model]
    return getattr(import_module(f"congruence.experiments.models.{module}"), name)
