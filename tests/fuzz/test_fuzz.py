"""Damaged files of every format are read or refused, and do nothing else."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from congruence.tables import SUFFIXES

FOLDER = Path(__file__).parent
LISTING = "import samples; print(*samples.SAMPLES)"


def list_samples():
    done = subprocess.run([sys.executable, "-c", LISTING], cwd=FOLDER, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_there_is_a_sample_of_every_format():
    optional = {".lance": "lance", ".faiss": "faiss", ".index": "faiss"}
    absent = {suffix for suffix, library in optional.items() if not find_spec(library)}
    assert {name[name.index(".") :] for name in list_samples()} == set(SUFFIXES) - absent


def test_damaged_files_are_read_or_refused_in_one_sentence():
    run("run.py", *list_samples(), "--count", "296")


def test_damaged_folders_and_saved_files_are_read_or_refused_in_one_sentence():
    run(
        "run.py",
        "map.safetensors",
        "ica.safetensors",
        "baseline.safetensors",
        "record",
        "parts",
        "prior.npz",
        "--count",
        "90",
    )


def test_random_command_lines_end_with_a_result_or_a_sentence():
    run("run.py", "--lines", "--count", "40")


def test_commands_that_were_killed_leave_what_undisturbed_ones_leave():
    run("kills.py", "resolve-zarr", "apply-parts", "--count", "8")


def run(script, *arguments):
    command = [sys.executable, str(FOLDER / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("0 failures") >= 1
