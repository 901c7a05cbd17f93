"""The layers of a run, or of several seeds of one run: from mappings, paths or patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from congruence.errors import InputError
from congruence.tables import expanded, unique_names


@dataclass(frozen=True)
class LayeredRun:
    """The layers of one run by name, for each of its seeds; all seeds have the same layers."""

    name: str
    seeds: dict[str, dict[str, Any]]

    @property
    def layers(self) -> list[str]:
        """The names of the layers, in order."""
        return list(next(iter(self.seeds.values())))

    def labelled(self, run: str) -> dict[str, Any]:
        """Every layer of every seed by a label such as "layer 1 of run, seed 0"."""
        return {
            f"{layer} of {run}" + (f", {seed}" if len(self.seeds) > 1 else ""): x
            for seed, layers in self.seeds.items()
            for layer, x in layers.items()
        }


def layered_run(given: Any, name: str) -> LayeredRun:
    """Find the layers of a run and check their names.

    In ``run_a.*.parquet`` the star is the layer, and the text before it names the run; in ``run_a/*.npy`` that is the
    folder. In ``run_a/seed*/layer*.npy`` the first star is the seed and the second the layer. Other patterns and lists
    of paths name layers after their files. A list of mappings has a mapping of layers for each seed.
    """
    if isinstance(given, str | Path):
        run = _find_files(str(given))
    elif isinstance(given, Mapping):
        run = LayeredRun(name, {"": dict(given)})
    elif isinstance(given, list | tuple) and given and all(isinstance(one, Mapping) for one in given):
        run = LayeredRun(name, {f"seed {number}": dict(one) for number, one in enumerate(given)})
    elif isinstance(given, list | tuple) and all(isinstance(path, str | Path) for path in given):
        run = LayeredRun(name, {"": dict(zip(unique_names(given), given, strict=True)) if given else {}})
    else:
        kind = type(given).__name__
        raise InputError(
            f"{name} must be a mapping of names to layers, a list of such mappings (one for each seed), a pattern or a "
            f"list of paths; got {kind}"
        )
    _check_names(run, name)
    return run


def _check_names(run: LayeredRun, name: str) -> None:
    if not run.layers:
        raise InputError(f"{name} must have at least one layer; got none")
    for seed, layers in run.seeds.items():
        if not all(isinstance(layer, str) for layer in layers):  # 1 and "1" would be taken for the same
            raise InputError(f"the names of the layers of {name} must be text; got {', '.join(map(repr, layers))}")
        odd = sorted(set(layers) ^ set(run.layers))
        if odd:
            raise InputError(f"all seeds of {name} must have the same layers; {seed} differs in {', '.join(odd)}")


def _find_files(pattern: str) -> LayeredRun:
    """The files of a pattern, sorted by name, numbers as numbers."""
    paths = expanded([pattern])
    file = Path(pattern)
    before, star, after = file.name.partition("*")
    others = [sign for sign in "*?[" if sign in f"{file.parent}{before}{after}"]
    if pattern.count("*") == 2 and "**" not in pattern and not any(sign in pattern for sign in "?["):
        return _find_seeds(pattern, paths)
    if not star or others:
        return LayeredRun(pattern, {"": _in_order(dict(zip(unique_names(paths), paths, strict=True)))})
    names = [Path(path).name[len(before) : -len(after) or None] for path in paths]
    names = names if len(set(names)) == len(names) else unique_names(paths)
    run = before.strip("._- ") or file.parent.name or pattern
    return LayeredRun(run, {"": _in_order(dict(zip(names, paths, strict=True)))})


def _find_seeds(pattern: str, paths: list[str]) -> LayeredRun:
    """The files of a pattern with two stars: the first is the seed, the second the layer."""
    first, between, last = map(re.escape, pattern.split("*"))
    parts = re.compile(rf"{first}([^/]*?){between}([^/]*){last}$")
    seeds: dict[str, dict[str, Any]] = {}
    for path in paths:
        match = parts.match(path)
        if match is None:
            raise InputError(f"{path} matches {pattern}, but not as a seed and a layer")
        seeds.setdefault(f"seed {match[1]}", {})[match[2]] = path
    folder, _, before = pattern.split("*")[0].rpartition("/")
    run = before.strip("._- ").removesuffix("seed").strip("._- ") or Path(folder).name or pattern
    return LayeredRun(run, {seed: _in_order(layers) for seed, layers in _in_order(seeds).items()})


def _in_order(named: dict[str, Any]) -> dict[str, Any]:
    def key(item: tuple[str, Any]) -> list[tuple[bool, int, str]]:  # layers.10 after layers.9
        parts = re.split(r"(\d+)", item[0])
        return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]

    return dict(sorted(named.items(), key=key))
