"""The source of the standard library becomes windows of tokens, and files that are held out stay out."""

import sys

import numpy as np
import pytest

from congruence.errors import InputError, MissingDependencyError
from congruence.experiments.data.library_text import library_files, library_text

pytest.importorskip("tokenizers", reason="tokenizers is not installed")


@pytest.fixture
def library(tmp_path):
    """Ten files, each with a word of its own, and files that are to be left out."""
    for number in range(10):
        word = "abcdefghij"[number] * 3
        (tmp_path / f"module{number}.py").write_text(f"{word} = '{word}'\n" * 40)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "module.py").write_text("left out\n" * 100)
    return tmp_path


def test_files_come_in_an_order_that_follows_their_names(library):
    names = [path.name for path in library_files(library)]
    assert len(names) == 10
    assert names != sorted(names)
    assert names == [path.name for path in library_files(library)]


def test_held_out_files_are_not_trained_on(library):
    text = library_text(256, 16, root=library)  # tokens are bytes
    order = library_files(library)
    held_out = {ord(path.read_text()[0]) for path in order[::5]}
    letters = {number for number in range(256) if chr(number) in "abcdefghij"}
    alone = np.setdiff1d(text.held_out, text.train)
    assert text.files == (8, 2)
    assert len(alone) == len(held_out & letters) == 2  # the letters of the two files, and no other
    assert text.held_out_files.tolist() == sorted(text.held_out_files)
    assert set(text.held_out_files) == {0, 1}
    assert text.train.shape[1] == text.held_out.shape[1] == 16


def test_byte_pairs_make_texts_shorter_and_their_number_is_bounded(library):
    few, many = (library_text(count, 16, root=library) for count in (256, 280))
    assert few.vocabulary == 256
    assert 256 < many.vocabulary <= 280
    assert many.train.max() < many.vocabulary
    assert many.train.size < 0.6 * few.train.size
    assert few.digest == many.digest


def test_the_digest_tells_texts_apart_and_bytes_can_be_few(library):
    before = library_text(256, 16, root=library)
    few = library_text(256, 16, root=library, most_bytes=1500)
    assert sum(few.files) < sum(before.files)
    library_files(library)[0].write_text("zzz = 'zzz'\n" * 40)
    assert library_text(256, 16, root=library).digest != before.digest


def test_what_cannot_be_cut_is_refused(library, tmp_path):
    with pytest.raises(InputError, match="vocabulary must be an integer of at least 256; got 100"):
        library_text(100, 16, root=library)
    with pytest.raises(InputError, match="too few for training and held-out windows of 100000 tokens"):
        library_text(256, 100_000, root=library)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="contains no Python source"):
        library_text(256, 16, root=tmp_path / "empty")


def test_where_tokenizers_is_missing_it_is_said_how_to_get_it(library, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingDependencyError, match="splitting text into tokens needs tokenizers"):
        library_text(256, 16, root=library)
