"""Which options mean something for which format."""

from __future__ import annotations

from pathlib import Path

from congruence.tables.access import suffix_of

_OPTIONS = {
    ".npy": set[str](),
    ".npz": {"key"},
    ".safetensors": {"key"},
    ".pt": {"key"},
    ".pth": {"key"},
    ".zarr": {"key"},
    ".h5ad": {"key", "features"},
    ".csv": {"features", "metadata"},
    ".csv.gz": {"features", "metadata"},
}
_COLUMNAR = {"features", "metadata", "key"}


def honours(path: str | Path, option: str) -> bool:
    """Whether `read_table` can do anything with "features", "metadata" or "key" for a file of this format."""
    return option in _OPTIONS.get(suffix_of(Path(path)), _COLUMNAR)
