"""Who may import whom, and what must not be loaded before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import congruence

ROOT = Path(congruence.__file__).parent
HEAVY = {"torch", "sklearn", "matplotlib", "pandas", "pyarrow", "scipy", "anndata", "zarr", "dask"}
HEAVY |= {"distributed", "lightgbm", "triton"}

# room -> the rooms it may import; the order is that of the design, and nothing imports `experiments` or `cli`.
BASE = {"errors", "checks", "files", "result", "document", "formatting", "options", "arrays", "memory", "progress"}
BASE |= {"_lazy", "_saved", "stats", "rows"}
BELOW = {*BASE, "tables", "maps"}
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "_lazy": set(),
    "formatting": set(),
    "options": set(),
    "result": {"errors", "files", "document", "report"},  # `report`, `plot` and `_repr_html_` load their renderers
    "document": {"formatting", "result"},
    "progress": set(),
    "parts": {"arrays", "files"},  # finished parts of long computations
    "arrays": {"errors", "checks"},
    "memory": {"errors", "files", "arrays"},
    "checks": {"errors"},
    "stats": {"errors", "checks", "arrays"},
    "rows": {"errors", "checks", "arrays", "memory"},
    "_saved": {"errors", "files", "arrays", "result"},
    "tables": BASE,
    "maps": BASE | {"tables"},  # where blocks of rows go that do not fit in memory
    "align": BELOW | {"ica"},
    "translation": BELOW | {"ica", "align"},
    "ica": BELOW,
    "metrics": BELOW | {"ica"},  # whose components it evaluates
    "decoder": BELOW | {"ica"},  # Theorem 2, which lives with the components it is about
    "batches": BELOW | {"ica", "metrics", "parts"},
    "mechanism": BELOW | {"metrics", "decoder"},  # which opens decoders of any kind
    "mixture": BASE | {"tables", "maps", "decoder"},  # whose layers and linear pieces it reads
    "activations": BELOW,
    "report": BASE | {"maps"},  # the names of groups
}
FREE = {"cli", "experiments", "schema", "__main__", "__init__"}


def room(path):
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


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


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_import_only_what_the_design_allows(path):
    here = room(path)
    if here in FREE:
        return
    for there in imported_rooms(path):
        assert there == here or there in MAY_IMPORT[here], f"{here} must not import {there}"


def test_the_table_has_teeth(tmp_path):
    (tmp_path / "bad.py").write_text("from congruence.align._compare import compare\nimport congruence.cli\n")
    assert list(imported_rooms(tmp_path / "bad.py")) == ["align", "cli"]


RECIPES = ROOT / "experiments" / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*/*.py")), ids=lambda p: str(p.relative_to(RECIPES)))
def test_a_recipe_imports_no_other_recipe(path):
    packages = {folder.name for folder in RECIPES.iterdir() if (folder / "__init__.py").exists()}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("congruence.experiments.recipes"):
            imported = {f"{node.module}.{alias.name}".split(".")[3] for alias in node.names}
            assert imported & packages <= {path.parent.name}, f"{path} imports another recipe"


@pytest.mark.parametrize(
    "code",
    [
        "import congruence",
        "import congruence.cli",
        "import sys; sys.argv = ['congruence', '--help']\n"
        "try: __import__('congruence.cli').cli.main()\nexcept SystemExit: pass",
        "import sys; sys.argv = ['congruence', 'compare', '--help']\n"
        "try: __import__('congruence.cli').cli.main()\nexcept SystemExit: pass",
    ],
    ids=["import", "cli", "help", "compare help"],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code):
    report = f"{code}\nimport sys; print('LOADED', *sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_tables_and_reports_load_their_engines_late():
    report = f"import congruence.tables, congruence.report, sys; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
