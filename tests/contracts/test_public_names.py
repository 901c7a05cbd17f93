"""Every public name exists, is documented and has a place in the reference pages."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import congruence

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"
NAMES = [name for name in congruence.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", NAMES)
def test_public_names_have_docstrings(name):
    thing = getattr(congruence, name)
    assert inspect.getdoc(thing)
    for attribute, member in inspect.getmembers(thing, inspect.isfunction):
        if not attribute.startswith("_") and member.__module__.startswith("congruence"):
            assert inspect.getdoc(member), f"{name}.{attribute}"


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_in_the_reference(name):
    home = congruence._HOMES[name]
    assert f"::: {home}.{name}" in REFERENCE.read_text() or f"::: {home}\n" in REFERENCE.read_text()


def test_all_lists_what_can_be_had():
    assert set(NAMES) == set(congruence._HOMES)
    assert set(congruence.__all__) <= set(dir(congruence))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = congruence.nothing


def test_rooms_are_packages_and_never_functions_of_the_same_name():
    for folder in Path(congruence.__file__).parent.iterdir():
        if folder.is_dir() and (folder / "__init__.py").exists():
            assert folder.name not in congruence.__all__


@pytest.mark.parametrize("module", ["congruence.align.aligner", "congruence.ica._resolve", "congruence.ica.stability"])
def test_examples_in_docstrings_are_true(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
