import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
import warnings

import numpy as np
import pytest

import congruence
from congruence import files
from congruence.errors import InputError
from congruence.files import (
    LOCK,
    InputFile,
    alone_in,
    check_writable,
    describe_file,
    remove_parts,
    replacing,
    write_text,
)


def test_text_is_written_whole_and_readable_by_others(tmp_path):
    previous = os.umask(0o022)
    try:
        write_text(tmp_path / "a.txt", "é\n")
    finally:
        os.umask(previous)
    assert (tmp_path / "a.txt").read_bytes() == "é\n".encode()
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o644


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_an_interruption_leaves_what_was_there(interruption, tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(interruption), replacing(target) as temporary:
        temporary.write_text("half of the n")
        raise interruption
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [OSError(28, "No space"), RuntimeError("I/O error: full (os error 28)")], ids=repr)
def test_a_full_disk_is_one_sentence(tmp_path, error):
    with (
        pytest.raises(InputError, match=r"cannot write to .*a.txt: No space left on device"),
        replacing(tmp_path / "a.txt"),
    ):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_paths_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(InputError, match="it is a folder; give a file name"):
        check_writable(tmp_path)
    with pytest.raises(InputError, match=r"the folder .*nowhere does not exist"):
        check_writable(tmp_path / "nowhere" / "a.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folders_without_permission_are_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="permission denied"):
        check_writable(tmp_path / "a.txt")


def test_one_at_a_time_works_in_a_folder_and_leaves_nothing_there(tmp_path):
    with alone_in(tmp_path / "new") as alone:
        assert alone
        with (
            pytest.raises(InputError, match="another process is using .*new; wait until it has finished"),
            alone_in(tmp_path / "new"),
        ):
            raise AssertionError
    with alone_in(tmp_path / "new"):
        pass
    assert list((tmp_path / "new").iterdir()) == []


def test_a_process_that_is_killed_holds_no_folder(tmp_path):
    script = (
        "import os, sys; from congruence.files import alone_in\nwith alone_in(sys.argv[1]): os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    (tmp_path / ".big.abcd.part").write_text("half of")
    with alone_in(tmp_path) as alone:
        assert alone
        remove_parts(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_where_no_lock_can_be_had_work_goes_on_without_one(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with alone_in(tmp_path / "file") as alone:
        assert not alone

    def refuse(*args):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    with alone_in(tmp_path) as alone:
        assert not alone


def test_a_file_is_described_by_its_checksum(tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(b"abc")
    assert describe_file(path) == InputFile(str(path), 3, hashlib.sha256(b"abc").hexdigest(), None)


def test_a_large_file_is_described_by_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "HASHED", 2)
    path = tmp_path / "a.npy"
    path.write_bytes(b"abc")
    os.utime(path, (0, 1_000_000_000))
    assert describe_file(path) == InputFile(str(path), 3, None, "2001-09-09T01:46:40+00:00")


def test_a_folder_is_described_by_names_and_contents(tmp_path):
    def folder(name, **contents):
        (tmp_path / name / "c").mkdir(parents=True)
        for file, text in contents.items():
            (tmp_path / name / file.replace("_", "/")).write_text(text)
        return describe_file(tmp_path / name)

    one, same = folder("one", a="1", c_b="23"), folder("same", c_b="23", a="1")
    assert (one.bytes, one.sha256, one.modified) == (3, same.sha256, None)
    assert folder("moved", a="1", b="23").sha256 != one.sha256
    assert folder("changed", a="1", c_b="24").sha256 != one.sha256


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*none\.npy: No such file or directory"):
        describe_file(tmp_path / "none.npy")


@pytest.mark.parametrize("verb", ["compare", "resolve", "translate", "evaluate"])
def test_an_input_that_is_overwritten_during_a_run_is_refused(tmp_path, rng, verb):
    a, b, x = tmp_path / "a.npy", tmp_path / "b.npy", rng.laplace(size=(300, 3))
    np.save(a, x)
    np.save(b, x[:, ::-1])

    def overwrite(*_):  # in place, as the rows are mapped
        mapped = np.lib.format.open_memmap(b, "r+")
        mapped[:] = mapped[::-1] * 2

    verbs = {
        "compare": lambda: congruence.compare(a, b, nulls=2, progress=overwrite),
        "resolve": lambda: congruence.resolve(b, progress=overwrite),
        "translate": lambda: congruence.translate(a, b, progress=overwrite),
        "evaluate": lambda: congruence.evaluate(b, x, metrics=["mcc"], progress=overwrite),
    }
    with warnings.catch_warnings(), pytest.raises(InputError, match=r"b\.npy was changed while it was in use"):
        warnings.simplefilter("ignore")
        verbs[verb]()


def test_an_input_that_is_replaced_or_left_alone(tmp_path, rng):
    table = congruence.read_table(_saved(tmp_path / "a.npy", rng.normal(size=(9, 2))))
    (known,) = table.read
    assert describe_file(known) == describe_file(tmp_path / "a.npy")
    os.replace(_saved(tmp_path / "b.npy", np.asarray(table.values) + 1), tmp_path / "a.npy")
    with pytest.raises(InputError, match="was changed"):
        describe_file(known)


def _saved(path, values):
    np.save(path, values)
    return path
