"""Durations in the notation of Kubernetes: `30s`, `5m`, `1h30m`, `250ms`, or a bare number of seconds."""

from __future__ import annotations

import math
import re

UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}  # s
PIECE = re.compile(r"(\d+\.?\d*|\.\d+)(ms|us|µs|ns|[dhms])")
SHOWN = ("h", "m", "s")


def parse(text: str) -> float:
    """Seconds.

    >>> parse("30s"), parse("1h30m"), parse("250ms"), parse("2.5"), parse("0")
    (30.0, 5400.0, 0.25, 2.5, 0.0)
    >>> parse("5 minutes")
    Traceback (most recent call last):
    ValueError: is not a duration; write it like 30s, 5m, 1h30m or as a number of seconds
    """
    text = text.strip()
    pieces = PIECE.findall(text)
    if pieces and "".join(number + unit for number, unit in pieces) == text:
        return sum(float(number) * UNITS[unit] for number, unit in pieces)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ValueError("is not a duration; write it like 30s, 5m, 1h30m or as a number of seconds")
    return seconds


def show(seconds: float) -> str:
    """The shortest notation.

    >>> show(30), show(300), show(5400), show(0.25), show(2.5), show(0)
    ('30s', '5m', '1h30m', '250ms', '2.5s', '0s')
    """
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    if seconds != int(seconds) or not seconds:
        return f"{seconds:g}s"
    parts, left = [], int(seconds)
    for unit in SHOWN:
        count, left = divmod(left, int(UNITS[unit]))
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts)
