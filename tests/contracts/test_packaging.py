"""What surrounds the code: a wheel that works without torch, and files that agree with pyproject.toml."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import congruence

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
sys.path.insert(0, sys.argv[1])
import congruence
import numpy as np
assert congruence.__file__.startswith(sys.argv[1])
x = np.random.default_rng(0).normal(size=(60, 3))
print(congruence.compare(x, x[:, ::-1], groups=["similarity"], nulls=2).status)
"""


def test_the_wheel_has_the_package_with_its_types_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"congruence/py.typed", "congruence/__init__.pyi", "congruence/canary.txt"} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"congruence"}
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert source <= set(names)


def test_the_wheel_works_without_torch(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT_TORCH, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, "holds\n"), done.stderr


def test_versions_and_requirements_agree():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert recipe["context"]["version"] == cited["version"] == congruence.__version__
    assert congruence.__version__ in (ROOT / "CHANGELOG.md").read_text()
    needed = {re.sub(r"^matplotlib\b", "matplotlib-base", one) for one in PROJECT["dependencies"]}
    assert {one.replace(" ", "") for one in recipe["requirements"]["run"][1:]} == needed


@pytest.mark.parametrize("name", ["llms.txt", "README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(name):
    links = re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text())
    assert links or name == "SECURITY.md"
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_steps_of_the_dockerfile_name_files_and_extras_that_exist():
    text = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / one).exists() for one in line.split())
    extras = re.search(r"/src\[(.+?)\]", text)[1].split(",")
    assert set(extras) <= set(PROJECT["optional-dependencies"])


def test_workflows_are_valid_and_run_the_ci_script():
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    commands = [step["run"] for job in tests["jobs"].values() for step in job["steps"] if "run" in step]
    assert "bash .ci/run" in commands
    declared = {one.rsplit(" ", 1)[1] for one in PROJECT["classifiers"] if re.search(r"3\.\d+$", one)}
    assert declared <= set(tests["jobs"]["tests"]["strategy"]["matrix"]["python"])
