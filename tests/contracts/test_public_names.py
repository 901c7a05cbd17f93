"""Every public name exists, is what it says, is documented and has a place in the reference pages."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import congruence

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("make_public_api", Path(__file__).with_name("make_public_api.py"))
make_public_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_public_api)
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
MODULES = {"testing", "tl"}  # for pytest and for AnnData
NAMES = [name for name in congruence.__all__ if name not in ("__version__", *MODULES)]
VERBS = {
    "compare": "compare",
    "check": "check",
    "compare_layers": "layers",
    "translate": "translate",
    "resolve": "resolve",
    "evaluate": "evaluate",
    "deconfound": "deconfound",
    "examine_decoder": "decoder",
    "examine_mechanism": "mechanism",
    "examine_mixture": "mixture",
    "extract": "extract",
    "match_features": "features",
}  # and their commands
OTHERS = {"ICA", "Whitener", "Aligner", "Table", "read_table", "write_table", "fit_map", "Map", "load"}
OTHERS |= {"infomec", "bilipschitz", "consensus", "component_stability", "diameter"}
RESULTS = {"Comparison", "LayerComparison", "Translation", "Resolution", "Evaluation", "Deconfounding"}
RESULTS |= {"FeatureMatch", "DecoderExamination", "MechanismExamination", "MixtureExamination"}


def test_the_top_level_has_the_names_of_the_design_and_no_others():
    assert set(NAMES) == {*VERBS, *OTHERS, *RESULTS}
    assert set(congruence.__all__) - set(NAMES) <= {"__version__", *MODULES}
    assert all(f"::: congruence.{name}\n" in REFERENCE for name in MODULES)
    assert dir(congruence) == sorted(congruence.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = congruence.nothing


def test_every_verb_has_a_command():
    from congruence.cli import COMMANDS

    assert set(VERBS.values()) <= set(COMMANDS)


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_docstrings(name):
    thing = getattr(congruence, name)
    assert inspect.getdoc(thing)
    for attribute, member in inspect.getmembers(thing, inspect.isfunction):
        if not attribute.startswith("_") and member.__module__.startswith("congruence"):
            assert inspect.getdoc(member), f"{name}.{attribute}"


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_in_the_reference(name):
    home = getattr(congruence, name).__module__
    assert f"::: {home}.{name}" in REFERENCE or f"::: {home}\n" in REFERENCE


def test_no_listed_name_is_a_module_even_after_all_modules_were_imported():
    code = """
import importlib, pkgutil, types, congruence
rooms = ["congruence", *(f"congruence.{m.name}" for m in pkgutil.iter_modules(congruence.__path__) if m.ispkg)]
for found in pkgutil.walk_packages(congruence.__path__, "congruence."):
    if not found.name.endswith(("__main__", "joined_norm")):
        try: importlib.import_module(found.name)
        except ImportError as error:
            if "congruence" in str(getattr(error, "name", "")): raise
for room in rooms:
    package = importlib.import_module(room)
    for name in getattr(package, "__all__", ()):
        scope = {}
        exec(f"from {room} import {name}", scope)
        if isinstance(scope[name], types.ModuleType) and room != "congruence": print(f"{room}.{name}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("room", make_public_api.ROOMS)
def test_every_room_lists_its_names_and_each_is_there(room):
    package = importlib.import_module(f"congruence.{room}")
    assert package.__all__
    for name in package.__all__:
        assert not isinstance(getattr(package, name), ModuleType), name
    assert dir(package) == sorted(package.__all__)


def test_rooms_are_never_named_like_a_verb():
    rooms = {module.name for module in pkgutil.iter_modules(congruence.__path__)}
    assert rooms & set(congruence.__all__) == MODULES


def test_modules_are_loaded_when_first_used():
    code = "import sys, congruence as cg; print('congruence.tl' in sys.modules, cg.tl.compare.__name__, cg.testing)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False compare <module")


def test_the_public_api_is_the_one_that_was_agreed_on():
    """A change is made visible by running tests/contracts/make_public_api.py and reading the difference."""
    assert make_public_api.describe() == make_public_api.SNAPSHOT.read_text(encoding="utf-8")


EXAMPLES = (
    *(f"align.{name}" for name in ("aligner", "_check", "_compare", "_consensus", "_layers")),
    *("features.dictionary", "features._match", "ica.stability", "maps._diameter", "maps.groups"),
    *("metrics._evaluate", "metrics._infomec", "progress", "tables.write", "translation._translate"),
)


@pytest.mark.parametrize("module", [f"congruence.{name}" for name in EXAMPLES])
def test_examples_in_docstrings_are_true(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("module", sorted(MODULES))
def test_completion_of_a_module_shows_its_names_only(module):
    found = importlib.import_module(f"congruence.{module}")
    assert dir(found) == sorted(found.__all__)
    assert all(hasattr(found, name) for name in found.__all__)
