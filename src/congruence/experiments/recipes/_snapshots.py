"""Snapshots of trainings: arrays measured at some steps, each stored as a part."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from congruence.experiments.runs import Run
from congruence.parts import Arrays, Parts

RUNS, MODELS = "runs", "models"  # folders next to the parts: of run folders, and of saved nets
CHECK_EVERY = 50  # steps between checks of the loss on a GPU, where checking takes time


def find_snapshots(parts: Parts, names: Sequence[str]) -> list[Arrays] | None:
    """The parts of these names; None if one is missing."""
    snapshots = [snapshot for name in names if (snapshot := parts.find(name)) is not None]
    return snapshots if len(snapshots) == len(names) else None


def load_or_train_snapshots(
    parts: Parts, names: Sequence[str], run_folder: Path, train: Callable[[], None]
) -> list[Arrays]:
    """The parts of these names, which `train` stores if one is missing; it resumes the run in `run_folder`."""
    snapshots = find_snapshots(parts, names)
    if snapshots is None:
        if Run(run_folder, {}).finished:  # nothing is left to resume, so a lost snapshot needs the whole training
            shutil.rmtree(run_folder)
        train()
        snapshots = find_snapshots(parts, names)
    if snapshots is None:  # one was lost that is older than the checkpoint
        shutil.rmtree(run_folder, ignore_errors=True)
        train()
        snapshots = find_snapshots(parts, names)
    assert snapshots is not None
    return snapshots


def open_parts(parts: Parts) -> Parts:
    """Parts in which what is written now is read again; all parts, run folders and nets are removed unless kept."""
    if not parts.kept:
        for path in parts.folder.glob("*.safetensors"):
            path.unlink()
        for name in (RUNS, MODELS):
            shutil.rmtree(parts.folder / name, ignore_errors=True)
    return replace(parts, kept=True)
