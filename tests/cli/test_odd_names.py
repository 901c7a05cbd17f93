"""File names whose bytes are not UTF-8, as old archives have them."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_file_name_that_is_not_utf8_is_escaped_in_every_output(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 3))
    name = os.fsdecode(b"\xff.npy")
    for file in ("a.npy", name):
        with open(tmp_path / file, "wb") as stream:
            np.save(stream, x)
    command = [sys.executable, "-m", "congruence", "compare", "a.npy", name, "--groups", "rigid", "--nulls", "2"]
    files = ["--report", "r.html", "--markdown", "r.md", "--csv", "r.csv", "--latex", "r.tex"]
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run([*command, *files, "--json", "-"], cwd=tmp_path, env=strict, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert name in {os.path.basename(one["path"]) for one in json.loads(done.stdout)["settings"]["inputs"]}
    for file in ("r.html", "r.md"):
        assert r"\udcff" in (tmp_path / file).read_text(encoding="utf-8")
    done = subprocess.run([*command, "--json", "r.json"], cwd=tmp_path, env=strict, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["status"] == "holds"
