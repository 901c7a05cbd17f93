"""The config of a model for `train`: as published, unless options say otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from congruence.errors import InputError

GENERAL = ("model", "latents", "net", "shape", "seed", "dataset_size")  # in the config of every model, or by its data


def model_config(
    model: str,
    data: str,
    n: int | None,
    *,
    latents: int | None,
    net: str,
    device: str,
    own: Mapping[str, Any],
) -> tuple[dict[str, Any], float]:
    """The config of a model without its seed, and the published weight decay.

    `own` has the options by name, None if not given; options that the model does not have are refused.
    """
    from congruence.experiments.data.row_sets import is_row_set
    from congruence.experiments.models.catalogue import MIXTURES, MODELS

    given = {name: value for name, value in own.items() if value is not None}
    given |= {} if latents is None else {"latents": latents}
    if model in MIXTURES:
        if net != "auto":
            raise InputError(f"net means nothing for {model}, whose nets are dense; hidden sets their widths")
        return _mixture_config(model, data, given), 0.0
    if model not in MODELS:
        raise InputError(f"model must be one of {', '.join((*MODELS, *MIXTURES))}, not {model!r}")
    if is_row_set(data):
        raise InputError(f"{model} is a model of images, and {data} are rows; {', '.join(MIXTURES)} take rows")
    return _image_config(model, data, n, _net(net, data, device), given)


def _image_config(
    model: str, data: str, n: int | None, net: str, given: Mapping[str, Any]
) -> tuple[dict[str, Any], float]:
    from congruence.experiments.data.registry import find_image_set
    from congruence.experiments.models.catalogue import published_settings, published_weight_decay

    images = find_image_set(data)
    settings = published_settings(model, data)
    _check_options(model, given, settings)
    settings |= given
    if model == "tcvae":
        settings["dataset_size"] = images.count if n is None else n
    config = {"model": model, **settings, "net": net, "shape": list(images.shape)}
    return config, published_weight_decay(model, data)


def _mixture_config(model: str, data: str, given: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    from congruence.experiments.data.registry import find_image_set
    from congruence.experiments.data.row_sets import find_row_set, is_row_set
    from congruence.experiments.models.catalogue import mixture_settings

    known = mixture_settings(model, images=False)
    extra = {"mixvae": ("prior",), "ivae": ("auxiliary",)}.get(model, ())
    _check_options(model, given, (*(name for name in known if name != "classes"), *extra))
    given = dict(given)
    observed = given.pop("auxiliary", None)
    if is_row_set(data):
        chosen, clusters = find_row_set(data)
        settings = mixture_settings(model, images=False, latents=chosen.latents, clusters=clusters)
        shape, levels = [chosen.observed], chosen.make(1, clusters, 0)
        sizes = dict(zip(levels.factor_names, levels.sizes, strict=True))
    else:
        images = find_image_set(data)
        settings, shape = mixture_settings(model, images=True), list(images.shape)
        sizes = dict(zip(images.grid.names, images.grid.sizes, strict=True))
    if "hidden" in given:
        given["hidden"] = _widths(given["hidden"])
    if "prior" in given:
        prior = given["prior"]
        given["prior"] = check_prior(prior, "prior") if isinstance(prior, Mapping) else read_prior(Path(prior))
        given.setdefault("latents", np.shape(given["prior"]["means"])[1])
    if model == "ivae":
        settings |= _auxiliary(observed, sizes, data)
    return {"model": model, **settings, **given, "shape": shape}


def read_prior(path: Path) -> dict[str, Any]:
    """The weights, means and covariances of a .npz or .json file, as lists."""
    from zipfile import BadZipFile

    import numpy as np

    try:
        if path.suffix == ".npz":
            with path.open("rb") as file, np.load(file, allow_pickle=False) as parts:
                found = dict(parts)
        else:
            found = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, BadZipFile) as error:
        raise InputError(f"prior {path} cannot be read as .npz or .json: {error}") from error
    return check_prior(found, f"prior {path}")


def check_prior(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Refuse what is no mixture by its shapes; return weights, means and covariances as lists."""
    import numpy as np

    from congruence.experiments.models.mixture_priors import PARTS

    missing = [part for part in PARTS if part not in found]
    if missing:
        raise InputError(f"{name} must hold weights, means and covariances, but has no {missing[0]}")
    try:
        arrays = [np.asarray(found[part], dtype=np.float64) for part in PARTS]
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold arrays of numbers, but {error}") from error
    if [array.ndim for array in arrays] != [1, 2, 3] or 0 in arrays[1].shape:
        wanted = "weights (J,), means (J, latents) and covariances (J, latents, latents)"
        raise InputError(f"{name} must hold {wanted}, not {', '.join(str(array.shape) for array in arrays)}")
    return {part: array.tolist() for part, array in zip(PARTS, arrays, strict=True)}


def _auxiliary(wished: str | None, sizes: Mapping[str, int | None], data: str) -> dict[str, Any]:
    """Which factor an iVAE observes, and its number of levels."""
    levels = [name for name, size in sizes.items() if size is not None]
    name = levels[0] if wished is None else wished
    if name not in levels:
        raise InputError(f"auxiliary must be a factor of {data} with levels ({', '.join(levels)}), not {name!r}")
    return {"auxiliary": name, "classes": sizes[name]}


def _check_options(model: str, given: Mapping[str, Any], settings: Iterable[str]) -> None:
    fit = [name for name in settings if name not in GENERAL]
    for name in given:
        if name not in fit and name not in GENERAL:
            hint = f"it has {', '.join(fit)}" if fit else "it has no options of its own"
            raise InputError(f"{name} means nothing for {model}; {hint}")


def _widths(given: str | Sequence[int]) -> list[int]:
    parts = [part.strip() for part in (given.split(",") if isinstance(given, str) else map(str, given))]
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"hidden takes widths such as 50,50, not {given!r}")
    return [int(part) for part in parts]


def _net(net: str, data: str, device: str) -> str:
    """Turn "auto" into the published net on a GPU, where it takes the images, and the small one elsewhere."""
    if net != "auto":
        return net
    from congruence.experiments.data.registry import find_image_set
    from congruence.experiments.models.nets import SIDE
    from congruence.rows.devices import training_device

    fits = find_image_set(data).shape[1:] == (SIDE, SIDE)
    return "published" if fits and training_device(device) != "cpu" else "small"
