"""`Dictionary`: features as directions of one space, read from the files that SAE libraries write.

Known layouts: a matrix in .npy, .npz, .safetensors or .pt; folders of SAELens (``sae_weights.safetensors``) and of
EleutherAI's sparsify (``sae.safetensors``), each with a ``cfg.json``; and components saved by `congruence.ICA`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array, Float, as_matrix, on_sphere, to_numpy
from congruence.errors import InputError, TableError
from congruence.guards import is_file, open_tensors, read_object
from congruence.tables import as_table
from congruence.tables.address import as_path

WEIGHTS = ("sae_weights.safetensors", "sae.safetensors")  # of SAELens and of sparsify
DECODERS = ("W_dec", "decoder.weight")  # usual names of the features; nn.Linear stores the second as (d, m)
KINDS = ("linear", "relu", "jumprelu", "topk")
BLOCK_VALUES = 2**23  # codes that are computed at a time
TOP = 5  # rows that are kept for each feature that is shown
LEAST_NORM = 1e-6  # of a live feature, as a share of the median


@dataclass(frozen=True, eq=False, repr=False)
class Encoder:
    """Computes codes of activations: act((x - offset) @ weight.T + bias).

    `kind` is the activation: "linear", "relu", "jumprelu" (positive values above `threshold`, others are 0) or "topk"
    (the `k` largest of a row, negative ones as 0). With `normalize`, rows are put on the unit sphere first.
    """

    kind: str
    weight: Array  # (m, d)
    bias: Array  # (m,)
    offset: Array  # (d,)
    threshold: Array | None = None  # (m,)
    k: int = 0
    normalize: bool = False

    def __call__(self, x: Array) -> Array:
        """The codes (n, m) of activations (n, d), in float32."""
        rows = np.asarray(x, dtype=np.float32)
        rows = on_sphere(rows) if self.normalize else rows
        codes: Array = (rows - self.offset) @ self.weight.T + self.bias
        if self.kind == "relu":
            return np.maximum(codes, 0)
        if self.kind == "jumprelu":
            return np.where(codes > self.threshold, np.maximum(codes, 0), 0)
        if self.kind == "topk" and self.k < codes.shape[1]:
            least = np.partition(codes, -self.k, axis=1)[:, -self.k, None]
            return np.where(codes >= least, np.maximum(codes, 0), 0)
        return codes if self.kind == "linear" else np.maximum(codes, 0)


@dataclass(frozen=True, eq=False, repr=False)
class Dictionary:
    """Features as unit vectors of one space, with the encoder that computes their codes where it is known.

    Features of length 0 (dead ones) have no direction and are left out; `number` is the position of each other one in
    the file.
    """

    name: str
    directions: Array  # (m, d) float32, of length 1
    number: Array  # (m,)
    size: int  # features in the file
    encoder: Encoder | None = None
    encoder_note: str = ""  # why there is none
    signed: bool = True  # whether the sign of a feature has a meaning; that of an independent component has none
    path: Path | None = None

    @property
    def m(self) -> int:
        """The number of live features."""
        return len(self.directions)

    @property
    def d(self) -> int:
        """The number of dimensions of the space."""
        return int(self.directions.shape[1])

    def __repr__(self) -> str:
        return f"<Dictionary {self.name}: {self.m} features in {self.d} dimensions>"


def read_dictionary(x: Any, *, name: str | None = None, key: str | None = None, transpose: bool = False) -> Dictionary:
    """Read a dictionary from a file, a folder or an array.

    Parameters
    ----------
    x : path, array, tensor, ICA, Resolution or Dictionary
        A path is a file (.npy, .npz, .safetensors, .pt, or any table) or a folder of SAELens or sparsify.
    name : str, optional
        By default the name of the file or folder.
    key : str, optional
        The array that holds the features. By default ``W_dec`` or ``decoder.weight``, or the only matrix.
    transpose : bool, default False
        The array holds one feature per column. ``decoder.weight`` is transposed without being asked, since a linear
        layer of torch stores one feature per column.

    Returns
    -------
    Dictionary

    Examples
    --------
    >>> import numpy as np
    >>> from congruence.features import read_dictionary
    >>> read_dictionary(np.eye(3, 4), name="axes")
    <Dictionary axes: 3 features in 4 dimensions>
    """
    if isinstance(x, Dictionary):
        return x if name is None else replace(x, name=name)
    if isinstance(x, str | os.PathLike):
        return _read_path(as_path(x), name, key, transpose)
    ica = getattr(x, "ica", x)
    if hasattr(ica, "mixing_"):
        return _from_ica(ica, name or "ICA", None)
    if key is not None:
        raise InputError("key names an array inside a file, but an array was given; leave it out")
    values = to_numpy(as_matrix(as_table(x, name=name).values, name or "the dictionary"))
    return _build(values.T if transpose else values, name or "dictionary")


def _read_path(path: Path, name: str | None, key: str | None, transpose: bool) -> Dictionary:
    weights = next((path / file for file in WEIGHTS if is_file(path / file)), None)
    inside = sorted(file.parent.name for name in WEIGHTS for file in path.glob(f"*/{name}"))
    if weights is None and inside:
        raise InputError(f"{path} holds several dictionaries; give one of the folders in it: {', '.join(inside[:8])}")
    if weights is not None:
        config = path / "cfg.json"
        settings = read_object(config, "the configuration of an SAE") if is_file(config) else {}
        return _read_tensors(weights, name or path.name, key, transpose, settings)
    if path.suffix == ".safetensors":
        return _read_tensors(path, name or path.stem, key, transpose, {})
    table = _read_named(path, key)
    values = to_numpy(as_matrix(table[0].values, str(path)))
    return _build(values.T if transpose != table[1] else values, name or path.stem, path=table[0].path)


def _read_named(path: Path, key: str | None) -> tuple[Any, bool]:
    """The table of the first known array in a file, and whether it has one feature per column."""
    if key is not None or path.suffix not in (".pt", ".pth", ".npz"):
        return as_table(path, key=key), key is not None and key.endswith("decoder.weight")
    for known in DECODERS:
        try:
            return as_table(path, key=known), known == "decoder.weight"
        except TableError as error:
            if f"no array {known!r}" not in str(error):
                raise
    return as_table(path), False


def _read_tensors(path: Path, name: str, key: str | None, transpose: bool, config: Mapping[str, Any]) -> Dictionary:
    with open_tensors(path, "a dictionary") as file:
        header, names = file.metadata() or {}, tuple(file.keys())
    if "congruence" in header and '"ica"' in header["congruence"]:
        from congruence.ica.estimator import load_ica

        return _from_ica(load_ica(path), name, path)
    key = key or next((known for known in DECODERS if known in names), None)
    values = to_numpy(as_matrix(as_table(path, key=key).values, str(path)))
    flip = transpose != (key is not None and key.endswith("decoder.weight"))
    built = _build(values.T if flip else values, name, path=path)
    encoder, note = _read_encoder(path, names, built, config)
    return replace(built, encoder=encoder, encoder_note=note)


def _read_encoder(
    path: Path, names: tuple[str, ...], built: Dictionary, config: Mapping[str, Any]
) -> tuple[Encoder | None, str]:
    """The encoder in a file of SAELens or sparsify, or the reason why codes cannot be computed."""
    if not config:
        return None, f"{path.name} has no cfg.json next to it, which says how codes are computed"
    sparsify = "encoder.weight" in names
    weight_name = "encoder.weight" if sparsify else "W_enc"
    if weight_name not in names:
        return None, f"{path.name} holds no encoder"
    weight = _tensor(path, weight_name)
    weight = weight if sparsify else weight.T
    if weight.shape != (built.size, built.d):
        raise InputError(
            f"{path}: the encoder has shape {weight.shape}, but there are {built.size} features of {built.d}"
        )
    kind, k = _activation(config, sparsify)
    if kind is None:
        architecture = config.get("architecture", config.get("activation"))
        return None, f"codes of the architecture {architecture!r} are not computed"
    if config.get("normalize_activations", "none") not in ("none", None):
        return None, f"codes of activations normalised as {config['normalize_activations']!r} are not computed"
    bias = _vector(path, names, "encoder.bias" if sparsify else "b_enc", built.size)
    centred = not config.get("transcode", False) if sparsify else bool(config.get("apply_b_dec_to_input", True))
    offset = _vector(path, names, "b_dec", built.d) if centred else np.zeros(built.d, np.float32)
    threshold = _vector(path, names, "threshold", built.size) if kind == "jumprelu" else None
    live = built.number
    if kind == "topk" and config.get("rescale_acts_by_decoder_norm"):
        return None, "codes that are rescaled by the length of the decoder are not computed"
    kept = None if threshold is None else threshold[live]
    return Encoder(kind, weight[live], bias[live], offset, kept, k), ""


def _activation(config: Mapping[str, Any], sparsify: bool) -> tuple[str | None, int]:
    """The kind of the encoder and the number of active features; no kind where it is not supported."""
    kind = config.get("activation", "topk") if sparsify else config.get("architecture", "standard")
    if kind == "standard":
        kind = config.get("activation_fn", config.get("activation_fn_str", "relu"))
    if kind not in KINDS:
        return None, 0
    more = config.get("activation_fn_kwargs")
    k = config.get("k", more.get("k") if isinstance(more, dict) else None)
    if kind == "topk" and not (type(k) is int and k > 0):
        return None, 0
    return kind, k if kind == "topk" else 0


def _tensor(path: Path, name: str) -> Array:
    """One tensor of a safetensors file in float32; numpy has no bfloat16, so torch reads it where it is installed."""
    with open_tensors(path, name, "pt" if find_spec("torch") else "numpy") as file:
        values = to_numpy(file.get_tensor(name)).astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(f"{path}: {name} has NaN or infinite values")
    return values


def _vector(path: Path, names: tuple[str, ...], name: str, size: int) -> Array:
    """A bias; zeros where the file has none."""
    vector = _tensor(path, name) if name in names else np.zeros(size, np.float32)
    if vector.shape != (size,):
        raise InputError(f"{path}: {name} must hold {size} numbers; its shape is {vector.shape}")
    return vector


def _from_ica(ica: Any, name: str, path: Path | None) -> Dictionary:
    """Independent components: the directions along which they change the rows, whose sign is arbitrary."""
    if not hasattr(ica, "mixing_"):
        raise InputError("the ICA is not fitted; call fit first")
    built = _build(np.asarray(ica.mixing_).T, name, signed=False, path=path)
    weight = np.asarray(ica.components_, np.float32)[built.number]
    bias = np.zeros(built.m, np.float32)
    normalize, offset = getattr(ica, "normalize", None) == "cosine", np.asarray(ica.mean_, np.float32)
    return replace(built, encoder=Encoder("linear", weight, bias, offset, normalize=normalize))


def _build(values: Array, name: str, **more: Any) -> Dictionary:
    """A dictionary of the rows of a matrix; rows of length 0 are left out."""
    largest = np.abs(values).max(1).astype(np.float64)
    usual = np.median(largest[largest > 0]) if (largest > 0).any() else 0.0
    live = np.flatnonzero(largest > LEAST_NORM * usual)
    if not len(live):
        raise InputError(f"{name}: all {len(values)} features are zero")
    directions = on_sphere(np.asarray(values[live], dtype=np.float64)).astype(np.float32)
    return Dictionary(name, directions, live, len(values), **more)


@dataclass(frozen=True, eq=False)
class CodeStatistics:
    """Statistics of the codes of two dictionaries on the same rows."""

    frequency: Array  # (m_a,) share of rows on which a feature of a is active
    correlation: Array  # (m_a,) of the codes of matched features; NaN without a partner or where one is constant
    top: dict[int, Array]  # rows with the largest codes, the largest first, of some features of a


def summarise_codes(
    a: Dictionary, b: Dictionary, rows_a: Array, rows_b: Array, partner: Array, shown: Sequence[int]
) -> CodeStatistics:
    """Encode paired rows (n, d_a) and (n, d_b) block by block and compare the codes of matched features.

    `partner` (m_a,) is the matched feature of b, -1 for none; `shown` are the features whose top rows are kept.
    """
    assert a.encoder is not None
    assert b.encoder is not None
    matched = np.flatnonzero(partner >= 0)
    active, sums = np.zeros(a.m), np.zeros((5, len(matched)))
    largest: Array = np.empty((0, len(shown)), np.float32)
    places: Array = np.empty((0, len(shown)), np.intp)
    n, step = len(rows_a), max(1, BLOCK_VALUES // max(a.m, b.m))
    shift: tuple[Float, Float] | None = None
    for start in range(0, n, step):
        codes = a.encoder(rows_a[start : start + step])
        active += (codes != 0).sum(0)
        x = codes[:, matched].astype(np.float64)
        y = b.encoder(rows_b[start : start + step])[:, partner[matched]].astype(np.float64)
        shift = shift or (x.mean(0), y.mean(0))  # near the means, so that sums of squares keep their digits
        x, y = x - shift[0], y - shift[1]
        sums += [x.sum(0), y.sum(0), (x * x).sum(0), (y * y).sum(0), (x * y).sum(0)]
        here = np.broadcast_to(np.arange(start, start + len(codes))[:, None], (len(codes), len(shown)))
        largest, places = np.vstack([largest, codes[:, list(shown)]]), np.vstack([places, here])
        order = np.argsort(-largest, axis=0, kind="stable")[:TOP]
        largest, places = (np.take_along_axis(some, order, 0) for some in (largest, places))
    x, y, xx, yy, xy = sums
    spread = np.sqrt(np.maximum(xx - x * x / n, 0) * np.maximum(yy - y * y / n, 0))
    correlation = np.full(a.m, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation[matched] = np.clip(np.where(spread > 0, (xy - x * y / n) / spread, np.nan), -1, 1)
    top = {feature: places[largest[:, at] > 0, at] for at, feature in enumerate(shown)}
    return CodeStatistics(active / n, correlation, top)
