"""Outputs that cannot be written: nothing is left half-written, and one sentence says why."""

import os
import shutil
import stat
import subprocess
import sys

import numpy as np
import pytest

from congruence.errors import InputError
from congruence.files import check_writable, replacing, system_reason, write_text
from congruence.tables import Table, read_table, write_table

X = np.random.default_rng(0).normal(size=(2000, 20))
FORMATS = [".npy", ".npz", ".csv", ".csv.gz", ".parquet", ".arrow", ".feather", ".safetensors", ".h5ad", ".zarr"]

# It prints the outcome of each format, one per line; the libraries are loaded before the limit is set.
SCRIPT = """
import os, resource, sys
from pathlib import Path
import numpy as np, pyarrow.csv
if ".zarr" in sys.argv:
    import anndata, h5py, pyarrow.parquet, safetensors.numpy, zarr
from congruence.errors import InputError
from congruence.tables import Table, read_table, write_table

folder = Path(sys.argv[1])
values = np.random.default_rng(0).normal(size=(2000, 20))
write_table(Table(values[:3], "x"), folder / "warm.zarr") if sys.argv[2] == "user" and ".zarr" in sys.argv else None
if sys.argv[2] == "size":
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
if sys.argv[2] == "user":
    os.setresuid(65534, 65534, 65534)
for suffix in sys.argv[3:]:
    ids = {} if suffix == ".npy" else {"ids": [f"r{i}" for i in range(2000)]}
    try:
        write_table(Table(values, "x", **ids), folder / f"x{suffix}")
        print(suffix, "was written")
    except InputError as error:
        print(suffix, error)
"""


def write_all(folder, limit, formats=FORMATS):
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(folder), limit, *formats]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(formats)
    return lines


def test_a_file_that_may_not_grow_leaves_nothing_behind(tmp_path):
    (tmp_path / "x.csv").write_text("old")
    for line in write_all(tmp_path, "size"):
        assert line.endswith(": File too large")
    assert os.listdir(tmp_path) == ["x.csv"]
    assert (tmp_path / "x.csv").read_text() == "old"


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_leaves_nothing_behind(small_disk):
    for line in write_all(small_disk, "disk"):
        assert line.endswith(": No space left on device")
    assert os.listdir(small_disk) == []
    with pytest.raises(InputError, match="No space left on device"):
        write_text(small_disk / "report.html", "x" * 100_000)
    assert os.listdir(small_disk) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write there")
def test_folders_and_files_of_others_are_refused(tmp_path, tmp_path_factory):
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    made_by_pytest = [parent for parent in tmp_path.parents if parent.name.startswith(("pytest-", "popen-"))]
    for parent in (tmp_path, tmp_path_factory.getbasetemp(), *made_by_pytest):
        parent.chmod(0o755)
    for line in write_all(folder, "user"):
        assert line.lower().endswith("permission denied")  # of the system, or ours
    assert os.listdir(folder) == ["warm.zarr"]
    folder.chmod(0o777)
    (folder / "x.csv").write_text("theirs")
    (folder / "x.csv").chmod(0o444)
    assert write_all(folder, "user", [".csv"]) == [f".csv cannot write to {folder / 'x.csv'}: permission denied"]
    assert (folder / "x.csv").read_text() == "theirs"


@pytest.mark.parametrize("suffix", [*FORMATS, ".html"])
@pytest.mark.parametrize("target", ["a file", "a folder", "nothing"])
def test_a_symbolic_link_is_refused_and_what_is_behind_it_left_alone(tmp_path, suffix, target):
    behind, link = tmp_path / f"behind{suffix}", tmp_path / f"x{suffix}"
    if target == "a file":
        behind.write_text("precious")
    elif target == "a folder":
        behind.mkdir()
        (behind / ".zgroup").write_text("{}")
    link.symlink_to(behind)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(InputError, match=f"x{suffix}: it is a symbolic link to .*behind{suffix}; give the name of the"):
        write_text(link, "x") if suffix == ".html" else write_table(Table(X, "x"), link)
    assert sorted(os.listdir(tmp_path)) == before
    assert link.is_symlink()
    assert target != "a file" or behind.read_text() == "precious"


def test_a_link_put_there_meanwhile_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "precious").write_text("precious")
    with replacing(tmp_path / "x.html") as temporary:
        temporary.write_text("report")
        (tmp_path / "x.html").symlink_to(tmp_path / "precious")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "x.html").is_symlink()
    assert (tmp_path / "x.html").read_text() == "report"


def test_a_folder_that_is_a_link_may_be_written_to(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_table(Table(X, "x"), tmp_path / "link" / "x.npy")
    assert os.listdir(tmp_path / "real") == ["x.npy"]


def test_devices_and_pipes_are_not_replaced_by_files(tmp_path):
    os.mkfifo(tmp_path / "x.csv")
    for path in (tmp_path / "x.csv", "/dev/null"):
        with pytest.raises(InputError, match=f"cannot write to {path}: it is a device or a pipe, not a file"):
            write_text(path, "x")
    assert stat.S_ISFIFO((tmp_path / "x.csv").stat().st_mode)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_folder_is_not_replaced_by_a_file(tmp_path, suffix):
    (tmp_path / f"x{suffix}").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        write_table(Table(X, "x"), tmp_path / f"x{suffix}")
    assert os.listdir(tmp_path) == [f"x{suffix}"]


@pytest.mark.parametrize("suffix", [".csv", ".zarr"])
def test_names_may_be_as_long_as_the_system_allows_and_no_longer(tmp_path, suffix):
    longest = "x" * (255 - len(suffix)) + suffix
    write_table(Table(X, "x"), tmp_path / longest)
    assert os.listdir(tmp_path) == [longest]
    with pytest.raises(InputError, match="File name too long"):
        check_writable(tmp_path / f"x{longest}")
    with pytest.raises(InputError, match="File name too long"):
        write_table(Table(X, "x"), tmp_path / f"x{longest}")
    with pytest.raises(InputError, match="File name too long"):
        read_table(tmp_path / f"x{longest}")
    with pytest.raises(InputError, match="null (byte|character)"):
        check_writable(tmp_path / "x\0.csv")


def test_a_folder_that_vanishes_meanwhile_is_one_sentence(tmp_path):
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(InputError, match=r"cannot write to .*x.html: No such file or directory"),
        replacing(tmp_path / "folder" / "x.html") as temporary,
    ):
        assert temporary.exists()
        shutil.rmtree(tmp_path / "folder")


def test_the_reason_of_the_system_is_found_in_the_words_of_a_library():
    assert system_reason(OSError(28, "Error writing bytes to file. Detail: ...")) == "No space left on device"
    assert system_reason(ValueError("file write failed: errno = 28, error message = ...")) == "No space left on device"
    assert system_reason(ValueError("I/O error: File too large (os error 27)")) == "File too large"
    assert system_reason(ValueError("errno = 99999")) == ""
    assert system_reason(OSError("24 requested and 0 written")) == ""
