"""Draw which rooms import which, as they do now: ``python docs/make_import_graph.py`` writes docs/img/rooms.svg."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "congruence"
LAYERS = (  # from the bottom; files at the top level of the package are one box
    ("foundation",),
    ("stats", "rows"),
    ("tables",),
    ("maps", "report"),
    ("ica", "decoder", "activations"),
    ("align", "metrics", "mixture"),
    ("translation", "features", "batches", "mechanism"),
    ("experiments",),
    ("cli",),
)
BOX = {"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": "0.35"}


def imports() -> dict[str, set[str]]:
    """The rooms that each room imports when it runs, the foundation left out."""
    found: dict[str, set[str]] = defaultdict(set)
    rooms = {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists()}
    for path in SOURCE.rglob("*.py"):
        here = path.relative_to(SOURCE).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = node.module if isinstance(node, ast.ImportFrom) and node.module else ""
            there = module.removeprefix("congruence.").split(".")[0]
            if here in rooms and module.startswith("congruence.") and there in rooms - {here}:
                found[here].add(there)
    return found


def main() -> None:
    """Draw the rooms in layers, with an arrow from each room to those that it imports."""
    places = {
        room: ((i + 0.5) / len(layer), height) for height, layer in enumerate(LAYERS) for i, room in enumerate(layer)
    }
    figure = Figure(figsize=(9, 8), layout="constrained")
    axes = figure.subplots()
    for room, others in sorted(imports().items()):
        for other in sorted(others):
            if places[room][1] > places[other][1]:  # `report` is loaded by results when they are shown
                style = {"arrowstyle": "->", "color": "0.65", "shrinkA": 14, "shrinkB": 14, "linewidth": 0.9}
                axes.annotate("", places[other], places[room], arrowprops=style)
    for room, (x, y) in places.items():
        axes.text(x, y, room, ha="center", va="center", fontsize=12, bbox=BOX)
    axes.set(xlim=(0, 1), ylim=(-0.6, len(LAYERS) - 0.4))
    axes.set_axis_off()
    figure.savefig(ROOT / "docs" / "img" / "rooms.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
