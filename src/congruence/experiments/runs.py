"""Run folders: the files of one training, in formats that any program can read.

A run folder has `config.json` (the settings; a folder with it is a run), `environment.json` (the machine and the
versions), `metrics.jsonl` (the log, one line of numbers each), `weights.safetensors`, `latents.parquet` (codes, and the
true factors if they are known), for a model with a mixture prior `posterior.safetensors` (the standard deviations of
the codes) and, for a model of images, `examples.safetensors` (a few images). `_record.jsonl` has checksums of what is
written at the end. Every file is written completely or not at
all, except `metrics.jsonl`, which grows by lines: a last line that was truncated by a crash is
ignored when it is read, and removed when the next one is written. Nothing is unpickled.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from congruence._saved import read_tensors, write_tensors
from congruence.arrays import Array, Float, to_numpy
from congruence.errors import InputError
from congruence.files import LOCK, append_line, make_folder, write_text
from congruence.guards import check_folder, is_file, read_json_lines, read_object
from congruence.parts import RECORD
from congruence.result import installed, json_text
from congruence.tables import Table, read_table, write_table
from congruence.tables.read import CODES

CONFIG, ENVIRONMENT, METRICS = "config.json", "environment.json", "metrics.jsonl"
WEIGHTS, LATENTS, CHECKPOINT = "weights.safetensors", CODES, "checkpoint.safetensors"
EXAMPLES, POSTERIOR = "examples.safetensors", "posterior.safetensors"
OUTCOME = (WEIGHTS, LATENTS, EXAMPLES, POSTERIOR)  # written at the end of a training, and recorded with checksums
FILES = (CONFIG, ENVIRONMENT, METRICS, CHECKPOINT, *OUTCOME, RECORD)
DERIVED = ("checksum", "discrete_codes")  # entries of a config that differ only if others do
_COUNTED, _MEASURED = ("step", "epoch"), ("loss", "seconds", "psnr", "active_latents")  # read from lines of the log
KIND, VERSION = "congruence run", 1
PACKAGES = ("congruence", "numpy", "scipy", "torch", "scikit-learn", "pyarrow", "safetensors")


@dataclass(frozen=True)
class Run:
    """One run folder. `open_run` and `start_run` check its `config`."""

    folder: Path
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.name

    @property
    def finished(self) -> bool:
        """Whether weights and latents exist: they are written at the end of a training."""
        return (self.folder / WEIGHTS).is_file() and (self.folder / LATENTS).is_file()

    def environment(self) -> dict[str, Any]:
        """The machine and the versions with which the run was started."""
        return read_object(self.folder / ENVIRONMENT, "a description of the machine")

    def log(self, **numbers: float | int | str | None) -> None:
        """Append one line to metrics.jsonl; NaN and infinity become null."""
        line = json.dumps({key: _plain(value) for key, value in numbers.items()}, allow_nan=False)
        append_line(self.folder / METRICS, line)

    def metrics(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl, except a truncated last one."""
        path = self.folder / METRICS
        entries: list[dict[str, Any]] = read_json_lines(path, "a log") if is_file(path) else []
        for number, entry in enumerate(entries, start=1):
            if not isinstance(entry, dict):
                raise InputError(f"line {number} of {path} is not a JSON object; congruence did not write it")
            for name, value in entry.items():
                if not _is_logged(name, value):
                    given = json.dumps(value)[:50]
                    raise InputError(f"line {number} of {path} is damaged: its {name} is {given}")
        return entries

    def rewind(self, key: str, last: float) -> None:
        """Remove the outcome, and the lines whose `key` is above `last`: a resumed training logs them again."""
        kept = [line for line in self.metrics() if "ended" not in line and not line.get(key, last) > last]
        write_text(self.folder / METRICS, "".join(json.dumps(line) + "\n" for line in kept))

    def write_weights(self, weights: Mapping[str, Any]) -> None:
        """Write named arrays or tensors to weights.safetensors."""
        write_tensors(self.folder / WEIGHTS, weights, {})

    def weights(self) -> dict[str, Array]:
        """The arrays of weights.safetensors by name."""
        return _read_arrays(self.folder / WEIGHTS)

    def write_examples(self, images: Any) -> None:
        """Write a few images (n, channels, height, width), uint8, to examples.safetensors."""
        write_tensors(self.folder / EXAMPLES, {"images": images}, {})

    def examples(self) -> Array | None:
        """The images of examples.safetensors, uint8 (n, channels, height, width); None if there are none."""
        path = self.folder / EXAMPLES
        return _read_arrays(path).get("images") if path.exists() else None

    def write_posterior(self, deviations: Any) -> None:
        """Write the standard deviations of the posteriors, whose means are the codes, to posterior.safetensors."""
        write_tensors(self.folder / POSTERIOR, {"deviations": deviations}, {})

    def draws(self, seed: int = 0) -> Float | None:
        """One draw from the posterior of each row of `latents`, (n, d); None if only their means are stored."""
        path = self.folder / POSTERIOR
        if not path.exists():
            return None
        means, deviations = self.latents().values, _read_arrays(path).get("deviations", np.zeros(0))
        if deviations.shape != means.shape:
            raise InputError(f"{path} must have deviations of shape {means.shape}; got {deviations.shape}")
        if not (np.isfinite(deviations) & (deviations >= 0)).all():
            raise InputError(f"{path} must have deviations that are finite and at least 0")
        noise = np.random.default_rng(seed).normal(size=means.shape)
        return np.asarray(to_numpy(means) + deviations * noise, dtype=np.float64)

    def write_latents(self, codes: Any, factors: Mapping[str, Any] | None = None, ids: Any = None) -> None:
        """Write codes (n, d), named factors (n,) each, and ids (n,) to latents.parquet.

        The file is an embedding table, as `congruence compare` and other commands take it.
        """
        columns = {name: to_numpy(column) for name, column in (factors or {}).items()}
        table = Table(to_numpy(codes), self.name, None if ids is None else to_numpy(ids), columns)
        write_table(table, self.folder / LATENTS)

    def latents(self) -> Table:
        """The codes as the values of a table, the factors as its metadata."""
        table = read_table(self.folder / LATENTS, name=self.name)
        factors = {name.removeprefix("Metadata_"): column for name, column in table.metadata.items()}
        return replace(table, metadata=factors)


def start_run(folder: str | Path, config: Mapping[str, Any]) -> Run:
    """Make a run folder, or open an existing one with the same config.

    A folder with another config, or with other files, is refused: nothing is overwritten. The config is anything that
    JSON can represent.
    """
    folder = Path(folder)
    try:
        wanted = json.loads(json_text(dict(config)))  # as it will be read
    except (TypeError, ValueError) as error:
        raise InputError(f"config must contain only values that JSON can represent: {error}") from error
    if (folder / CONFIG).exists():
        run = open_run(folder)
        if run.config != wanted:
            where = _difference(run.config, wanted)
            raise InputError(f"{folder} has a run with another config ({where}); give another folder")
        return run
    strange = sorted(path.name for path in make_folder(folder).iterdir() if path.name not in (ENVIRONMENT, LOCK))
    if strange:
        raise InputError(f"{folder} has {strange[0]} but no {CONFIG}, so it is not a run; give another folder")
    write_text(folder / ENVIRONMENT, json_text(describe_environment()))
    run = Run(folder, wanted)
    rewrite_config(run, wanted)  # last
    return run


def rewrite_config(run: Run, config: Mapping[str, Any]) -> None:
    """Write config.json of a run folder, replacing the previous one."""
    write_text(run.folder / CONFIG, json_text({"kind": KIND, "version": VERSION, "config": dict(config)}))


def _difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The first setting in which two configs differ, in words; preferably one that both have."""
    different = (key for key in {*stored, *wanted} if stored.get(key) != wanted.get(key))
    name = min(different, key=lambda key: (key in DERIVED, key not in stored or key not in wanted, key))
    old, new = stored.get(name), wanted.get(name)
    if isinstance(old, dict) and isinstance(new, dict):
        return f"{name}: {_difference(old, new)}"
    return f"{name} is {json.dumps(old)}, not {json.dumps(new)}"


def open_run(folder: str | Path) -> Run:
    """Open a run folder to read it or to resume it; other and damaged folders are refused."""
    folder = Path(folder)
    if not os.path.isdir(folder):  # Path.is_dir raises for a name that is too long
        raise InputError(f"there is no run folder {folder}")
    if not is_file(folder / CONFIG):
        raise InputError(f"{folder} has no {CONFIG}, so it is not a run folder")
    check_folder(folder)
    content = read_object(folder / CONFIG, "the config of a run")
    if content.get("kind") != KIND or not isinstance(content.get("config"), dict):
        raise InputError(f"{folder / CONFIG} was not written by congruence: its kind is {content.get('kind')!r}")
    if content.get("version") != VERSION:
        raise InputError(f"{folder} is a run of version {content.get('version')!r}; this congruence reads {VERSION}")
    return Run(folder, content["config"])


def _read_arrays(path: Path) -> dict[str, Array]:
    if not is_file(path):
        raise InputError(f"there is no {path}; the training may not be finished")
    return read_tensors(path, "arrays")[0]


def describe_environment() -> dict[str, Any]:
    """Versions and the kind of machine, without names of hosts, users or folders; nothing is imported for it."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "packages": installed(*PACKAGES),
    }


def _is_logged(name: str, value: Any) -> bool:
    """Whether a value of a line is of a type that `Run.log` writes; those that are read again are of one type."""
    if name in _COUNTED:
        return type(value) is int and abs(value) < 2**63
    if name == "ended" or isinstance(value, str):
        return isinstance(value, str) and name not in _MEASURED
    return value is None or (isinstance(value, int | float) and abs(value) <= sys.float_info.max)


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
