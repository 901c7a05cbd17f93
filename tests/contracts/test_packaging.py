"""What surrounds the code: a wheel that works without torch, and files that agree with pyproject.toml."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import congruence

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

SITE = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
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


@pytest.fixture
def install(tmp_path):
    """Install a distribution into an empty environment that finds the libraries of this one; return its Python."""
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    own = subprocess.run([python, "-c", SITE], capture_output=True, text=True, check=True).stdout.strip()
    Path(own, "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def install(*arguments):
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, *arguments], check=True)
        return python

    return install


def check_installed(python, folder):
    """The program runs, and the library is the installed one and works without torch."""
    commands = [
        [python.parent / "congruence", "--version"],
        [python, "-I", "-c", WITHOUT_TORCH, str(python.parents[1])],
    ]
    for command, expected in zip(commands, (f"congruence {congruence.__version__}\n", "holds\n"), strict=True):
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_the_wheel_is_installed_into_an_empty_environment(wheel, install, tmp_path):
    check_installed(install(wheel), tmp_path)


def test_the_source_distribution_is_built_and_installed(install, tmp_path):
    build = "import sys; from hatchling.build import build_sdist; print(build_sdist(sys.argv[1]))"
    made = subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    check_installed(install(tmp_path / made.stdout.strip()), tmp_path)


def test_the_steps_of_the_dockerfile_install_the_program(install, tmp_path):
    """Files are copied and pip is run as the image does, into an empty environment; Docker itself is not run."""
    text = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        *sources, target = line.split()
        folder = tmp_path / target.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for one in sources:
            if (ROOT / one).is_dir():
                shutil.copytree(ROOT / one, folder, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / one, folder)
    extras = re.search(r"pip install .*'/src\[(.+)\]'", text)[1]
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    check_installed(install(f"{tmp_path}/src[{extras}]"), tmp_path)


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


def test_workflows_are_valid_and_run_the_ci_script():
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    commands = [step["run"] for job in tests["jobs"].values() for step in job["steps"] if "run" in step]
    assert "bash .ci/run" in commands
    declared = {one.rsplit(" ", 1)[1] for one in PROJECT["classifiers"] if re.search(r"3\.\d+$", one)}
    assert declared <= set(tests["jobs"]["tests"]["strategy"]["matrix"]["python"])
