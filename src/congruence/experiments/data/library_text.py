"""Text as windows of tokens: the source of Python's standard library, which needs no download, or documentation."""

from __future__ import annotations

import hashlib
import lzma
import os
import platform
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.checks import check_integer, require
from congruence.errors import InputError
from congruence.experiments.data._readers import VARIABLE, cache_folder
from congruence.guards import reading

SKIPPED = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
SKIPPED |= {"encodings", "pydoc_data"}  # tables rather than text
HELD_OUT, PAGE_HELD_OUT = 5, 20  # every fifth file, every twentieth page
BYTES = 256  # the smallest vocabulary
DOCUMENTS, PACKED = "documents", "*.txt.xz"  # the folder of documentation, and its files
FITTED = 20_000_000  # characters of documentation that the tokens are fitted to


@dataclass(frozen=True, eq=False)
class TextWindows:
    """Windows of tokens, and what identifies their text."""

    train: Array  # (n, length) int32
    held_out: Array  # (m, length) int32, of other files
    held_out_files: Array  # (m,) the number of the file in which a window begins
    vocabulary: int
    origin: str  # what the text is, with its version
    digest: str  # of the text
    files: tuple[int, int]  # trained on, and held out


def library_files(root: str | Path | None = None) -> list[Path]:
    """The source files of the standard library without its tests and tables, in a fixed random order.

    The order is that of digests of the names.
    """
    root = Path(sysconfig.get_path("stdlib") if root is None else root)
    found = []
    for folder, inside, files in os.walk(root):
        inside[:] = [name for name in inside if name not in SKIPPED]  # prunes the walk
        found += [Path(folder, name) for name in files if name.endswith(".py")]
    if not found:
        raise InputError(f"{root} contains no Python source; use a Python that ships its standard library")
    return sorted(found, key=lambda path: hashlib.sha256(path.relative_to(root).as_posix().encode()).digest())


def library_text(
    vocabulary: int, length: int, *, most_bytes: int | None = None, root: str | Path | None = None
) -> TextWindows:
    """Read the standard library, or another `root` of Python files, and cut it into windows of `length` tokens.

    Tokens are byte pairs (Sennrich et al. 2016), fitted to the training files: at most `vocabulary` of them, at least
    256 (the bytes). Every fifth file is held out, and no file is read after `most_bytes`.
    """
    files = _read(library_files(root), most_bytes)
    return _cut(files, vocabulary, length, HELD_OUT, f"the standard library of Python {platform.python_version()}")


def document_text(vocabulary: int, length: int, *, folder: str | Path | None = None) -> TextWindows:
    """Read the pages that ``benchmarks/pack_documents.py`` packed, and cut them into windows of `length` tokens.

    They are looked for in the folder "documents" under `CONGRUENCE_DATA`, and in the cache folder. Pages are in a fixed
    random order, and every twentieth is held out.
    """
    homes = [Path(home) / DOCUMENTS for home in (os.environ.get(VARIABLE), cache_folder()) if home]
    paths = [path for home in ([Path(folder)] if folder else homes) for path in sorted(home.glob(PACKED))]
    if not paths:
        raise InputError(
            f"no {PACKED} in {folder or ' or '.join(map(str, homes))}; benchmarks/pack_documents.py makes them from "
            "Debian's documentation packages"
        )
    pages = [page for path in paths for page in _unpack(path)]
    pages.sort(key=lambda page: hashlib.sha256(page.encode()).digest())
    return _cut(pages, vocabulary, length, PAGE_HELD_OUT, f"{len(paths)} documentation packages of Debian")


def _unpack(path: Path) -> list[str]:
    with reading(path, "packed pages"), lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        return file.read().split("\f")


def _cut(files: Sequence[str], vocabulary: int, length: int, every: int, origin: str) -> TextWindows:
    """Hold every `every`th text out, fit tokens to the others, and cut both into windows."""
    check_integer("vocabulary", vocabulary, BYTES)
    train = [text for number, text in enumerate(files) if number % every]
    held_out = list(files[::every])
    tokenizer = _byte_pairs(train, vocabulary)
    windows, others = (_windows(tokenizer, part, length) for part in (train, held_out))
    if not (len(windows[0]) and len(others[0])):
        raise InputError(f"{len(files)} files are too few for training and held-out windows of {length} tokens")
    digest = hashlib.sha256("\0".join(files).encode()).hexdigest()
    counts = (len(train), len(held_out))
    return TextWindows(windows[0], *others, tokenizer.get_vocab_size(), origin, digest, counts)


def _read(paths: Sequence[Path], most_bytes: int | None) -> list[str]:
    texts, size = [], 0
    for path in paths:
        if most_bytes is not None and size >= most_bytes:
            break
        texts.append(path.read_text(encoding="utf-8", errors="replace"))
        size += len(texts[-1])
    return texts


def _byte_pairs(texts: Sequence[str], vocabulary: int) -> Any:
    tokenizer = require("tokenizers", "splitting text into tokens", "extract").ByteLevelBPETokenizer()
    sizes = np.cumsum([len(text) for text in texts])
    enough = texts[: int(np.searchsorted(sizes, FITTED)) + 1]
    tokenizer.train_from_iterator(enough, vocab_size=vocabulary, show_progress=False)
    return tokenizer


def _windows(tokenizer: Any, texts: Sequence[str], length: int) -> tuple[Array, Array]:
    """Concatenated texts cut into windows, and the number of the text in which each begins; the rest is dropped."""
    numbers = [np.array(one.ids, np.int32) for one in tokenizer.encode_batch(list(texts))]
    joined = np.concatenate([np.empty(0, np.int32), *numbers])
    count = len(joined) // length
    ends = np.cumsum([len(one) for one in numbers])
    begun = np.searchsorted(ends, np.arange(count) * length, side="right")
    return joined[: count * length].reshape(-1, length), begun
