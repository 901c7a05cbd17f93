"""Damaged files of every format are read or refused, and do nothing else."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from congruence.tables import SUFFIXES

FOLDER = Path(__file__).parent
LISTING = "import samples; print(*samples.SAMPLES)"


def test_there_is_a_sample_of_every_format():
    done = subprocess.run([sys.executable, "-c", LISTING], cwd=FOLDER, capture_output=True, text=True, check=True)
    optional = {".lance": "lance", ".faiss": "faiss", ".index": "faiss"}
    absent = {suffix for suffix, library in optional.items() if not find_spec(library)}
    assert {name[name.index(".") :] for name in done.stdout.split()} == set(SUFFIXES) - absent


def test_damaged_files_are_read_or_refused_in_one_sentence():
    command = [sys.executable, str(FOLDER / "run.py"), "--count", "296"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout
