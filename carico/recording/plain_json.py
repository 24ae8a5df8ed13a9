"""A recording as plain JSON, for telemetry of other tools.

    {"columns": ["t", "n", "util", "psi", "mem"], "rows": [[0.0, 3, 0.5, 0.1, 0.3], …]}

t in seconds, n pods, the others ratios. Columns with other names are ignored and may hold anything, also text and null.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carico.errors import UsageError
from carico.settings import DIMENSIONS

KNOWN = ("t", "n", "churn", "unsettled", "util", "psi", "mem", *DIMENSIONS)


def parse(path: Path, data: bytes) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Columns, and values as rows × columns."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is neither a Carico recording nor JSON: {error}") from None
    columns, rows = _tables(path, document)
    known = [place for place, name in enumerate(columns) if name in KNOWN]
    values = np.empty((len(rows), len(known)))
    for number, row in enumerate(rows):
        values[number] = _row(path, number, row, columns, known)
    return tuple(columns[place] for place in known), values


def _tables(path: Path, document: Any) -> tuple[tuple[str, ...], list[Any]]:
    columns, rows = (document.get(key) for key in ("columns", "rows")) if isinstance(document, dict) else (None, None)
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f'{path}: wants an object with "columns", a list of names such as t, n, util, psi, mem')
    twice = [name for name in columns if name in KNOWN and columns.count(name) > 1]
    if twice:
        raise UsageError(f"{path}: there are two columns {twice[0]}")
    if not isinstance(rows, list):
        raise UsageError(f'{path}: wants "rows", a list with one list of numbers per sample')
    return tuple(columns), rows


def _row(path: Path, number: int, row: Any, columns: tuple[str, ...], known: list[int]) -> list[float]:
    if not isinstance(row, list) or len(row) != len(columns):
        have = f"{len(row)} values" if isinstance(row, list) else type(row).__name__
        raise UsageError(f"{path}: row {number} is {have} instead of a list of {len(columns)} numbers")
    for place in known:
        value = row[place]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _finite(value):
            raise UsageError(f"{path}: row {number}, column {columns[place]}: {value!r} is not a finite number")
    return [float(row[place]) for place in known]


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the range of a float
        return False
