"""Snapshots of trainings: arrays measured at some steps, each stored as a part."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from congruence.parts import Arrays, Parts

RUNS, MODELS = "runs", "models"  # folders next to the parts: of run folders, and of saved nets
CHECK_EVERY = 50  # steps between checks of the loss on a GPU, where checking takes time


def find_snapshots(parts: Parts, names: Sequence[str]) -> list[Arrays] | None:
    """The parts of these names; None if one is missing."""
    snapshots = [snapshot for name in names if (snapshot := parts.find(name)) is not None]
    return snapshots if len(snapshots) == len(names) else None


def clear_parts(parts: Parts) -> None:
    """Remove all parts, run folders and saved nets, so that everything is computed again."""
    for path in parts.folder.glob("*.safetensors"):
        path.unlink()
    for name in (RUNS, MODELS):
        shutil.rmtree(parts.folder / name, ignore_errors=True)
