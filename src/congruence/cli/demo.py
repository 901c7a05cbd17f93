"""`congruence demo`: train three autoencoders that differ only in their seed, and compare them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from congruence.cli._command import show
from congruence.cli.screen import collected_warnings, interruptible, progress_bar, say
from congruence.progress import Progress


@interruptible
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the tables, the result and the report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=2, max=10, help="How many autoencoders to train.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the digits in each training.")] = 100,
) -> None:
    """Train small autoencoders on handwritten digits with different seeds, and ask whether they agree.

    Needs no data and no network: the digits come with scikit-learn. Example:

        congruence demo --out demo
    """
    import numpy as np

    from congruence.align._compare import compare
    from congruence.data.digits import digits
    from congruence.errors import InputError
    from congruence.models.dense_autoencoders import train_autoencoder
    from congruence.tables import Table, write_table

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {out}: {error.strerror}") from error
    images, labels = digits()
    ids = np.array([f"digit{i:04d}" for i in range(len(images))])
    paths = []
    with collected_warnings(), progress_bar() as progress:
        for seed in range(seeds):
            codes, loss = train_autoencoder(images, epochs=epochs, seed=seed, progress=partial(_tick, progress, epochs))
            paths.append(out / f"seed{seed}.parquet")
            write_table(Table(codes, f"seed{seed}", ids, {"Metadata_digit": labels}), paths[-1])
            say(f"trained seed {seed}: reconstruction error {loss:.4f}, codes in {paths[-1]}")
        result = compare(paths, progress=progress)
    result = result.with_command(f"congruence compare {' '.join(map(str, paths))}")
    result.to_json(out / "result.json")
    result.report(out / "report.html")
    show(result)
    say(f"report: {out / 'report.html'}")


def _tick(progress: Progress, epochs: int, done: int, loss: float) -> None:
    progress(f"training, loss {loss:.4f}", done, epochs)
