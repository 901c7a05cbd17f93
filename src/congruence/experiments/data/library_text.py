"""The source of Python's standard library as windows of tokens: text that needs no download."""

from __future__ import annotations

import hashlib
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

SKIPPED = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
SKIPPED |= {"encodings", "pydoc_data"}  # tables rather than text
HELD_OUT = 5  # every fifth file
BYTES = 256  # the smallest vocabulary


@dataclass(frozen=True, eq=False)
class LibraryText:
    """Windows of tokens, and what identifies their text: another version of Python has another library."""

    train: Array  # (n, length) int32
    held_out: Array  # (m, length) int32, of other files
    held_out_files: Array  # (m,) the number of the file in which a window begins
    vocabulary: int
    python: str  # the version
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
) -> LibraryText:
    """Read the standard library, or another `root` of Python files, and cut it into windows of `length` tokens.

    Tokens are byte pairs (Sennrich et al. 2016), fitted to the training files: at most `vocabulary` of them, at least
    256 (the bytes). Every fifth file is held out, and no file is read after `most_bytes`.
    """
    check_integer("vocabulary", vocabulary, BYTES)
    files = _read(library_files(root), most_bytes)
    train = [text for number, text in enumerate(files) if number % HELD_OUT]
    held_out = files[::HELD_OUT]
    tokenizer = _byte_pairs(train, vocabulary)
    windows, others = (_windows(tokenizer, part, length) for part in (train, held_out))
    if not (len(windows[0]) and len(others[0])):
        raise InputError(f"{len(files)} files are too few for training and held-out windows of {length} tokens")
    digest = hashlib.sha256("\0".join(files).encode()).hexdigest()
    counts = (len(train), len(held_out))
    return LibraryText(windows[0], *others, tokenizer.get_vocab_size(), platform.python_version(), digest, counts)


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
    tokenizer.train_from_iterator(texts, vocab_size=vocabulary, show_progress=False)
    return tokenizer


def _windows(tokenizer: Any, texts: Sequence[str], length: int) -> tuple[Array, Array]:
    """Concatenated texts cut into windows, and the number of the text in which each begins; the rest is dropped."""
    numbers = [np.array(one.ids, np.int32) for one in tokenizer.encode_batch(list(texts))]
    joined = np.concatenate([np.empty(0, np.int32), *numbers])
    count = len(joined) // length
    ends = np.cumsum([len(one) for one in numbers])
    begun = np.searchsorted(ends, np.arange(count) * length, side="right")
    return joined[: count * length].reshape(-1, length), begun
