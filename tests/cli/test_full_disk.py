"""On a full disk every command leaves the old file or none, and ends with one sentence and exit code 2."""

import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from congruence.cli import main

MODEL = "import torch\ndef make(): return torch.nn.Sequential(torch.nn.Linear(3, 3))\n"


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A file system of 2 MB without room; where none may be mounted, no file may grow beyond a few bytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(300, 3))
    np.save("a.npy", x)
    np.save("b.npy", x[:, ::-1])
    (tmp_path / "m.py").write_text(MODEL)
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    mounted = shutil.which("mount") and subprocess.run(mount, capture_output=True).returncode == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.getsignal(signal.SIGXFSZ)
    for name in ("r.json", "m.safetensors"):
        (disk / name).write_text("old")
    if mounted:
        with (disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
            while True:
                filler.write(b"0" * 2**16)
    else:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    yield disk
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)
    if mounted:
        subprocess.run(["umount", "-l", str(disk)], check=True)  # a library may hold its file open


COMMANDS = {
    "compare --json": "compare a.npy b.npy --nulls 2 -q --json {disk}/r.json",
    "compare --report": "compare a.npy b.npy --nulls 2 -q --report {disk}/r.html",
    "compare --csv": "compare a.npy b.npy --nulls 2 -q --csv {disk}/r.csv",
    "resolve --model": "resolve a.npy -q --model {disk}/m.safetensors",
    "resolve --out": "resolve a.npy -q --out {disk}/o.parquet",
    "translate fit --map": "translate fit a.npy b.npy --nulls 2 -q --map {disk}/m.safetensors",
    "extract --out": "extract m.py:make --array a.npy --layer 0 --out {disk}/e.parquet -q",
    "data make": "data make pinwheel --n 300 --out {disk}/s.npz",
    "train": "train vade --data pinwheel --n 300 --steps 2 --hidden 4 --out {disk}/runs -q",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_a_full_disk_leaves_the_old_file_and_one_sentence(full, monkeypatch, capsys, command):
    monkeypatch.setattr(sys, "argv", ["congruence", *command.format(disk=full).split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert stopped.value.code == 2, error
    assert error.startswith(f"congruence: cannot write to {full}")
    assert error.endswith(("No space left on device", "File too large"))
    for name in ("r.json", "m.safetensors"):
        assert (full / name).read_text() == "old"
    left = {path.name for path in full.iterdir()} - {"r.json", "m.safetensors", "filler"}
    assert left <= {"runs", ".e.parquet.parts"}  # folders that the same command continues
