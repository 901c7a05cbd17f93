"""Damage valid files and folders, read them, and report every reading that did not end well; or try command lines.

`make fuzz` runs `python tests/fuzz/run.py --count 10000` and `python tests/fuzz/run.py --lines --count 5000`. A failure
is reported as NAME:SEED. `python tests/fuzz/run.py NAME:SEED --keep FOLDER` does it again, and leaves the damaged file
in an existing folder; `python tests/fuzz/run.py --lines line:SEED` runs a command line again.
"""

import argparse
import json
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from folders import READERS
from samples import SAMPLES

START_LIMIT, CASE_LIMIT = 120, 90  # seconds without a sign of life, on a machine busy with other things
BATCH = 2500  # cases for one process


def watch(script: str, cases: list[str], folder: Path) -> Iterator[dict[str, str]]:
    """Run one worker over the cases, and hand on what it says; the last word is how it ended, if not by itself."""
    command = [sys.executable, str(Path(__file__).with_name(script)), str(folder), *cases]
    lines: queue.Queue[str] = queue.Queue()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        noise: list[str] = []
        readers = [
            threading.Thread(target=lambda: [lines.put(line) for line in chain(worker.stdout, [""])]),
            threading.Thread(target=lambda: noise.extend(worker.stderr)),
        ]
        for reader in readers:
            reader.start()
        limit, end = START_LIMIT, ""
        try:
            while line := lines.get(timeout=limit):
                yield json.loads(line)
                limit = CASE_LIMIT
        except queue.Empty:
            end = f"no answer within {limit} s"
        finally:
            worker.kill() if end else None
            worker.wait()
            for reader in readers:
                reader.join()
    end = end or (f"the process ended with code {worker.returncode}" if worker.returncode else "")
    said = "".join(noise).strip()[-1000:]
    if end or said:
        yield {"wrong": "; ".join(filter(None, [end, f"printed {said!r}" if said else ""]))}


def run(script: str, cases: list[str], folder: Path) -> tuple[Counter[str], int]:
    """Try all the cases, print the failures; return how many ended how, and how many failed."""
    ends: Counter[str] = Counter()
    failures = 0
    while cases:
        batch, cases = cases[:BATCH], cases[BATCH:]
        current = {"case": batch[0], "mutation": "at the start"}
        for word in watch(script, batch, folder):
            current = word if "mutation" in word else current
            if "end" in word:
                ends[re.split("[:,(]", word["end"])[0].strip()] += 1
            if word.get("wrong"):
                failures += 1
                print(f"{current['case']} ({current['mutation']}): {word['wrong']}", flush=True)
                if current["mutation"] == "at the start":
                    raise SystemExit("the worker does not start")
                if "end" not in word:  # the worker did not survive: go on after the case it was at
                    cases = batch[batch.index(current["case"]) + 1 :] + cases
    return ends, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="NAME:SEED, or NAME for many seeds of one sample")
    parser.add_argument("--count", type=int, default=400, help="how many mutations in all, about")
    parser.add_argument("--lines", action="store_true", help="try command lines instead of damaged files")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--keep", type=Path, help="an existing folder for the damaged files")
    options = parser.parse_args()
    names = [case for case in options.cases if ":" not in case] or ([] if options.cases else [*SAMPLES, *READERS])
    script, what = ("lines.py", "command lines") if options.lines else ("worker.py", "damaged files")
    names = ["line"] if options.lines and not options.cases else names
    each = -(-options.count // len(names)) if names else 0
    cases = [f"{name}:{seed}" for seed in range(options.first, options.first + each) for name in names]
    cases += [case for case in options.cases if ":" in case]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ends, failures = run(script, cases, options.keep or Path(folder))
    counts = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    print(f"{len(cases)} {what} in {time.monotonic() - start:.0f} s: {counts}; {failures} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
