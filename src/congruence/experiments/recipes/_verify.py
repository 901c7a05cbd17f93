"""`verify` and `judge`: make the files of a result folder again from the numbers that it keeps."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from congruence.experiments.recipes._files import (
    FILES,
    PARTS,
    REPORT,
    RESULT,
    digest,
    read_numbers,
    render_files,
    write_files,
)
from congruence.experiments.recipes._reproduce import rebuild
from congruence.experiments.recipes.result import NUMBERS, RecipeResult
from congruence.guards import read_small, reading
from congruence.parts import RECORD

SAME = 1e-4  # of numbers in the files: what other processors and libraries may change
MOST = 2**20  # bytes of a folder
NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:e[-+−]?\d+)?")


def judge(folder: str | Path) -> RecipeResult:
    """Judge the claims of a result folder again, and write its tables, figures and pages, from the numbers it keeps.

    Nothing is trained or measured: `numbers.json.gz` is not changed.
    """
    folder = Path(folder)
    result = rebuild(folder)
    write_files(result, folder)
    return result


def verify(folder: str | Path) -> list[str]:
    """Make the files of a result folder again from its numbers; return one sentence for each difference.

    Claims, tables, figures and pages are compared. Numbers in them may differ by 0.01 %; a folder may have 1 MiB.
    """
    folder = Path(folder)
    made = render_files(rebuild(folder))
    differences = []
    for name, text in made.items():
        path = folder / name
        if not path.is_file():
            differences.append(f"{path} is missing")
            continue
        with reading(path, "a result"):
            written = read_small(path, "a result").decode()
            if place := _difference(_comparable(name, written), _comparable(name, text)):
                differences.append(f"{path} differs from what its numbers give: {place}")
    for name, about in read_numbers(folder)["drawn"].items():
        if digest((folder / f"{name}.svg").read_text(encoding="utf-8")) != about["sha256"]:
            differences.append(f"{folder / name}.svg is not the figure that was drawn")
    known = {*made, *FILES, NUMBERS, PARTS, RECORD}
    differences += [f"{path} belongs to no result" for path in sorted(folder.iterdir()) if path.name not in known]
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    if size > MOST:
        differences.append(f"{folder} has {size / MOST:.1f} MiB; at most 1 is allowed")
    return differences


def _comparable(name: str, text: str) -> str:
    """The text of a file without the versions of the libraries that wrote it, or what all pages share."""
    if name == REPORT:
        text = re.sub(r"<script.*?(?:</script>|\Z)", "", text.partition("</head>")[2], flags=re.DOTALL)
    if name != RESULT:
        return re.sub(r"python \d\S*, congruence [^<\n]*", "", text)
    content = json.loads(text)
    return json.dumps({key: value for key, value in content.items() if key != "versions"}, ensure_ascii=False)


def _difference(old: str, new: str) -> str:
    """Where two texts differ by more than rounding, in a few words; empty where they do not."""
    if old == new:
        return ""
    a, b = NUMBER.split(old), NUMBER.split(new)
    if a != b:
        place = next((i for i, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
        return f"…{a[place][-60:]!r}, not {b[place][-60:]!r}" if place < min(len(a), len(b)) else "its length"
    for one, other in zip(NUMBER.findall(old), NUMBER.findall(new), strict=True):
        x, y = (float(value.replace("−", "-")) for value in (one, other))
        if not math.isclose(x, y, rel_tol=SAME, abs_tol=SAME):
            return f"{one}, not {other}"
    return ""
