"""The models by name, the values that were published for them on each data set, and their configs for `train`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from congruence.checks import check_choice
from congruence.errors import InputError
from congruence.experiments.models.own_models import build_own
from congruence.guards import PRIOR_BYTES, read_object
from congruence.tables.access import read_npz_arrays

if TYPE_CHECKING:
    from congruence.experiments.data.registry import DataOutline

# Classes of models of images, with published settings, and of rows or images with a Gaussian mixture as the prior.
MODELS = {"ae": "AutoEncoder", "vae": "VAE", "tcvae": "TCVAE", "bioae": "BioAE", "vqvae": "VQVAE", "qlae": "QLAE"}
MIXTURES = {"vade": "VaDE", "mfcvae": "MFCVAE", "mixvae": "MixtureVAE", "ivae": "IVAE"}

# Latents are twice the number of factors.
LATENTS = {"shapes3d": 12, "mpi3d": 14, "falcor3d": 14, "isaac3d": 18}
BETA = {"shapes3d": 3.0, "mpi3d": 0.1, "falcor3d": 10.0, "isaac3d": 0.3}
TC = {"shapes3d": 3.0, "mpi3d": 0.3, "falcor3d": 3.0, "isaac3d": 1.0}
ACTIVITY = {"shapes3d": 0.01, "mpi3d": 0.01, "falcor3d": 0.01, "isaac3d": 0.1}
DECAY = {
    "ae": {"shapes3d": 1e-3, "mpi3d": 1e-3, "falcor3d": 0.0, "isaac3d": 0.0},
    "bioae": dict.fromkeys(LATENTS, 1e-4),
    "qlae": {"shapes3d": 0.1, "mpi3d": 1e-3, "falcor3d": 0.1, "isaac3d": 0.1},
}

# Data sets that the authors did not train on take the values of Shapes3D, which rooms imitate. For the others we chose
# a beta of 1 and a weight of 1 for the total correlation, since most of their pixels are black and their cross-entropy
# is small; latents are twice the factors of sprites, and as many for handwritten digits.
STANDS_FOR = {"rooms": "shapes3d", "sprites": "shapes3d", "dsprites": "shapes3d", "mnist": "shapes3d"}
OWN = "your own images"
STANDS_FOR |= {OWN: "shapes3d"}
OURS = {name: {"latents": 10, "beta": 1.0, "tc": 1.0} for name in ("sprites", "dsprites", "mnist", OWN)}
DATA = (*LATENTS, *STANDS_FOR)
_GENERAL = ("model", "latents", "net", "shape", "seed", "dataset_size")  # in every config, or from the data


def build_model(config: Mapping[str, Any], maker: Any = None) -> Any:
    """Build a model from its `config()`, or from one written by hand: {"model": "vae", "latents": 10, "net": "small"}.

    Initial weights are those of the config's seed; trained ones are loaded with `load_state_dict`. `maker` makes a
    model of the user's: a module, class or function, or the name of one (`file.py:Class`), whose code is run.
    """
    from congruence.experiments import models

    if maker is not None:
        return build_own(config, maker)
    options, classes = dict(config), MODELS | MIXTURES
    name = options.pop("model", None)
    if name not in classes:
        raise InputError(f"'model' in the config of a model must be one of {', '.join(classes)}; got {name!r}")
    try:
        return getattr(models, classes[name])(**options)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError if the memory does not suffice
        raise InputError(f"cannot build {name} from its config: {error}") from error


def is_known(config: Any) -> bool:
    """Whether a config is that of a model of congruence, which `build_model` can make without the user's code."""
    return isinstance(config, Mapping) and config.get("model") in (*MODELS, *MIXTURES)


def published_settings(model: str, data: str) -> dict[str, Any]:
    """The keyword arguments of a model (a name of `MODELS`) that Hsu et al. chose for a data set (a name of `DATA`).

    Rooms have the values of Shapes3D; those of sprites, dSprites and MNIST are ours. The shape of images and the number
    of rows of a TCVAE depend on the data and are not included.
    """
    known, ours = _published_name(model, data), OURS.get(data, {})
    settings: dict[str, Any] = {"latents": ours.get("latents", LATENTS[known])}
    own: dict[str, dict[str, Any]] = {
        "vae": {"beta": ours.get("beta", BETA[known])},
        "tcvae": {"tc": ours.get("tc", TC[known])},
        "bioae": {"nonnegativity": 1.0, "activity": ACTIVITY[known]},
        "vqvae": {"values": 512, "quantisation": 1.0, "commitment": 0.25},
        "qlae": {"values": 10, "quantisation": 0.01, "commitment": 0.01},
    }
    return settings | own.get(model, {})


def published_weight_decay(model: str, data: str) -> float:
    """The weight decay that belongs to `published_settings`; the authors also train a VQ-VAE with 0.01."""
    known = _published_name(model, data)
    return DECAY.get(model, {}).get(known, 0.0)


def _published_name(model: str, data: str) -> str:
    check_choice("model", model, MODELS)
    check_choice("data", data, DATA)
    return STANDS_FOR.get(data, data)


def mixture_settings(model: str, *, images: bool, latents: int | None = None, clusters: int = 10) -> dict[str, Any]:
    """Our default keyword arguments of a model of `MIXTURES`, for images or for rows.

    For images the widths are those published for MNIST, 500-500-2000 for VaDE and 500-2000 for the ladder of MFCVAE,
    with 10 latents; for rows the choice is ours.

    Parameters
    ----------
    model : str
        A name of `MIXTURES`.
    images : bool
        Whether the data are images.
    latents : int, optional
        By default 10 for images and 2 for rows.
    clusters : int
        Clusters of the data; MFCVAE on images has 25 in each facet, as published.
    """
    check_choice("model", model, MIXTURES)
    settings: dict[str, Any] = {"latents": latents or (10 if images else 2)}
    settings |= {"hidden": [500, 500, 2000] if images else [50, 50], "activation": "relu", "noise": 0.1}
    ladder = {"clusters": 25, "hidden": [500, 2000]} if images else {"clusters": clusters}
    own: dict[str, dict[str, Any]] = {
        "vade": {"clusters": clusters, "pretraining": 2000},
        "mfcvae": {"facets": 2, "fade": 0, "pretraining": 2000} | ladder,
        "ivae": {"classes": clusters},
    }
    return settings | own.get(model, {})


def model_config(
    model: str, data: DataOutline, n: int | None, *, latents: int | None, net: str, device: str, own: Mapping[str, Any]
) -> tuple[dict[str, Any], float]:
    """The config of a model without its seed, and the published weight decay.

    `own` has the options by name, None if not given; options that the model does not have are refused.
    """
    given = {name: value for name, value in own.items() if value is not None}
    given |= {} if latents is None else {"latents": latents}
    if model in MIXTURES:
        if net != "auto":
            raise InputError(f"net is not an option of {model}, whose nets are dense; hidden sets their widths")
        return _mixture_config(model, data, given), 0.0
    if model not in MODELS:
        raise InputError(f"model must be one of {', '.join((*MODELS, *MIXTURES))}, or file.py:Class; got {model!r}")
    if len(data.shape) != 3:
        raise InputError(f"{model} takes images, but {data.name} has rows; models of rows: {', '.join(MIXTURES)}")
    known = OWN if data.own else data.name
    settings = published_settings(model, known)
    _check_options(model, given, settings)
    settings |= given
    if model == "tcvae":
        settings["dataset_size"] = data.count if n is None else n
    config = {"model": model, **settings, "net": _resolve_net(net, data.shape, device), "shape": list(data.shape)}
    return config, published_weight_decay(model, known)


def _mixture_config(model: str, data: DataOutline, given: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    known = mixture_settings(model, images=False)
    extra = {"mixvae": ("prior",), "ivae": ("auxiliary",)}.get(model, ())
    _check_options(model, given, (*(name for name in known if name != "classes"), *extra))
    observed = given.pop("auxiliary", None)
    images = len(data.shape) == 3
    if not images and data.clusters is None and "clusters" in known and "clusters" not in given:
        raise InputError(f"clusters must be given for {model}, since {data.name} does not say how many it has")
    rows: dict[str, Any] = {} if images else {"latents": data.latents, "clusters": data.clusters or 1}
    settings = mixture_settings(model, images=images, **rows)
    if "hidden" in given:
        given["hidden"] = _parse_widths(given["hidden"])
    if "prior" in given:
        prior = given["prior"]
        given["prior"] = _check_prior(prior, "prior") if isinstance(prior, Mapping) else _read_prior(Path(prior))
        given.setdefault("latents", np.shape(given["prior"]["means"])[1])
    if model == "ivae":
        levels = [name for name, size in data.sizes.items() if size is not None]
        name = observed if observed is not None or not levels else levels[0]
        if name not in levels:
            listed = ", ".join(levels) or "it has none"
            raise InputError(f"auxiliary must be a factor of {data.name} with levels ({listed}); got {name!r}")
        settings |= {"auxiliary": name, "classes": data.sizes[name]}
    return {"model": model, **settings, **given, "shape": list(data.shape)}


def _read_prior(path: Path) -> dict[str, Any]:
    """The weights, means and covariances of a .npz or .json file, as lists."""
    what = "a prior (.npz or .json)"
    read = partial(read_npz_arrays, most=PRIOR_BYTES) if path.suffix == ".npz" else read_object
    return _check_prior(read(path, what=what), f"prior {path}")


def _check_prior(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Check the shapes of a mixture; return weights, means and covariances as lists."""
    import numpy as np

    from congruence.experiments.models.mixture_priors import PARTS

    missing = [part for part in PARTS if part not in found]
    if missing:
        raise InputError(f"{name} must have weights, means and covariances; {missing[0]} is missing")
    try:
        arrays = [np.asarray(found[part], dtype=np.float64) for part in PARTS]
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must have arrays of numbers: {error}") from error
    if [array.ndim for array in arrays] != [1, 2, 3] or 0 in arrays[1].shape:
        wanted = "weights (J,), means (J, latents) and covariances (J, latents, latents)"
        raise InputError(f"{name} must have {wanted}; got {', '.join(str(array.shape) for array in arrays)}")
    return {part: array.tolist() for part, array in zip(PARTS, arrays, strict=True)}


def _check_options(model: str, given: Mapping[str, Any], settings: Iterable[str]) -> None:
    options = [name for name in settings if name not in _GENERAL]
    for name in given:
        if name not in options and name not in _GENERAL:
            raise InputError(f"{name} is not an option of {model}, which has {', '.join(options) or 'none'}")


def _parse_widths(given: str | Sequence[int]) -> list[int]:
    parts = [part.strip() for part in (given.split(",") if isinstance(given, str) else map(str, given))]
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"hidden must be widths such as 50,50; got {given!r}")
    return [int(part) for part in parts]


def _resolve_net(net: str, shape: tuple[int, ...], device: str) -> str:
    """Turn "auto" into the published net on a GPU, if it takes the images, and into the small one elsewhere."""
    if net != "auto":
        return net
    from congruence.experiments.models._nets import SIDE
    from congruence.rows.devices import training_device

    return "published" if shape[1:] == (SIDE, SIDE) and training_device(device) != "cpu" else "small"
