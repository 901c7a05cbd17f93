"""Folders of columnar files that other libraries write: Lance datasets, and Hugging Face datasets on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from congruence.arrays import listing
from congruence.errors import TableError
from congruence.guards import check_folder, read_json, reading

_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"  # what `save_to_disk` writes


def open_lance(path: Path) -> tuple[Any, int, Any]:
    """Return the schema, the number of rows and the batches of the latest version of a Lance dataset."""
    import lance

    data = lance.dataset(os.path.abspath(path))  # "run:1" is no address
    fragments = [fragment.metadata for fragment in data.get_fragments()]
    files = [(file.path, file) for fragment in fragments for file in fragment.files]
    files += [("deleted rows", one.deletion_file) for one in fragments if one.deletion_file is not None]
    outside = [name for name, file in files if getattr(file, "base_id", None) is not None or Path(name).name != name]
    if outside:
        raise TableError(f"{path} keeps data outside of itself ({listing(outside)}), which is not followed")

    def read(names: Sequence[str], rows: int | None, most: int | None) -> Iterator[Any]:
        # lance has as many batches ready as there are processors.
        yield from data.to_batches(columns=list(names), batch_size=rows, limit=most, batch_readahead=1)

    return data.schema, int(data.count_rows()), read


def check_lance_rows(path: Path) -> None:
    """Refuse a Lance dataset whose manifest, which has no checksum, has another number of rows than a file of it."""
    import lance
    from lance.file import LanceFileReader

    for fragment in lance.dataset(os.path.abspath(path)).get_fragments():
        for file in fragment.metadata.files if fragment.metadata.files[0].file_major_version >= 2 else ():
            stored = LanceFileReader(os.path.abspath(path / "data" / file.path)).metadata().num_rows
            if stored != fragment.physical_rows:
                raise TableError(f"{path} is damaged: {file.path} has {stored} rows, not {fragment.physical_rows}")


def dataset_files(folder: Path) -> list[str] | None:
    """Return the files of a Hugging Face dataset that was saved to a folder, in order; None for other folders."""
    if (folder / _SPLITS).is_file():
        splits = listing(sorted(one.name for one in folder.iterdir() if (one / _STATE).is_file()), 10)
        raise TableError(f"{folder} is a dataset of several splits ({splits}); give the folder of one, {folder}/...")
    if not ((folder / _STATE).is_file() and (folder / _INFO).is_file()):
        return None
    with reading(folder / _STATE):
        state = read_json(folder / _STATE, "the state of a dataset")
        names = [str(file["filename"]) for file in state["_data_files"]]
    if state.get("_indices_data_files") or any(Path(name).name != name for name in names) or not names:
        raise TableError(f"{folder} refers to rows or files elsewhere, which is not followed; save it to disk again")
    check_folder(folder)
    return [str(folder / name) for name in names]
