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
from congruence import files, fit_map
from congruence.errors import InputError
from congruence.features import match_features
from congruence.files import (
    LOCK,
    PART,
    InputFile,
    alone,
    check_writable,
    describe_file,
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


@pytest.mark.parametrize("folder", [True, False])
def test_one_at_a_time_writes_an_output_and_leaves_nothing_there(tmp_path, folder, held_elsewhere):
    output = tmp_path / "new"
    with held_elsewhere(output, folder=folder):
        with (
            pytest.raises(InputError, match="another process is using .*new; wait until"),
            alone(output, folder=folder),
        ):
            raise AssertionError
        with alone(output, folder=folder, needed=False) as locked:
            assert not locked
    with alone(output, folder=folder) as outer, alone(output, folder=folder, needed=False) as inner:
        assert outer
        assert inner != folder  # the same thread may lock a file again, for each of its writes
    assert list(tmp_path.rglob("*")) == ([output] if folder else [])


def test_a_process_that_is_killed_holds_no_output(tmp_path):
    script = "import os, sys; from congruence.files import *\n"
    script += "with alone(sys.argv[1], folder=True), replacing(sys.argv[1] + '/big') as new:\n"
    script += "    new.write_text('half of'); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    left = sorted(path.name for path in tmp_path.iterdir())
    assert [name.startswith(".big.") for name in left] == [True, True, False]
    assert left[2] == LOCK
    (tmp_path / ".download.part").write_text("of another program")
    with alone(tmp_path, folder=True) as locked:
        assert locked
    assert [path.name for path in tmp_path.iterdir()] == [".download.part"]


def test_what_a_killed_write_left_is_removed_by_the_next_one_of_the_same_name(tmp_path):
    long = "x" * 50
    for name in (f"{long}1", f"{long}2"):
        files._beside(tmp_path / name, f"-abc{PART}").write_text("half")
    write_text(tmp_path / f"{long}1", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        files._beside(tmp_path / f"{long}2", f"-abc{PART}").name,
        f"{long}1",
    ]


def test_what_a_library_writes_beside_its_file_is_not_left(tmp_path):
    """Such as safetensors, which renames a file with a name of its own."""
    with replacing(tmp_path / "x") as temporary:
        temporary.with_name(".tmpAb12").write_text("half")
        temporary.write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    killed = files._beside(tmp_path / "x", f"-abc{PART}")
    killed.mkdir()
    (killed / ".tmpCd34").write_text("half")
    write_text(tmp_path / "x", "newer")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_saved_files_can_be_read_by_those_who_can_read_other_files(tmp_path):
    (tmp_path / "other").touch()
    fit_map(np.eye(3), np.eye(3)).save(tmp_path / "map.safetensors")
    assert (tmp_path / "map.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_an_unlocked_writer_does_not_remove_what_the_holder_of_the_lock_writes(tmp_path, held_elsewhere):
    with held_elsewhere(tmp_path / "a"):
        theirs = files._beside(tmp_path / "a", f"-abc{PART}")
        theirs.write_text("half")
        write_text(tmp_path / "a", "ours")  # as a worker does for a process that holds the lock
        assert theirs.exists()
    assert (tmp_path / "a").read_text() == "ours"


def test_where_no_lock_can_be_had_work_goes_on_without_one(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    with alone(tmp_path, folder=True) as locked:
        assert not locked


def test_locking_a_folder_leaves_what_other_commands_write_in_it(tmp_path, held_elsewhere):
    """As `deconfound --parts . --out x.parquet` does: the lock and the temporary file of a held output remain."""
    part = files._beside(tmp_path / "x.parquet", f"-0123abcd{files.PART}")
    stale = files._beside(tmp_path / "y.parquet", f"-0123abcd{files.PART}")
    with held_elsewhere(tmp_path / "x.parquet"):
        part.touch()
        stale.touch()
        with files.alone(tmp_path, folder=True):
            assert part.exists()
            assert not stale.exists()
        with pytest.raises(InputError, match="another process"), files.alone(tmp_path / "x.parquet"):
            pass
    with files.alone(tmp_path, folder=True):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("killed", ["writing", "renaming", "removing"])
def test_a_folder_is_replaced_or_comes_back(tmp_path, killed):
    """A process killed at any moment leaves the old folder or the new one, or the old one comes back."""
    store = tmp_path / "a.zarr"
    store.mkdir()
    (store / "x").write_text("old")
    moment = {"writing": "os.fsync", "renaming": "os.replace", "removing": "shutil.rmtree"}[killed]
    script = f"""
import os, shutil, sys
from congruence.files import replacing
real = {moment}
def die(*arguments, **options):
    if {moment!r} == "os.replace":
        real(*arguments, **options)  # the first of two
    os.kill(os.getpid(), 9)
with replacing(sys.argv[1], folder=True) as new:
    new.mkdir()
    (new / "x").write_text("new")
    {moment} = die
"""
    assert subprocess.run([sys.executable, "-c", script, str(store)]).returncode == -signal.SIGKILL
    assert store.exists() == (killed != "renaming")
    with alone(store):
        assert (store / "x").read_text() == ("new" if killed == "removing" else "old")
    assert list(tmp_path.iterdir()) == [store]


def test_the_folder_is_flushed_after_a_rename(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(files, "_flush", lambda path: seen.append((path.name, (tmp_path / "a").exists())))
    write_text(tmp_path / "a", "text")
    assert [when for _, when in seen] == [False, True]
    assert seen[1][0] == tmp_path.name


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


@pytest.mark.parametrize("verb", ["compare", "resolve", "translate", "evaluate", "match_features", "index", "queries"])
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
        "match_features": lambda: match_features(a, b, nulls=2, aligned=True, progress=overwrite),
        "index": lambda: congruence.translate(x, x @ x[:3], index=b, progress=overwrite),
        "queries": lambda: congruence.translate(x, x @ x[:3], queries=(b, a), progress=overwrite),
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


def test_a_name_that_no_file_can_have_is_refused_by_readers_and_not_by_the_check_of_outputs():
    assert files.real_path(files.Path("a\0b")).name == "a\0b"
