"""Compare the names of columns: of a table with those of a fit, and of files that are parts of one table."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from congruence.arrays import listing
from congruence.errors import TableError


def match_columns(names: Sequence[str] | None, wanted: Sequence[str] | None, where: Path | str) -> list[int] | None:
    """Return the places in `names` of the columns `wanted`, or None where columns correspond by position.

    That is where one side has no names, where names are equal, and where both are numbered (``emb_0``, ``x1``): then
    the numbers are the order, whatever the stem. Other columns are refused.
    """
    if names is None or wanted is None or tuple(names) == tuple(wanted):
        return None
    if len(names) == len(wanted) and set(names) == set(wanted):
        place = {name: j for j, name in enumerate(names)}
        return [place[name] for name in wanted]
    if numbering(names) and numbering(wanted):
        return None
    raise TableError(
        f"{where} does not have the columns of the fit: it {difference(names, wanted)}; choose or rename its columns "
        "(--features), or give the values as an array without names"
    )


def difference(names: Collection[str], wanted: Collection[str]) -> str:
    """What columns lack, and have in addition to those that are wanted, in words."""
    known, asked = set(names), set(wanted)
    lacking, unknown = [c for c in wanted if c not in known], [c for c in names if c not in asked]
    words = [f"lacks {listing(lacking)}"] if lacking else []
    return " and ".join([*words, f"has {listing(unknown)} in addition"] if unknown else words)


def numbering(names: Sequence[str]) -> tuple[str, int, int] | None:
    """Return stem, first number and digits of names that count up (``emb_0``, ``emb_1``, ...), else None."""
    match = re.fullmatch(r"(.*?)(\d+)", names[0]) if names else None
    if match is None:
        return None
    stem, start = match[1], int(match[2])
    digits = len(match[2]) if match[2].startswith("0") and len(match[2]) > 1 else 1
    counts = list(names) == [f"{stem}{start + i:0{digits}d}" for i in range(len(names))]
    return (stem, start, digits) if counts else None
