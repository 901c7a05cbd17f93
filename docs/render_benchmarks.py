"""Write the tables of benchmarks.md from the csv files of the benchmarks when the site is built."""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def rows(name):
    """The rows of a csv file, without its comments."""
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def means(name, keys, value):
    """The mean of a column by the values of other columns, in the order of the file."""
    groups = defaultdict(list)
    for row in rows(name):
        if row[value]:
            groups[tuple(row[key] for key in keys)].append(float(row[value]))
    return {key: mean(values) for key, values in groups.items()}


# Each function yields: what, its size, our number, the peer, the peer's number.


def _compare():
    seconds = means("compare", ("what", "n", "d"), "cold_cpu_s")
    for (what, n, d), ours in seconds.items():
        if what.startswith("compare"):
            for peer in ("scipy", "shape metric", "calibrated-similarity"):
                yield what, f"{n} x {d}", ours, peer, seconds[peer, n, d]


def _diameter():
    ours, peer = (means("diameter", ("data", "n", "d"), f"{one}_cpu_s") for one in ("diameter", "cdist"))
    for (data, n, d), seconds in ours.items():
        yield f"exact diameter, {data}", f"{n} x {d}", seconds, "scipy cdist", peer[data, n, d]


def _ica():
    seconds = means("ica_one_thread", ("n", "d", "peer"), "cpu_s")
    for (n, d, peer), value in seconds.items():
        for name, own in {"ICA, one start": "congruence f32", "ICA, two starts": "congruence f32 2-starts"}.items():
            if "congruence" not in peer:
                yield name, f"{n} x {d}", seconds[n, d, own], peer, value


def _ica_lens(column):
    found = means("ica_lens", ("rows", "n", "d", "k", "method"), column)
    for (data, n, d, k, peer), value in found.items():
        for own in ("congruence, one start", "congruence, default"):
            if "congruence" not in peer:
                what, size = f"ICA of layers, {own.split(', ')[1]}, {data}", f"{n} x {d}, k = {k}"
                yield what, size, found[data, n, d, k, own], peer, value


def _metrics():
    for row in rows("metrics"):
        if row["peer_cpu_s"]:
            size = f"{row['n']} x {row['codes']} codes x {row['factors']} factors"
            peer = row["peer"] or "scikit-learn"
            yield f"{row['metric']}: {row['part']}", size, row["ours_cpu_s"], peer, row["peer_cpu_s"]


def _decoder():
    for row in rows("decoder"):
        size = f"{row['points']} points, {row['latents']} to {row['outputs']}"
        yield row["what"], size, row["ours_s"], row["peer"], row["peer_s"]
    for row in rows("ensemble"):
        size = f"{row['members']} members, {row['device']}"
        yield "training of an ensemble", size, row["ours_s"], row["peer"], row["peer_s"]
    for row in rows("extract"):
        yield row["what"], f"{row['rows']} rows", row["ours_s"], "the model alone", row["bare_s"]


def _maps():
    found = means("translate_maps", ("paired_rows", "method"), "recall_10")
    for (n, peer), value in found.items():
        if peer != "ours":
            yield "translation, recall", f"{n} paired rows", found[n, "ours"], peer, value


def _unpaired():
    found = means("translate_unpaired", ("pair", "method"), "r2")
    for (pair, peer), value in found.items():
        if peer != "congruence, unpaired":
            yield "translation without pairs", pair, found[pair, "congruence, unpaired"], peer, value


def _queries():
    for row in rows("translate_apply"):
        size = f"{row['d']} dimensions, {row['batch']} a call, {row['normalize']}"
        yield "translate a query", size, row["translator_us"], "one product in numpy", row["matmul_us"]


SECTIONS = {  # title: rows, unit, whether less is better
    "Comparison of two runs, cold start": (_compare, "CPU s", True),
    "Diameter": (_diameter, "CPU s", True),
    "ICA": (_ica, "CPU s", True),
    "ICA of layers: time": (lambda: _ica_lens("cpu_s"), "CPU s", True),
    "ICA of layers: agreement of seeds": (lambda: _ica_lens("agreement"), "mean cosine", False),
    "Disentanglement metrics": (_metrics, "CPU s", True),
    "Derivatives, training, layers": (_decoder, "s", True),
    "Translation: recall@10": (_maps, "recall@10", False),
    "Translation without pairs: R²": (_unpaired, "R²", False),
    "Translation of queries": (_queries, "µs a query", True),
}


def compared(title):
    """The rows of a section as cells, and whether the peer is better."""
    make, unit, less = SECTIONS[title]
    for what, size, ours, peer, theirs in make():
        ours, theirs = float(ours), float(theirs)
        better = f"{theirs / ours:.2f} times" if less else f"{ours - theirs:+.3f}"
        yield (
            (what, size, f"{ours:.3g} {unit}", peer, f"{theirs:.3g} {unit}", better),
            (theirs < ours if less else theirs > ours),
        )


def table(lines):
    """Cells as a Markdown table."""
    head = ("what", "size", "ours", "peer", "peer's", "peer's / ours, or ours − peer's")
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *lines))


def on_page_markdown(markdown, page, **_):
    """Replace the marks in benchmarks.md."""
    if page.file.src_uri != "benchmarks.md":
        return markdown
    lost = [cells for title in SECTIONS for cells, worse in compared(title) if worse]
    parts = [f"### {title}\n\n{table([cells for cells, _ in compared(title)])}\n" for title in SECTIONS]
    return markdown.replace("<!-- lost -->", table(lost)).replace("<!-- all -->", "\n".join(parts))
