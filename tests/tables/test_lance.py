"""Lance datasets that lead outside, hold fewer rows than their files, or unpack to far more than they take on disk."""

import dataclasses
import json
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from congruence.errors import TableError
from congruence.tables import read_table

os.environ.setdefault("LANCE_LOG", "error")  # as the reader does before it imports lance
lance = pytest.importorskip("lance", reason="pylance is not installed")

ROWS = pa.table({"x": np.arange(10.0), "y": np.arange(10.0)})


def recommit(data, operation, **changes):
    """Write a version of a dataset whose only fragment is described differently."""
    (fragment,) = data.get_fragments()
    written = operation([dataclasses.replace(fragment.metadata, **changes)])
    return lance.LanceDataset.commit(data.uri, written, read_version=data.version)


def test_rows_that_another_dataset_deletes_are_refused(tmp_path):
    from lance.lance import DeletionFile

    inside, outside = tmp_path / "a.lance", tmp_path / "b.lance"
    base = lance.DatasetBasePath(str(outside), is_dataset_root=True, id=1)
    data = lance.write_dataset(ROWS, inside, initial_bases=[base])
    data.delete("x < 3")
    shutil.move(inside / "_deletions", outside / "_deletions")
    deleted = data.get_fragments()[0].metadata.deletion_file.asdict()
    moved = DeletionFile.from_json(json.dumps({**deleted, "base_id": 1}))
    merge = partial(lance.LanceOperation.Merge, schema=data.lance_schema)
    data = recommit(data, merge, deletion_file=moved)
    assert data.count_rows() == data.to_table().num_rows == 7
    with pytest.raises(TableError, match="keeps data outside of itself"):
        read_table(inside)


def test_a_manifest_with_fewer_rows_than_its_files_is_refused(tmp_path):
    overwrite = partial(lance.LanceOperation.Overwrite, ROWS.schema)
    data = recommit(lance.write_dataset(ROWS, tmp_path / "a.lance"), overwrite, physical_rows=9)
    assert data.to_table().num_rows == 9
    with pytest.raises(TableError, match="has 10 rows, not 9"):
        read_table(tmp_path / "a.lance")


def test_text_is_read_a_few_rows_at_a_time(tmp_path, monkeypatch):
    n, sizes = 1000, {}
    rows = {"id": [f"row {i}" for i in range(n)], "x": np.arange(n) + 0.5, "Metadata_text": ["a"] * n, "y": np.ones(n)}
    lance.write_dataset(pa.table(rows), tmp_path / "a.lance", max_rows_per_file=300)
    to_batches = lance.LanceDataset.to_batches

    def record(self, columns, batch_size, **options):
        sizes.update(dict.fromkeys(columns, batch_size))
        return to_batches(self, columns=columns, batch_size=batch_size, **options)

    monkeypatch.setattr(lance.LanceDataset, "to_batches", record)
    table = read_table(tmp_path / "a.lance")
    assert sizes["id"] == sizes["Metadata_text"] == 256 < n < sizes["x"]
    assert_array_equal(table.ids, rows["id"])
    assert_array_equal(table.values[:, 0], rows["x"])


def test_wide_vectors_are_read_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("congruence.tables._arrow.BLOCK_BYTES", 2**20)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2**21)), 2**15)
    lance.write_dataset(pa.table({"vector": vectors}), tmp_path / "a.lance")
    sizes = []
    to_batches = lance.LanceDataset.to_batches

    def record(self, batch_size, **options):
        sizes.append(batch_size)
        return to_batches(self, batch_size=batch_size, **options)

    monkeypatch.setattr(lance.LanceDataset, "to_batches", record)
    assert read_table(tmp_path / "a.lance").values.shape == (64, 2**15)
    assert max(sizes) == 4


def test_a_name_that_is_escaped_is_said_once(tmp_path):
    folder = Path(tmp_path / "a\nb.lance")
    folder.mkdir()
    with pytest.raises(TableError) as refusal:
        read_table(folder)
    assert str(refusal.value).count(r"a\nb.lance") == 1
