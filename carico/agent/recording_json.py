"""A recording as plain JSON, for those who have telemetry from elsewhere.

    {"columns": ["t", "n", "util", "psi", "mem"], "rows": [[0.0, 3, 0.5, 0.1, 0.3], …]}

t in seconds, n pods, the others ratios.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carico.errors import UsageError


def parse(path: Path, data: bytes) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Columns, and values as rows × columns."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is neither a Carico recording nor JSON: {error}") from None
    columns, rows = _tables(path, document)
    values = np.empty((len(rows), len(columns)))
    for number, row in enumerate(rows):
        values[number] = _row(path, number, row, columns)
    return columns, values


def _tables(path: Path, document: Any) -> tuple[tuple[str, ...], list[Any]]:
    columns, rows = (document.get(key) for key in ("columns", "rows")) if isinstance(document, dict) else (None, None)
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f'{path}: wants an object with "columns", a list of names such as t, n, util, psi, mem')
    if not isinstance(rows, list):
        raise UsageError(f'{path}: wants "rows", a list with one list of numbers per sample')
    return tuple(columns), rows


def _row(path: Path, number: int, row: Any, columns: tuple[str, ...]) -> list[float]:
    if not isinstance(row, list) or len(row) != len(columns):
        have = f"{len(row)} values" if isinstance(row, list) else type(row).__name__
        raise UsageError(f"{path}: row {number} is {have} instead of a list of {len(columns)} numbers")
    for name, value in zip(columns, row, strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _finite(value):
            raise UsageError(f"{path}: row {number}, column {name}: {value!r} is not a finite number")
    return [float(value) for value in row]


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float holds
        return False
