"""How results become JSON: the same numbers give the same bytes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

SIGNIFICANT_DIGITS = 10  # of every float: far past what matters, short of the last bits that threads move


def json_text(result: dict[str, Any]) -> str:
    """Write plain dicts, lists, strings and numbers as JSON; NaN and infinity, which JSON has not, become null."""
    return json.dumps(_rounded(result), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
    return value
