"""What docstrings say of parameters is true: each has one entry, and a documented default is the real one."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ROOMS = ["activations", "align", "batches", "decoder", "ica", "maps", "mechanism", "metrics", "mixture", "tables"]
ROOMS += ["translation", "experiments.data", "experiments.models", "experiments.training", "experiments.recipes"]
IGNORED = {"self", "args", "kwargs"}


def public_names():
    for room in ("congruence", "congruence.tl", *(f"congruence.{room}" for room in ROOMS)):
        package = importlib.import_module(room)
        for name in getattr(package, "__all__", dir(package)):
            thing = getattr(package, name)
            if (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__.startswith("congruence"):
                yield f"{room}.{name}", thing


def entries(doc):
    """The names and the type of every entry of the section "Parameters"."""
    section = re.search(r"(?<=Parameters\n----------\n).*?(?=\n\n[A-Z][A-Za-z ]+\n---|\Z)", doc, re.DOTALL)
    for names, kind in re.findall(r"^([*\w][*\w, ]*?)(?: : (.*))?$", section[0] if section else "", re.MULTILINE):
        yield [name.strip().lstrip("*") for name in names.split(",")], kind


NAMES = {name: thing for name, thing in public_names() if any(entries(inspect.getdoc(thing) or ""))}


def parameters(thing):
    signature = inspect.signature(thing)
    return {name: p for name, p in signature.parameters.items() if name not in IGNORED}


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_one_entry_and_its_default_is_true(name):
    thing = NAMES[name]
    documented = list(entries(inspect.getdoc(thing) or ""))
    real = parameters(thing)
    listed = [one for names, _ in documented for one in names]
    assert sorted(listed) == sorted(real)
    for names, kind in documented:
        defaults = [real[one].default for one in names]
        assert len(names) == 1 or all(default is inspect.Parameter.empty for default in defaults), names
        stated = re.search(r"\bdefault[ :=]+(.+)$", kind)
        if stated:
            assert ast.literal_eval(stated[1]) == defaults[0], names
        if re.search(r"\boptional\b", kind):
            assert defaults[0] is None or defaults[0] == (), names


def test_a_wrong_default_is_noticed():
    def wrong(x, n=2):
        """Say something.

        Parameters
        ----------
        x : int
        n : int, default 3
        """

    NAMES["wrong"] = wrong
    try:
        with pytest.raises(AssertionError):
            test_every_parameter_has_one_entry_and_its_default_is_true("wrong")
    finally:
        del NAMES["wrong"]


def test_most_public_functions_list_their_parameters():
    """Results, whose fields have comments, and functions of one or two arguments need no list."""
    functions = [thing for _, thing in public_names() if inspect.isfunction(thing) and len(parameters(thing)) > 3]
    listed = [thing for thing in functions if any(entries(inspect.getdoc(thing) or ""))]
    assert len(listed) > 0.9 * len(functions) > 30


def test_the_reference_shows_the_parameters_of_verbs_as_a_section(monkeypatch):
    griffe = pytest.importorskip("griffe")
    monkeypatch.syspath_prepend(DOCS)
    extensions = griffe.load_extensions("griffe_options")
    module = griffe.load("congruence.align._compare", search_paths=[DOCS.parent / "src"], extensions=extensions)
    kinds = [section.kind.value for section in module["compare"].docstring.parsed]
    assert kinds[:2] == ["text", "parameters"]
