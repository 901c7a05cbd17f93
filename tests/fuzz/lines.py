"""Random command lines: every flag of every command, with values that fit and values that do not.

The commands, their arguments and flags come from the command line itself, candidates for words from their help texts.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from congruence.align import save_baseline
from congruence.cli import main
from congruence.cli._app import build
from congruence.tables import Table, write_table

SECONDS = 60  # for one command line, on a machine busy with other things
WHOLE = ["1", "2", "3", "5", "20"]
REAL = ["0.1", "0.5", "0.9", "1", "2"]
WRONG = [
    "0",
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1e-320",
    "99999999999999999999",
    "",
    "x",
    " ",
    "3.5",
    "é",
    "\x1b[2J",
]
WRONG += [
    "--",
    "-",
    "-q",
    "a,b",
    ",",
    "1,2",
    "{layer}",
    "~",
    "*",
    "[",
    "%",
    "\u202e",
    "y" * 300,
    "0x10",
    "None",
    "true",
]
ODD = [
    "missing.npy",
    "folder",
    "empty.npy",
    "text.txt",
    "nowhere/a.npy",
    "/dev/null",
    "/dev/stdin",
    ".",
    "..",
    "a:b.npy",
]
ODD += [
    "http://[",
    "file.py:missing",
    "missing:function",
    "model.py:fail",
    "*.nothing",
    "pipe.npy",
    "link.npy",
    "-x.npy",
]
TABLES = [
    "a.npy",
    "b.npy",
    "a.parquet",
    "b.parquet",
    "a.csv",
    "t.h5ad",
    "s.npz",
    "parts",
    "nan.npy",
    "one.npy",
    "zero.npy",
]
FILES = [
    *TABLES,
    "ica.safetensors",
    "up.safetensors",
    "base.safetensors",
    "model.py:load",
    "text.txt",
    "run",
    "qrels.tsv",
]
OUTPUTS = [
    "o.html",
    "o.json",
    "o.csv",
    "o.md",
    "o.tex",
    "o.xml",
    "o.parquet",
    "o.zarr",
    "o.npz",
    "o.safetensors",
    "o.npy",
]
OUTPUTS += ["o.py", "o.onnx", "o", "o.png", "o.svg", "o.{layer}.parquet"]
VALUES = {  # values that fit, by the name of a parameter or by its command and name
    "id": ["id"], "features": ["emb_*"], "metadata": ["plate", "plate,gene"], "cluster": ["plate"], "batch": ["plate"],
    "target": ["gene"], "control": ["a", "gene=a"], "guide": ["plate"], "image": ["plate"], "labels": ["gene"],
    "key": ["values", "X"], "delimiter": [",", ";", "tab"], "factor_columns": ["plate"], "kinds": ["continuous"],
    "code": ["model.py:load"], "decoder": ["model.py:load"], "decoder name": ["model.py:load", "run"],
    "mechanism name": ["model.py:load"], "mechanism model": ["model.py:load"], "other": ["model.py:load"],
    "extract model": ["model.py:load"], "layer": ["0", "1", "2"], "array": ["a.npy", "a.parquet", "x.npy"],
    "text": ["text.txt"], "translate apply map": ["up.safetensors"], "translate export map": ["up.safetensors"],
    "apply": ["ica.safetensors"], "baseline": ["base.safetensors", "a.npy"], "index": ["a.npy", "parts"],
    "dictionaries": ["a.npy", "b.npy", "ica.safetensors"], "activations": ["a.npy"], "components": ["2", "0.9", "all"],
    "groups": ["rigid", "all", "identity,linear"], "similarities": ["cka", "all"], "evaluate factors": ["a.csv"],
    "train data": ["pinwheel", "moons", "a.npy", "a.parquet", "rooms"], "prior": ["p.npz"], "seeds": ["0", "0,1"],
    "train model": ["ae", "vae", "vade", "mixvae", "qlae", "model.py:load"], "data show name": ["rooms", "sprites"],
    "data make name": ["rooms", "sprites", "pinwheel", "moons"], "layers runs": ["layers/x*.npy", "layers/y*.npy"],
    "hidden": ["4,4"], "blocks": ["0,1,2", "0-1,2"], "fail_on": ["fails", "holds,unknown"], "fail_above": ["rigid=0.5"],
    "metrics": ["mcc", "fast"], "curve": ["2,3"], "orders": ["1", "1,2"], "names": ["x,y"], "revision": ["0" * 40],
    "runs": ["run", "runs/*"], "conditions": ["base", "base,ica"], "positive": ["b"], "concentration": ["none", "0.5"],
    "mean": ["0.5"], "std": ["0.5"], "qrels": ["qrels.tsv"], "folders": ["folder", "run"], "diameter": ["auto", "3"],
    "reproduce name": ["list", "verify", "judge", "book", "nothing"], "rows": ["all", "auto", "40"], "device": ["cpu"],
    "types": ["S", "H2"], "model_name": ["m"], "similarity": ["0.7"],
}  # fmt: skip
CHEAP = {  # so that a call with valid options takes a second
    "train": ["--steps", "2", "--n", "40", "--batch", "10", "--net", "small", "--device", "cpu", "--jobs", "1"],
    "demo": ["--epochs", "1", "--seeds", "2"],
    "data make": ["--n", "10", "--device", "cpu"],
    "data show": ["--rows", "1", "--columns", "2"],
    "evaluate": ["--metrics", "mcc"],
    "deconfound": ["--rounds", "5"],
}
NEVER = {"--dask", "--version", "--help", "--install-completion", "--show-completion"}  # a cluster, the user's shell
WRITTEN = {"out": "", "report": ".html", "json": ".json", "csv": ".csv", "markdown": ".md", "latex": ".tex"}
WRITTEN |= {"junit": ".xml", "save": ".safetensors", "map": ".safetensors", "model": ".safetensors", "canary": "o"}
WRITTEN |= {"rows_out": ".parquet", "parts": "o", "write_back": "o"}
MODEL = """
import torch
def load():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
def fail():
    raise ValueError("two\\nlines")
"""


def find_commands(command: Any = None, path: str = "") -> dict[str, Any]:
    """Every command by its words."""
    command = build() if command is None else command
    if not hasattr(command, "commands"):
        return {path: command}
    return {
        words: one
        for name, inner in command.commands.items()
        for words, one in find_commands(inner, f"{path} {name}".strip()).items()
    }


def make_world(folder: Path) -> None:
    """Write small inputs of all kinds into a folder."""
    import congruence

    rng = np.random.default_rng(0)
    x = rng.laplace(size=(60, 3))
    y = x @ np.linalg.qr(rng.normal(size=(3, 3)))[0] + 0.1 * rng.normal(size=(60, 3))
    ids, plates = [f"row{i}" for i in range(60)], {"plate": np.arange(60) % 4, "gene": np.array(list("abc") * 20)}
    np.save(folder / "a.npy", x)
    np.save(folder / "b.npy", y)
    np.save(folder / "nan.npy", np.where(np.arange(180).reshape(60, 3) == 7, np.nan, x))
    np.save(folder / "one.npy", x[:1])
    np.save(folder / "zero.npy", np.zeros((60, 3)))
    (folder / "empty.npy").write_bytes(b"")
    names = ("emb_0", "emb_1", "emb_2")
    for name, values in (("a", x), ("b", y)):
        table = Table(values, name, ids, plates, features=names)
        write_table(table, folder / f"{name}.parquet")
    for name in ("a.csv", "t.h5ad", "s.npz"):
        write_table(Table(x, "a", ids, plates, features=names), folder / name)
    (folder / "parts").mkdir()
    (folder / "folder").mkdir()
    for number in range(2):
        write_table(Table(x[number * 30 :][:30], "a", ids[number * 30 :][:30]), folder / f"parts/{number}.parquet")
    (folder / "text.txt").write_text("one\ntwo\n")
    (folder / "qrels.tsv").write_text("row1\t0\trow2\t1\n")
    (folder / "model.py").write_text(MODEL)
    (folder / "link.npy").symlink_to("a.npy")
    os.mkfifo(folder / "pipe.npy")
    (folder / "layers").mkdir()
    for name in ("x1", "x2", "y1", "y2"):
        np.save(folder / f"layers/{name}.npy", x if name[0] == "x" else y)
    np.savez(folder / "p.npz", weights=np.ones(2) / 2, means=np.eye(2), covariances=np.stack([np.eye(2)] * 2))
    congruence.ICA(random_state=0).fit(x).save(folder / "ica.safetensors")
    congruence.translate(folder / "a.npy", folder / "b.npy").save(folder / "up.safetensors")
    save_baseline(folder / "a.npy", folder / "base.safetensors")


def _value(name: str, parameter: Any, wrong: float, rng: Generator) -> str:
    """A value for a parameter of a command, with this chance one that does not fit."""
    kind, own = str(parameter.type_descriptor.annotation), parameter.name
    if rng.random() < wrong:
        return str(rng.choice(WRONG if rng.random() < 0.7 else ODD))
    fitting = VALUES.get(f"{name} {own}") or VALUES.get(own)
    if fitting and rng.random() < 0.9:
        return str(rng.choice(fitting))
    if "int" in kind:
        return str(rng.choice(WHOLE))
    if "float" in kind:
        return str(rng.choice(REAL))
    if own in WRITTEN:
        return str(rng.choice([one for one in OUTPUTS if WRITTEN[own] in one] or OUTPUTS))
    if "Path" in kind or not parameter.opts[0].startswith("-"):
        return str(rng.choice(TABLES if rng.random() < 0.9 else FILES))
    words = re.findall(r"(?<![\w.])[a-z][a-z0-9_-]+", parameter.help or "")  # choices are named there
    return str(rng.choice(words or WHOLE))


def make_line(commands: dict[str, Any], rng: Generator) -> list[str]:
    """A random command line; half of them have no value that was chosen to be wrong."""
    name = str(rng.choice(list(commands)))
    wrong = float(rng.choice([0, 0, 0, 0.05, 0.05, 0.3]))
    arguments = [one for one in commands[name].params if not one.opts[0].startswith("-")]
    flags = [one for one in commands[name].params if one not in arguments and not NEVER & {*one.opts}]
    line: list[str] = []
    for one in arguments:
        count = int(rng.integers(1, 4)) if one.nargs < 0 else one.nargs
        if rng.random() >= wrong / 3:
            line += [_value(name, one, wrong, rng) for _ in range(count)]
    chosen = [flag for flag in flags if flag.required and rng.random() >= wrong / 3]
    chosen += [flags[i] for i in rng.integers(0, len(flags), size=rng.integers(0, 5))] if flags else []
    for flag in chosen:
        option = str(rng.choice([*flag.opts, *flag.secondary_opts]))
        if rng.random() < wrong / 5:
            option = option[:-1] + "z"  # a misspelt one
        values = [] if flag.is_flag else [_value(name, flag, wrong, rng) for _ in range(max(1, flag.nargs))]
        line += [option, *values] if rng.random() >= wrong / 5 else [option]
    return [*name.split(), *line, *CHEAP.get(name, []), *(["--version"] if rng.random() < 0.01 else [])]


def invoke(line: list[str], seconds: int) -> tuple[str, str]:
    """Run a command line in this process; return how it ended, and what was wrong with that."""

    def late(number: int, frame: Any) -> None:
        raise TimeoutError(f"it takes more than {seconds} s")

    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["congruence", *line]
    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code: Any = 0
    except SystemExit as ending:
        code = ending.code or 0
    except BaseException as error:
        return "raised", f"{type(error).__name__}: {error}"[:500]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
        sys.argv = before
    said = err.getvalue()
    if code not in (0, 1, 2) or "Traceback" in said or "Aborted" in said:
        return f"exit {code}", f"exit code {code}: {said[-500:]}"
    if code == 1 and not any(word.startswith(("--fail", "verify")) or word == "check" for word in line):
        return "exit 1", f"exit code 1 without a gate: {said[-500:]}"
    own = [text for text in said.splitlines() if text.startswith("congruence: ")]
    if code == 2 and not own and "Error" not in said and "Usage" not in said:
        return "exit 2", f"refused without a sentence: {said[-300:]!r}"
    if not said.replace("\n", "").isprintable() and "\x1b[2J" in said + out.getvalue():
        return f"exit {code}", f"control characters reach the terminal: {said[-300:]!r}"
    left = [path.name for path in Path().rglob("*") if ".congruence." in path.name]
    return f"exit {code}", f"left {left}" if left else ""


def restore(folder: Path, pristine: Path) -> None:
    """Remove what a command wrote, and put back inputs that it replaced, as it was told to."""
    known = {path.relative_to(pristine) for path in pristine.rglob("*")}
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder)
        if name not in known:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    for name in sorted(known):
        source, target = pristine / name, folder / name
        if source.is_dir():
            target.mkdir(exist_ok=True)
        elif source.is_file() and not source.is_symlink():
            same = target.is_file() and target.stat().st_mtime_ns == source.stat().st_mtime_ns
            same or shutil.copy2(source, target)


def run_cases() -> None:
    """Try the cases given as arguments, after a folder, and say of each in a line of JSON what came of it."""
    folder, *cases = sys.argv[1:]
    pristine, work = Path(folder, "pristine"), Path(folder, "work")
    shutil.rmtree(work, ignore_errors=True)
    if not pristine.exists():
        pristine.mkdir()
        with warnings.catch_warnings(action="ignore"):
            make_world(pristine)
    work.mkdir()
    for pipe in ("pipe.npy", "link.npy"):  # which cannot be copied
        os.link(pristine / pipe, work / pipe, follow_symlinks=False)
    os.chdir(work)
    commands = find_commands()
    said = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for case in cases:
        restore(work, pristine)
        line = make_line(commands, np.random.default_rng(int(case.partition(":")[2])))
        print(json.dumps({"case": case, "mutation": shlex.join(line)}), file=said, flush=True)
        end, wrong = invoke(line, SECONDS)
        print(json.dumps({"case": case, "end": f"{end},", "wrong": wrong}), file=said, flush=True)
    os._exit(0)


if __name__ == "__main__":
    run_cases()
