"""Who may import whom, and what must not be loaded before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import congruence
from congruence.cli import COMMANDS

ROOT = Path(congruence.__file__).parent
HEAVY = {"torch", "sklearn", "matplotlib", "pandas", "pyarrow", "scipy", "anndata", "zarr", "dask"}
HEAVY |= {"distributed", "lightgbm", "triton"}

# room -> the rooms it may import; the order is that of the design, and nothing imports `experiments` or `cli`.
BASE = {"errors", "checks", "files", "result", "document", "formatting", "options", "arrays", "memory", "progress"}
BASE |= {"_lazy", "_saved", "gates", "guards", "stats", "rows"}
BELOW = {*BASE, "tables", "maps"}
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "guards": {"errors", "files", "memory"},
    "_lazy": set(),
    "formatting": set(),
    "options": set(),
    "result": {
        "errors",
        "checks",
        "files",
        "document",
        "report",
    },  # `report`, `plot` and `_repr_html_` load their renderers
    "document": {"formatting", "result"},
    "progress": {"errors"},
    "importing": {"errors"},
    "parts": {"_saved", "arrays", "errors", "files", "guards"},  # finished parts of long computations
    "arrays": {"errors", "checks"},
    "memory": {"errors", "files", "arrays"},
    "checks": {"errors"},
    "gates": {"checks", "result"},
    "stats": {"errors", "checks", "arrays"},
    "rows": {"errors", "checks", "arrays", "memory"},
    "_saved": {"errors", "files", "guards", "arrays", "result"},
    "tables": BASE,
    "maps": BASE | {"tables"},  # which reads and pairs their rows
    "align": BELOW | {"ica"},
    "translation": BELOW | {"ica", "align", "parts"},
    "ica": BELOW,
    "features": BELOW | {"ica"},  # whose components are features
    "metrics": BELOW | {"ica"},  # whose components it evaluates
    "decoder": BELOW | {"ica"},  # Theorem 2, which lives with the components it is about
    "batches": BELOW | {"ica", "metrics", "parts"},
    "mechanism": BELOW | {"metrics", "decoder"},  # which opens decoders of any kind
    "mixture": BASE | {"tables", "maps", "decoder"},  # whose layers and linear pieces it reads
    "activations": BELOW | {"parts"},
    "report": BASE | {"maps"},  # the names of groups
}
FREE = {"cli", "experiments", "schema", "testing", "tl", "__main__", "__init__"}


def room(path):
    first = path.relative_to(ROOT).parts[0]
    return first.partition(".")[0]


def imported_rooms(path):
    """The rooms a file imports when it runs; imports for type checking alone do not count."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            names = [
                f"{node.module}.{alias.name}" if node.module == "congruence" else node.module for alias in node.names
            ]
        for name in names:
            parts = name.split(".")
            if parts[0] == "congruence" and len(parts) > 1 and parts[1] != "__version__":
                yield parts[1]


FILES = sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi")])


@pytest.mark.parametrize("here", MAY_IMPORT)
def test_rooms_import_only_what_the_design_allows(here):
    """Above all, no room of the core imports `experiments`; stubs count, because names are loaded through them."""
    files = [path for path in FILES if room(path) == here]
    assert files
    for path in files:
        wrong = {there for there in imported_rooms(path) if there != here} - MAY_IMPORT[here]
        assert not wrong, f"{path.relative_to(ROOT)} must not import {', '.join(sorted(wrong))}"


def test_every_room_is_in_the_table():
    assert {room(path) for path in FILES} == {*MAY_IMPORT, *FREE}


def test_the_table_has_teeth(tmp_path):
    (tmp_path / "bad.py").write_text("from congruence.align._compare import compare\nimport congruence.cli\n")
    assert list(imported_rooms(tmp_path / "bad.py")) == ["align", "cli"]


RECIPES = ROOT / "experiments" / "recipes"
RECIPE_FILES = sorted((*RECIPES.glob("[!_]*.py"), *RECIPES.glob("*/*.py")))
SHARED = {"claims", "recipe", "result"}
RECIPE_NAMES = {path.relative_to(RECIPES).parts[0].removesuffix(".py") for path in RECIPE_FILES} - SHARED


@pytest.mark.parametrize("path", RECIPE_FILES, ids=lambda p: str(p.relative_to(RECIPES)))
def test_a_recipe_imports_no_other_recipe(path):
    own = path.relative_to(RECIPES).parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("congruence.experiments.recipes"):
            imported = {f"{node.module}.{alias.name}".split(".")[3] for alias in node.names}
            assert imported & RECIPE_NAMES <= {own}, f"{path} imports another recipe"


def loaded(code, names, folder=None):
    """Those of the names that are among the modules of a fresh interpreter once it has run the code."""
    report = f"{code}\nimport sys; print('LOADED', *sorted({set(names)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.splitlines()[-1].split()[1:]


def command(*arguments):
    """Code that runs the command line and returns from it."""
    call = "try: __import__('congruence.cli').cli.main()\nexcept SystemExit as stopped: assert not stopped.code"
    return f"import sys; sys.argv = {['congruence', *arguments]!r}\n{call}"


@pytest.mark.parametrize(
    "code",
    ["import congruence", "import congruence.cli", command("--help"), *(command(name, "--help") for name in COMMANDS)],
    ids=["import", "cli", "help", *(f"{name} help" for name in COMMANDS)],
)
def test_help_loads_nothing_numerical(code):
    assert loaded(code, {"numpy", *HEAVY}) == []


def test_comparing_two_arrays_loads_only_numpy_and_parts_of_scipy(tmp_path):
    """No reader of tables, no learning library and no renderer: a cold start is imports for the most part."""
    x = np.random.default_rng(0).laplace(size=(60, 3))
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "b.npy", x[:, ::-1])
    code = command("compare", "a.npy", "b.npy", "--nulls", "2", "--bootstrap", "0")
    assert loaded(code, {"numpy", "scipy.linalg"}, tmp_path) == ["numpy", "scipy.linalg"]
    unneeded = {"narwhals", "jinja2", "safetensors", "PIL", "h5py", "rich.progress", "scipy.stats", "scipy.cluster"}
    assert loaded(code, HEAVY - {"scipy"} | unneeded, tmp_path) == []


def test_tables_and_reports_load_their_engines_late():
    assert loaded("import congruence.tables, congruence.report", HEAVY) == []
