"""`demo`: train autoencoders that differ only in their seed, and compare them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from congruence.align._compare import compare
from congruence.align.comparison import Comparison
from congruence.experiments.data.digits import digits
from congruence.experiments.training.small_autoencoders import train_autoencoder
from congruence.files import alone
from congruence.progress import Progress
from congruence.tables import Table, write_table


def demo(
    out: str | Path = "demo", *, seeds: int = 3, epochs: int = 100, progress: Progress | None = None
) -> Comparison:
    """Train small autoencoders on handwritten digits, one per seed, and compare their codes.

    The digits are part of scikit-learn; nothing is downloaded.

    Parameters
    ----------
    out : path
        A folder for the codes (seed0.parquet, ...), result.json and report.html; created if it does not exist.
    seeds : int
        How many autoencoders to train.
    epochs : int
        Passes over the digits in each training.
    progress : callable, optional
        Called as progress(what, done, total) while working.
    """
    folder = Path(out)
    images, labels = digits()
    ids = np.array([f"digit{i:04d}" for i in range(len(images))])
    paths = []

    def tick(seed: int, done: int, loss: float) -> None:
        if progress is not None:
            progress(f"training seed {seed}, loss {loss:.4f}", seed * epochs + done, seeds * epochs)

    with alone(folder, folder=True):
        for seed in range(seeds):
            codes, _ = train_autoencoder(images, epochs=epochs, seed=seed, progress=partial(tick, seed))
            paths.append(folder / f"seed{seed}.parquet")
            write_table(Table(codes, f"seed{seed}", ids, {"Metadata_digit": labels}), paths[-1])
        result = compare(paths, progress=progress)
        result.to_json(folder / "result.json")
        result.report(folder / "report.html")
    return result
