"""What the tests of hostile files share: little memory, code that leaves a mark, and how a refusal has to look."""

from pathlib import Path

import pytest

from congruence.errors import TableError
from congruence.tables import read_table


@pytest.fixture
def small_memory(monkeypatch):
    """Reading may take one megabyte."""
    monkeypatch.setenv("CONGRUENCE_MAX_BYTES", str(2**20))


class Payload:
    """Unpickling an instance leaves a mark on the disk."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.fixture
def mark(tmp_path):
    """A file that appears when code inside of a table is run, which it never is."""
    yield tmp_path / "mark"
    assert not (tmp_path / "mark").exists()


@pytest.fixture
def payload(mark):
    """An object whose unpickling leaves the mark."""
    return Payload(mark)


@pytest.fixture
def refused():
    """Read a file that has to be refused in one sentence that names it; return the sentence."""

    def refuse(path, *words):
        with pytest.raises(TableError) as caught:
            read_table(path)
        message = str(caught.value)
        assert message.isprintable()
        assert str(path) in message
        for word in words:
            assert word in message
        return message

    return refuse
