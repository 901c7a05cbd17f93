"""Tidy tables as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any


def rows_to_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows with the same keys as CSV, floats in full precision, undefined numbers empty."""
    out = io.StringIO()
    rows = list(rows)
    if rows:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([_exact(value) for value in row.values()] for row in rows)
    return out.getvalue()


def _exact(value: Any) -> str:
    if isinstance(value, str):
        return value
    plain = value.item() if hasattr(value, "item") else value  # numpy scalars print their type
    return "" if plain is None or plain != plain else repr(plain)
