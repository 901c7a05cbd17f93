"""Every code block of the README and the documentation runs, or is parsed by what it is written for.

A comment on the line before a block says which:

    <!-- run -->                          it runs in a folder with the files that it names (`conftest.py`)
    <!-- run after the block above -->    after the block that runs before it on the page
    <!-- run, 512 as 8 -->                at a smaller size
    <!-- run on a cluster -->             with a cluster in this process
    <!-- run with faiss -->               where the library is installed (`test_vector_stores.py`)
    <!-- parse: needs a GPU -->           commands, options, names and arguments are checked (below)
    <!-- printed: name -->                compared with what the program prints (`test_printed_examples.py`)

Tables of results (`docs/results/*/table.md`) are written by the program; their commands are parsed.
"""

import argparse
import ast
import contextlib
import glob
import importlib
import importlib.util
import inspect
import json
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
import typer
import yaml

from congruence.cli import build, main
from congruence.experiments.commands.reproduce import FOLDER_VERBS
from congruence.experiments.recipes._reproduce import _parameters
from congruence.experiments.recipes.recipe import find_recipe

for _library in ("pandas", "anndata"):  # the folder of the examples has a file of AnnData
    pytest.importorskip(_library, reason=f"{_library} is not installed")

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "table.md"]
RUN = re.compile(r"run(?P<after> after the block above)?(?P<cluster> on a cluster)?(?:, (?P<old>\S+) as (?P<new>.+))?")
ELSEWHERE = re.compile(r"run with (faiss|lancedb)|printed: (?P<test>\w+)")  # other files of tests
PARSED = re.compile(r"parse: .+")
OTHERS = ("", "#!/bin/bash", "apt-get", "docker", "export", "helm", "python", "source", "tar")  # programs, and none


@dataclass(frozen=True)
class Block:
    """A fenced block: its page and number, the comment before it, its language and its text."""

    name: str
    mark: str
    kind: str
    text: str

    @property
    def lines(self):
        return self.text.splitlines()


def blocks(page):
    found = enumerate(FENCE.findall(page.read_text(encoding="utf-8")))
    return [Block(f"{page.name}-{number}", *parts) for number, parts in found]


def chains(page):
    """Each block that runs, with those before it that it needs."""
    last = []
    for block in page:
        if one := RUN.fullmatch(block.mark):
            last = [*(last if one["after"] else ()), block]
            yield last


BLOCKS = [block for page in PAGES for block in blocks(page)]
EXAMPLES = [pytest.param(chain, id=chain[-1].name) for page in PAGES for chain in chains(blocks(page))]
TABLES = [block for page in sorted((ROOT / "docs" / "results").glob("*/table.md")) for block in blocks(page)]
UNRUN = [pytest.param(block, id=block.name) for block in BLOCKS if PARSED.fullmatch(block.mark)]
UNRUN += [pytest.param(one, id=f"table.md-{number}") for number, one in enumerate(TABLES)]


def test_every_block_says_how_it_is_tested():
    known = (RUN, ELSEWHERE, PARSED)
    printed = Path(__file__).with_name("test_printed_examples.py").read_text(encoding="utf-8")
    tests = [mark["test"] for one in BLOCKS if (mark := ELSEWHERE.fullmatch(one.mark)) and mark["test"]]
    assert sorted(tests) == sorted(re.findall(r"^def test_(\w+)", printed, re.MULTILINE))
    assert [one.name for one in BLOCKS if not any(mark.fullmatch(one.mark) for mark in known)] == []
    fences = sum(page.read_text(encoding="utf-8").count("```") for page in PAGES)
    assert fences == 2 * len(BLOCKS)  # none is indented, or of another form


@pytest.fixture
def cluster(local_cluster):
    """A context with the address of a cluster of dask in this process."""

    @contextlib.contextmanager
    def start():
        import distributed

        with local_cluster(n_workers=1, threads_per_worker=1, processes=False) as local:
            yield local.scheduler_address
            with contextlib.suppress(ValueError):  # a client that an example leaves would be used by later ones
                distributed.default_client().close()

    return start


@pytest.mark.parametrize("chain", EXAMPLES)
def test_examples_run(chain, supply, cluster, monkeypatch):
    names = supply("".join(block.text for block in chain))
    for block in chain:
        mark, text = RUN.fullmatch(block.mark), block.text
        with cluster() if mark["cluster"] else contextlib.nullcontext() as address:
            if mark["cluster"]:
                text = text.replace("tcp://scheduler:8786", address).replace("/shared/", "")
            if mark["old"]:
                assert mark["old"] in text
                text = text.replace(mark["old"], mark["new"])
            run(block.kind, text, names, monkeypatch)


def run(kind, text, names, monkeypatch):
    if kind == "python":
        exec(compile(text, "example", "exec"), names)
        return
    assert kind == "console"
    for line in text.splitlines():
        prompt, *words = shlex.split(line, comments=True)
        assert (prompt, words[0]) == ("$", "congruence")
        if "'" not in line:  # a shell expands patterns, except in quotes
            words = [path for word in words for path in sorted(glob.glob(word)) or [word]]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code, line


@pytest.mark.parametrize("block", UNRUN)
def test_examples_that_do_not_run_are_parsed(block, monkeypatch):
    if block.kind == "python":
        check_python(block.text)
    elif block.kind == "yaml":
        check_action(block.text)
    else:
        if block.kind == "bash":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
        prompt = "$ " if block.kind == "console" else ""
        lines = [line.removeprefix(prompt) for line in block.lines if line.startswith(prompt)]
        assert len(lines) == len(block.lines)
        for line in lines:
            check_command(shlex.split(line, comments=True), monkeypatch)


def check_command(words, monkeypatch):
    """Parse a command with the parser of the program itself; of other programs only the name is known."""
    if words[:1] == ["timeout"] or words[:2] == ["docker", "run"]:
        words = words[words.index("congruence") :]  # after options of the other program
    program, *words = [word for word in words if word != "&"] or [""]
    if program == "congruence":
        parse(build(), words)
        if words[0] == "reproduce":
            check_recipe(words)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[0] in targets
    elif program == "pip":
        assert words[0] == "install"
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        name, listed = re.fullmatch(r"(\.|congruence)(?:\[(.+)\])?", words[1]).groups()
        assert set((listed or "all").split(",")) <= set(extras), name
    elif program == "python" and words[0] != "-c":
        parse_script(words, monkeypatch)
    elif "dask" in (program, *words):
        _, kind, *rest = words[words.index("dask") :] if "dask" in words else [program, *words]
        command = importlib.import_module(f"distributed.cli.dask_{kind}").main
        command.make_context(kind, rest)
    else:
        assert program in OTHERS or "=" in program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_sentences_are_parsed(page, monkeypatch):
    text = " ".join(FENCE.sub("", page.read_text(encoding="utf-8")).split())
    for line in re.findall(r"`(congruence (?!COMMAND)[^`]+)`", text):
        words = shlex.split(line)
        if not re.fullmatch(r"congruence [a-z]+( make)?", line):  # a name only
            with contextlib.suppress(typer.Exit):  # after --list and --help
                check_command(words, monkeypatch)
        assert words[1] in build().commands


def parse(command, words):
    """Parse arguments and options of a command, or of one in a group, without calling it."""
    while inner := getattr(command, "commands", None):
        name, *words = words
        command = inner[name]
    return command.make_context(command.name, list(words)).params


def check_recipe(words):
    """The recipe exists, at this scale and with these data."""
    given = parse(build("reproduce"), words)
    if given["name"] in ("list", "NAME", *FOLDER_VERBS):
        return
    _parameters(find_recipe(given["name"]).method(), given["name"], given["scale"], given["data"])
    assert re.fullmatch(r"auto|cpu|cuda(:\d)?", given["device"])


def parse_script(words, monkeypatch):
    """Let a script parse its arguments, and stop it there."""

    class ParsedError(Exception):
        pass

    real = argparse.ArgumentParser.parse_args

    def parse_and_stop(*arguments):
        real(*arguments)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(ParsedError):
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")


def check_python(text):
    """Every imported name exists, and arguments of what is called fit, where the library is installed."""
    tree, names = ast.parse(text), {}
    for node in ast.walk(tree):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else []
        modules += [one.name for one in node.names] if isinstance(node, ast.Import) else []
        for name in modules:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                assert name.partition(".")[0] in ("dask_jobqueue", "dask_kubernetes", "psycopg", "qdrant_client")
                continue
            module = importlib.import_module(name)
            if isinstance(node, ast.ImportFrom):
                names |= {one.asname or one.name: getattr(module, one.name) for one in node.names}
            else:
                names |= {one.asname: module for one in node.names if one.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (called := resolve(node.func, names)) is not None:
            given = {one.arg: None for one in node.keywords}
            inspect.signature(called).bind(*[None] * len(node.args), **given)


def resolve(node, names):
    """The function that a name, or attributes of a module or class, stand for; None for those of other objects."""
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, names)
        return None if owner is None else getattr(owner, node.attr)
    return names.get(node.id) if isinstance(node, ast.Name) else None


def check_action(text):
    """The inputs of the step, also those in comments, are inputs of the action."""
    (step,) = yaml.safe_load(re.sub(r"# (?=[a-z-]+:)", "", text))
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    assert set(step["with"]) <= set(inputs)
    assert {name for name, one in inputs.items() if one.get("required")} <= set(step["with"])
    if "arguments" in step["with"]:
        parse(build("check"), ["check", "new.npy", *step["with"]["arguments"].split()])


def test_a_block_that_is_wrong_is_noticed(monkeypatch):
    for line in ("congruence compare a b --no-such", "congruence compares a", "congruence reproduce nothing"):
        with pytest.raises(Exception, match="(?i)no such|compares|nothing"):
            check_command(line.split(), monkeypatch)
    for text in ("from congruence import no_such_verb", "import congruence as c\nc.compare([], nope=1)"):
        with pytest.raises((AttributeError, TypeError)):
            check_python(text)
    for line in ("make nothing", "congruenc compare a b", "pip install 'congruence[nothing]'"):
        with pytest.raises(AssertionError):
            check_command(shlex.split(line), monkeypatch)


FAST = ["--nulls", "2"]
COMMANDS = {
    "Comparison": ["compare", "old.npy", "new.npy", *FAST, "--similarities", "all"],
    "LayerComparison": ["layers", "run_?.npy", "old.npy", *FAST],
    "FeatureMatch": ["features", "sae0.safetensors", "sae1.safetensors"],
    "Translation": ["translate", "fit", "old.parquet", "new.parquet", "--id", "doc_id", *FAST],
    "Resolution": ["resolve", "embeddings.parquet", "--id", "doc_id", "--stability", "3"],
    "Evaluation": ["evaluate", "codes.npy", "factors.csv", "--metrics", "fast", "--resamples", "2", *FAST],
    "Deconfounding": ["deconfound", "wells.parquet", "--control", "gene=none", "--batch", "plate", "--target", "gene"],
    "DecoderExamination": ["decoder", "mymodel:load_decoder", "latents.npy"],
    "MechanismExamination": ["mechanism", "mymodel:load_decoder", "latents.npy", "--blocks", "0-1,2,3"],
}


@pytest.mark.parametrize("kind", list(COMMANDS))
def test_the_json_of_a_command_is_valid_for_its_schema(kind, world, monkeypatch):
    more = ["--metadata", "guide"] if kind == "Deconfounding" else []
    monkeypatch.setattr(sys, "argv", ["congruence", *COMMANDS[kind], *more, "--json", "result.json", "--quiet"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    written = json.loads(Path("result.json").read_text(encoding="utf-8"))
    jsonschema.validate(written, json.loads((ROOT / "docs" / "schema" / f"{kind}.json").read_text(encoding="utf-8")))
    assert next(iter(written)) == "status"
    assert written["settings"]["command"].startswith(f"congruence {COMMANDS[kind][0]} ")
    assert all(len(file["sha256"]) == 64 for file in written["settings"]["inputs"])
    assert {"torch", "lightgbm"} <= set(written["versions"])


def test_every_command_has_an_example():
    lines = [
        line.split()[2:] for one in BLOCKS if one.mark.startswith("run") and one.kind == "console" for line in one.lines
    ]
    groups = {name: getattr(command, "commands", None) for name, command in build().commands.items()}
    shown = {" ".join(words[: 2 if groups.get(words[0]) else 1]) for words in lines if words}
    assert {f"{name} {one}" if inner else name for name, inner in groups.items() for one in inner or [""]} <= shown
