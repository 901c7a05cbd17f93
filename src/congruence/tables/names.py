"""What runs are called when only their files are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from congruence.tables.access import stem_of


def unique_names(paths: Sequence[str | Path]) -> list[str]:
    """Name each file by its stem, with as many parent folders in front as it takes to be unique.

    ``seed0/latents.npy`` and ``seed1/latents.npy`` become ``seed0/latents`` and ``seed1/latents``; the same
    path given again becomes ``latents#2``.
    """
    files = [Path(path) for path in paths]
    names = _climb({file: stem_of(file) for file in files})
    # Files that differ in their suffix alone keep it.
    names |= _climb({file: file.name for file in _clashing(names)})
    seen: Counter[Path] = Counter()
    unique = []
    for file in files:
        seen[file] += 1
        unique.append(names[file] if seen[file] == 1 else f"{names[file]}#{seen[file]}")
    return unique


def _climb(names: Mapping[Path, str]) -> dict[Path, str]:
    """Put parent folders in front of the names that are not unique, one by one, as long as it can help."""
    climbed = dict(names)
    folders = {file: [part for part in file.parts[:-1] if part != file.anchor] for file in names}
    while higher := [file for file in _clashing(climbed) if folders[file]]:
        for file in higher:
            climbed[file] = f"{folders[file].pop()}/{climbed[file]}"
    short = set(_clashing(climbed))
    return {file: names[file] if file in short else name for file, name in climbed.items()}


def _clashing(names: Mapping[Path, str]) -> Iterable[Path]:
    counts = Counter(names.values())
    return [file for file, name in names.items() if counts[name] > 1]
