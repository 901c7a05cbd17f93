"""Error rates of the verdicts of `compare`, `compare_layers` and `evaluate` on simulated truths.

Every cell draws many samples of one truth (`calibration_truths.py`), calls the verb with its default settings (all
groups without ICA) and counts its statements (`calibration_readings.py`); only the public API is used. Rates have
Clopper-Pearson 95 % intervals, means t intervals. A limit is met if the rate itself is within it. A quantity that the
installed version does not report has 0 simulations.

    python benchmarks/calibration.py                    # benchmarks/results/calibration.csv and docs/trust.md, hours
    python benchmarks/calibration.py --only noise       # one section; the others keep their rows
    python benchmarks/calibration.py --only layers --cell "12 x 12"    # the cells with this text in their name
    python benchmarks/calibration.py --merge part.csv   # replace the rows of the cells that were simulated apart
    python benchmarks/calibration.py --quick            # seconds, a few cells, for the test suite
    python benchmarks/calibration.py --render           # only the tables of docs/trust.md, from the csv
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import os
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from calibration_cells import SECTIONS
from calibration_page import render
from calibration_readings import Cell, Quantity
from scipy.stats import beta, t
from threadpoolctl import threadpool_limits

import congruence

RESULTS = Path(__file__).parent / "results" / "calibration.csv"
PAGE = Path(__file__).parents[1] / "docs" / "trust.md"
SIMULATIONS, FOR_COVERAGE = 500, 200
CHUNK = 5  # simulations that a worker does at a time
COLUMNS = (
    "section", "cell", "n", "d", "simulations", "quantity", "count", "rate", "mean", "low", "high", "limit", "met",
    "cpu_s", "versions", "machine",
)  # fmt: skip
Row = dict[str, Any]


def clopper_pearson(count: int, of: int) -> tuple[float, float]:
    """The exact 95 % interval of a rate."""
    low = beta.ppf(0.025, count, of - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, of - count) if count < of else 1.0
    return float(low), float(high)


def summarise(quantity: Quantity, values: Sequence[Any]) -> Row:
    """The columns of one quantity over all simulations in which it is defined."""
    known = np.array([value for value in values if value is not None], dtype=float)
    row: Row = {"quantity": quantity.name, "simulations": len(known), "limit": quantity.limit}
    if not len(known):
        return row
    value = float(known.mean())
    if quantity.is_rate:
        low, high = clopper_pearson(int(known.sum()), len(known))
        row |= {"count": int(known.sum()), "rate": value}
    else:
        wide = t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known)) if len(known) > 1 else math.nan
        low, high = value - wide, value + wide
        row |= {"mean": value}
    met = {"met": "yes" if quantity.is_met(value) else "no"} if quantity.limit else {}
    return row | {"low": low, "high": high} | met


def compare_sizes(rows: Sequence[Row]) -> Iterator[Row]:
    """How much each number of the headline depends on the number of rows alone."""
    for law in ("gaussian", "t3", "lognormal"):
        of_law = [row for row in rows if row["cell"] == law and row.get("mean") is not None]
        for name in dict.fromkeys(row["quantity"] for row in of_law):
            means = [row["mean"] for row in of_law if row["quantity"] == name]
            if name == "R2" or len(means) < 2:
                continue
            value = max(means) / min(means)
            row = {key: of_law[0][key] for key in ("section", "d", "simulations", "versions", "machine")}
            row |= {"cell": f"{law}, largest / smallest mean over n", "n": "", "quantity": name, "mean": value}
            if name.startswith("error"):
                row |= {"limit": "<= 1.1", "met": "yes" if value <= 1.1 else "no"}
            yield row


CELLS: list[Cell] = []  # set before workers are forked: cells hold functions that cannot be pickled


def simulate(task: tuple[int, range]) -> tuple[int, list[list[Any]], float]:
    """The values of some simulations of one cell, and the CPU seconds they took."""
    index, seeds = task
    start = time.process_time()
    with threadpool_limits(1):
        values = [CELLS[index].simulate(seed) for seed in seeds]
    return index, values, time.process_time() - start


def run(cells: Sequence[Cell], simulations: int | None, workers: int) -> Iterator[Row]:
    """One row per cell and quantity."""
    CELLS[:] = cells
    counts = [simulations or (FOR_COVERAGE if cell.section.endswith("coverage") else SIMULATIONS) for cell in cells]
    tasks = [
        (index, range(start, min(start + CHUNK, count)))
        for index, count in enumerate(counts)
        for start in range(0, count, CHUNK)
    ]
    origin = {"versions": versions(), "machine": machine()}
    values: list[list[list[Any]]] = [[] for _ in cells]
    seconds = [0.0] * len(cells)
    pool = multiprocessing.get_context("fork").Pool(workers) if workers > 1 else None
    try:
        for index, found, spent in pool.imap(simulate, tasks) if pool else map(simulate, tasks):
            values[index] += found
            seconds[index] += spent
            if len(values[index]) < counts[index]:
                continue
            cell = cells[index]
            named = {"section": cell.section, "cell": cell.name, "n": cell.n, "d": cell.d}
            named |= origin | {"cpu_s": round(seconds[index], 2)}
            for quantity, column in zip(cell.quantities, zip(*values[index], strict=True), strict=True):
                yield named | summarise(quantity, column)
    finally:
        if pool:
            pool.terminate()


def versions() -> str:
    return (
        f"congruence {congruence.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, "
        f"python {platform.python_version()}"
    )


def machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, one thread per process"


def read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


def write(path: Path, rows: Sequence[Row]) -> None:
    order = {name: place for place, name in enumerate(SECTIONS)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda row: order[row["section"]]):
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def choose(only: str | None, quick: bool, text: str = "") -> list[Cell]:
    """The cells of one section or of all that have this text in their name; for --quick one of each, of few rows."""
    chosen = {name: list(make()) for name, make in SECTIONS.items() if only in (None, name)}
    if quick:
        chosen = {name: [min(cells, key=lambda cell: cell.n)] for name, cells in chosen.items()}
    return [cell for cells in chosen.values() for cell in cells if text in cell.name]


def merge(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The rows of all cells, those of simulated cells replaced; cells and quantities that are no more are left out."""

    def key(row: Row) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in ("section", "cell", "n", "d"))

    simulated = {key(row) for row in new}
    cells = {tuple(map(str, (cell.section, cell.name, cell.n, cell.d))): cell for cell in choose(None, False)}
    place = {cell: number for number, cell in enumerate(cells)}
    read = {(key, quantity.name) for key, cell in cells.items() for quantity in cell.quantities}
    kept = [row for row in old if key(row) not in simulated and ((key(row), row["quantity"]) in read or not row["n"])]
    return sorted([*kept, *new], key=lambda row: place.get(key(row), len(place)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two simulations of one cell of each section")
    parser.add_argument("--only", choices=SECTIONS, help="simulate one section, and keep the rows of the others")
    parser.add_argument("--cell", default="", help="only the cells with this text in their name")
    parser.add_argument(
        "--merge", type=Path, nargs="+", default=(), help="csv files of cells that were simulated apart"
    )
    parser.add_argument("--simulations", type=int, help=f"per cell ({SIMULATIONS}, for coverage {FOR_COVERAGE})")
    parser.add_argument("--workers", type=int, default=1, help="processes with one thread each")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--render", action="store_true", help="only make the tables of docs/trust.md from the csv")
    args = parser.parse_args()
    if args.merge:
        write(args.out, merge(read(args.out), [row for path in args.merge for row in read(path)]))
    elif not args.render:
        rows = read(args.out) if args.only or args.cell or not args.quick else []
        simulated = []
        cells = [cell for cell in choose(args.only, args.quick, args.cell) if not cell.needs or cell.needs.exists()]
        for row in run(cells, args.simulations or (2 if args.quick else None), args.workers):
            simulated.append(row)
            shown = ("section", "cell", "n", "d", "quantity", "simulations", "rate", "mean", "limit", "met")
            print(*(f"{row[key]:.3g}" if isinstance(row.get(key), float) else row.get(key, "-") for key in shown),
                  sep=" | ", flush=True)  # fmt: skip
        of_headline = [row for row in simulated if row["section"] == "headline"]
        write(args.out, merge(rows, [*simulated, *compare_sizes(of_headline)]))
    if args.out == RESULTS and PAGE.exists():
        PAGE.write_text(render(PAGE.read_text(), read(args.out)))


if __name__ == "__main__":
    main()
