"""`congruence deconfound`: does it generalise to unseen batches?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

from congruence.batches._options import DeconfoundOptions
from congruence.cli import _command as cli
from congruence.errors import InputError
from congruence.options import DATA, OUTPUT, option

if TYPE_CHECKING:
    from congruence.batches.deconfounding import Embedding


@dataclass(frozen=True)
class DeconfoundOutputs(cli.Outputs):
    """Outputs of `deconfound`."""

    out: Path | None = option(None, "Write the embedding under one condition as a table.", panel=OUTPUT)
    write_back: bool = option(False, "Write that embedding into obsm of the .h5ad file itself.", panel=OUTPUT)


@cli.command
def deconfound(
    files: Annotated[
        list[str],
        cli.argument(
            "Embeddings with metadata (.parquet .csv .h5ad .arrow .npz .zarr); several are read as one table.",
            metavar="TABLE",
        ),
    ],
    options: DeconfoundOptions,
    outputs: DeconfoundOutputs,
    positive: Annotated[
        Optional[list[str]],
        cli.flag(
            help="Only this value of --target; may be repeated. Without --control, all other rows are controls.",
            panel=DATA,
            metavar="VALUE",
        ),
    ] = None,
) -> None:
    """Does it generalise to unseen batches? Whitening, ICA and batch corrections, scored on held-out batches.

    Classifies each target against controls with LightGBM, trained on some
    batches and scored by AUROC on the others, before and after the embedding
    is whitened, rotated to independent components or corrected. Examples:

        congruence deconfound wells.csv --batch plate --control gene=none

        congruence deconfound a.h5ad --key X_pca --batch plate --control dose=0

        congruence deconfound a.csv --batch plate --target drug --control DMSO
    """
    from congruence.batches._deconfound import deconfound as judge
    from congruence.tables import expanded

    paths = expanded(files)
    cli.check_outputs(outputs, paths, {"out": outputs.out})
    _check_embedding(options, outputs, paths)
    writes = outputs.out is not None or outputs.write_back
    options = replace(options, positive=positive or None, embedding=options.embedding or ("ica" if writes else None))
    with cli.working(outputs) as progress:
        result = judge(paths, options=options, progress=progress)
        if result.embedding is not None:
            _write(result.embedding, options.id, outputs.out, Path(paths[0]) if outputs.write_back else None)
    cli.deliver(result, outputs)


def _check_embedding(options: DeconfoundOptions, outputs: DeconfoundOutputs, paths: list[str]) -> None:
    """Refuse, before any work, an embedding that cannot be written."""
    from congruence.tables.write import check_obsm_path

    if outputs.out is None and not outputs.write_back and options.embedding is not None:
        raise InputError("--embedding names the condition that --out or --write-back writes, but neither is given")
    if outputs.write_back:
        if len(paths) > 1:
            raise InputError(f"--write-back takes one .h5ad file, but there are {len(paths)}; use --out")
        check_obsm_path(paths[0])
        cli.lock_outputs(Path(paths[0]))


def _write(embedding: Embedding, id: str | None, out: Path | None, back: Path | None) -> None:
    """Write the embedding as a table, and into the AnnData file it came from."""
    from congruence.tables import write_table
    from congruence.tables.formats import COLUMNAR
    from congruence.tables.write import write_obsm

    if out is not None:
        named = {"id": id} if id is not None and out.name.endswith(COLUMNAR) else {}
        write_table(embedding.table, out, **named)
    if back is not None:
        write_obsm(back, f"X_{embedding.condition}", embedding.aligned())
