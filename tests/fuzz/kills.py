"""Kill commands that write files at random moments, run them again, and compare what they leave with undisturbed runs.

`python tests/fuzz/kills.py --count 200` is what `make kills` runs. In each trial a command is killed once or twice, by
kill -9, SIGTERM or SIGHUP, and then run to its end. Right after a kill, every file that is not part of a resumable
folder must be absent, old or new. In the end, all files must have the bytes of an undisturbed run, and nothing else may
be there. Commands run in forks of this process, which has imported what they need, so that kills come while they work.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from congruence.activations import _extract

LIMIT = 120  # seconds for one run
TIMES = {"seconds", "images_per_second", "line_seconds", "time"}  # entries that differ between any two runs
MODEL = """
import torch
def load():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
"""


@dataclass(frozen=True)
class Case:
    """A command, what must be there before it, and the folders that it continues rather than replaces."""

    command: str
    before: Callable[[], object] = lambda: None
    continued: tuple[str, ...] = ()


def old_store() -> None:
    """An older .zarr store, to be replaced."""
    from congruence.tables import Table, write_table

    write_table(Table(np.ones((7, 2)), "old"), "c.zarr")


CASES = {
    "compare": Case("compare a.parquet b.parquet --report r.html --json r.json --csv r.csv --nulls 2 --quiet"),
    "resolve": Case("resolve a.parquet --out c.parquet --model m.safetensors --json r.json --quiet"),
    "resolve-zarr": Case("resolve a.parquet --out c.zarr --quiet", old_store),
    "resolve-npz": Case("resolve a.parquet --out c.npz --quiet", lambda: Path("c.npz").write_bytes(b"old")),
    "fit": Case("translate fit a.parquet b.parquet --map up2.safetensors --json r.json --quiet"),
    "apply": Case("translate apply up.safetensors big.parquet --out t.parquet --quiet"),
    "apply-zarr": Case("translate apply up.safetensors big.parquet --out c.zarr --quiet", old_store),
    "apply-parts": Case("translate apply up.safetensors parts --out t --quiet", continued=("t",)),
    "export": Case("translate export up.safetensors --to numpy --out up.py --quiet"),
    "extract": Case(
        "extract model.py:load --layer 0 --layer 2 --array x.npy --batch 20 --device cpu --out e.{layer}.parquet -q",
        continued=(".e.0.parquet.parts",),
    ),
    "extract-zarr": Case(
        "extract model.py:load --layer 2 --array x.npy --device cpu --out c.zarr --quiet",
        old_store,
        (".c.zarr.parts",),
    ),
    "evaluate": Case("evaluate a.parquet factors.csv --metrics mcc,dci --json r.json --report r.html --quiet"),
    "check": Case("check a.parquet --save base.safetensors --quiet"),
    "data": Case("data make sprites --n 50 --out s.npz --factors s.csv"),
    "train": Case(
        "train vade --data pinwheel --n 300 --steps 30 --batch 50 --deterministic --device cpu --out runs --quiet",
        continued=("runs",),
    ),
    "reproduce": Case(
        "reproduce statistical-versus-structural --scale smoke --device cpu --out r --quiet", continued=("r",)
    ),
    "demo": Case("demo --out d --seeds 2 --epochs 2 --quiet", continued=("d",)),
}


def make_inputs(folder: Path) -> None:
    """Write the inputs of all cases."""
    import congruence
    from congruence.tables import Table, write_table

    os.chdir(folder)
    rng = np.random.default_rng(0)
    x = rng.laplace(size=(400, 4))
    turned = x @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    ids = np.arange(400)
    write_table(Table(x, "a", ids), "a.parquet")
    write_table(Table(turned, "b", ids), "b.parquet")
    write_table(Table(np.tile(x, (50, 1)), "big"), "big.parquet")
    Path("parts").mkdir()
    for number in range(6):
        write_table(Table(x + number, "part"), f"parts/{number}.parquet")
    write_table(Table(turned, "factors", ids), "factors.csv")
    np.save("x.npy", x.astype(np.float32))
    Path("model.py").write_text(MODEL)
    congruence.translate("a.parquet", "b.parquet").save("up.safetensors")


def start(command: str, log: Path) -> int:
    """Run the command in a fork of this process and return its id."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1), os.dup2(out, 2)
    sys.argv = ["congruence", *command.split()]
    from congruence.__main__ import run

    code = 3
    try:
        run()
    except SystemExit as ending:
        code = ending.code or 0
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def finish(child: int, seconds: float) -> int | None:
    """Wait for a process; return its exit code, or None if it still runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def complete(command: str, log: Path) -> float:
    """Run a command to its end and return the seconds it took; it must succeed."""
    begun = time.monotonic()
    child = start(command, log)
    code = finish(child, LIMIT)
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if code != 0:
        raise RuntimeError(f"exit code {code}: {log.read_text()[-500:]}")
    return time.monotonic() - begun


def contents(folder: Path, inputs: set[str]) -> dict[str, bytes]:
    """The files below a folder that are not inputs, by name, without what differs between any two runs."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: _timeless(path) for name, path in sorted(files.items()) if name not in inputs}


def _timeless(path: Path) -> bytes:
    data = path.read_bytes()
    if path.name == "metrics.jsonl":
        lines = [json.loads(line) for line in data.splitlines()]
        return json.dumps([{key: value for key, value in line.items() if key not in TIMES} for line in lines]).encode()
    if path.name == "checkpoint.safetensors":
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        about = json.loads(header["__metadata__"]["congruence"])
        counts = {key: value for key, value in about["counts"].items() if key not in TIMES}
        header["__metadata__"] = {"about": about["about"], "counts": counts}
        return json.dumps(header).encode() + data[8 + size :]
    return data


def prepare(folder: Path, case: Case, keep: set[str]) -> dict[str, bytes]:
    """Remove outputs, make what the case needs, and return it."""
    for path in folder.iterdir():
        if path.relative_to(folder).as_posix() not in {name.partition("/")[0] for name in keep}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.chdir(folder)
    case.before()
    return contents(folder, keep)


def outputs(files: dict[str, bytes], case: Case) -> dict[str, dict[str, bytes]]:
    """Files outside of continued folders, together where they are one store, without temporary files and locks."""
    found: dict[str, dict[str, bytes]] = {}
    for name, data in files.items():
        top = name.partition("/")[0]
        if top not in case.continued and ".congruence." not in top:
            found.setdefault(top, {})[name] = data
    return found


class Trials:
    """One case: its undisturbed run, and trials with kills."""

    def __init__(self, name: str, folder: Path, inputs: set[str]) -> None:
        self.name, self.case, self.folder, self.inputs = name, CASES[name], folder, inputs
        self.log = folder.parent / "log"
        prepare(folder, self.case, inputs)
        complete(self.case.command, self.log)
        self.expected = contents(folder, inputs)
        prepare(folder, self.case, inputs)
        self.seconds = complete(self.case.command, self.log)  # the first one may import
        again = contents(folder, inputs)
        if different := [file for file in {**again, **self.expected} if again.get(file) != self.expected.get(file)]:
            raise RuntimeError(f"{name}: two undisturbed runs differ in {', '.join(different)}")

    def run(self, rng: np.random.Generator, ends: Counter[str]) -> str:
        """Kill the command once or twice and run it again; return what is wrong, or nothing."""
        old = outputs(prepare(self.folder, self.case, self.inputs), self.case)
        new = outputs(self.expected, self.case)
        for _ in range(rng.integers(1, 3)):
            sent = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)[int(rng.choice(3, p=(0.7, 0.15, 0.15)))]
            child = start(self.case.command, self.log)
            code = finish(child, rng.uniform(0, 1.05) * self.seconds)
            if code is None:
                os.kill(child, sent)
                code = finish(child, LIMIT)
                ends[sent.name] += code != 0
            if code not in (0, -sent, *([128 + sent] if sent != signal.SIGKILL else [])):
                return f"exit code {code} after {sent.name}: {self.log.read_text()[-500:]}"
            left = contents(self.folder, self.inputs)
            for top, files in outputs(left, self.case).items():
                if files not in (old.get(top), new.get(top)):
                    return f"{top} is neither old nor new after {sent.name}"
        try:
            complete(self.case.command, self.log)
        except RuntimeError as error:
            return f"the same command again: {error}"
        got = contents(self.folder, self.inputs)
        if different := [file for file in {**got, **self.expected} if got.get(file) != self.expected.get(file)]:
            return f"differs from an undisturbed run: {', '.join(different)}"
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--count", type=int, default=200, help="how many kills, at least")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names, rng, ends, failures = options.cases or list(CASES), np.random.default_rng(options.seed), Counter(), 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "work")
        folder.mkdir()
        made = os.fork()
        if not made:
            make_inputs(folder)
            os._exit(0)
        os.waitpid(made, 0)
        inputs = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        import_all(names, folder, Path(parent))
        each = -(-options.count // len(names))
        for name in names:
            trials, counts, wrong = Trials(name, folder, inputs), Counter(), []
            while counts.total() < each:
                if problem := trials.run(rng, counts):
                    wrong.append(problem)
                    print(f"{name}: {problem}", flush=True)
                    counts["failed"] += 1
            counts.pop("failed", None)
            ends, failures = ends + counts, failures + len(wrong)
            told = ", ".join(f"{count} {end}" for end, count in sorted(counts.items()))
            print(f"{name}: {told}; {len(wrong)} failures; a run takes {trials.seconds:.2f} s", flush=True)
        os.chdir("/")
    told = " and ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    print(f"{ends.total()} kills ({told}) in {time.monotonic() - begun:.0f} s: {failures} failures")
    sys.exit(bool(failures))


def import_all(names: list[str], folder: Path, parent: Path) -> None:
    """Import every module that the commands import, which forks report; forks start without it."""
    os.chdir(folder)
    for name in names:
        listing = parent / "modules"
        child = os.fork()
        if not child:
            CASES[name].before()
            sys.argv = ["congruence", *CASES[name].command.split()]
            os.dup2(os.open(parent / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1), os.dup2(1, 2)
            try:
                import_module("congruence.__main__").run()
            except SystemExit:
                listing.write_text("\n".join(sys.modules))
            os._exit(0)
        os.waitpid(child, 0)
        for module in listing.read_text().splitlines() if listing.exists() else ():
            with contextlib.suppress(Exception):  # some names in the list are no modules that can be imported
                import_module(module)
    _extract.PART_BYTES = 4000  # several parts in a short run


if __name__ == "__main__":
    main()
