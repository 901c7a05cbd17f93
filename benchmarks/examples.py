"""The numbers of the examples on two trainings of one graph network, which docs/translate.md and docs/resolve.md quote.

CONGRUENCE_DATA=FOLDER python benchmarks/examples.py            # writes results/examples.csv
CONGRUENCE_DATA=FOLDER python benchmarks/examples.py --quick    # a quarter of the rows, for the test suite
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

import numpy as np

from congruence import resolve, translate


def examples(old, new):
    """Yield the verb, what was measured, and its value."""
    result = translate(old, new)
    found = result.certificate.retrieval
    yield "translate", "recall@10", found.recall_10.mean
    yield "translate", "recall@10, untranslated", found.before
    yield "translate", "rerank depth for 99 %", found.rerank_depth
    yield "translate", "the new model's own neighbours, translated", found.full.mean
    yield "translate", "the new model's own neighbours, old model", found.full_old
    yield "translate", "explained variance", result.candidates[result.group].r2.mean
    result = resolve(old, components=0.95)
    yield "resolve", "components", len(result.ica.identified_)
    yield "resolve", "identified", int(np.sum(result.ica.identified_))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "examples.csv")
    arguments = parser.parse_args()
    folder = Path(os.environ["CONGRUENCE_DATA"]) / "modelpairs"
    step = 4 if arguments.quick else 1
    old, new = (np.load(folder / f"admet_cls_seed{seed}.npy")[::step] for seed in (0, 1))
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["verb", "what", "value"])
        writer.writerows((verb, what, f"{value:.4f}") for verb, what, value in examples(old, new))


if __name__ == "__main__":
    main()
