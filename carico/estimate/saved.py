"""Reads saved state. An invalid value is rejected with its key in the message, before any of the state is used."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping

GREATEST = sys.float_info.max


def section(state: Mapping[str, object], key: str) -> Mapping[str, object]:
    """A nested part of the state."""
    value = state.get(key)
    if not isinstance(value, Mapping):
        raise ValueError(f"saved state: {key!r} is {value!r}, not a section; delete the state file to start fresh")
    return value


def number(state: Mapping[str, object], key: str, *, least: float = -math.inf, most: float = math.inf) -> float:
    """
    >>> number({"count": 3}, "count", least=0)
    3.0
    >>> number({"count": -3}, "count", least=0)
    Traceback (most recent call last):
    ...
    ValueError: saved state: 'count' holds -3, not a number from 0 to inf; delete the state file to start fresh
    """
    return _checked(key, state.get(key), least, most)


def numbers(
    state: Mapping[str, object],
    key: str,
    size: int,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    empty: bool = False,
) -> tuple[float, ...]:
    """`size` numbers, or with `empty` none at all."""
    return _row(key, state.get(key), size, least, most, empty)


def rows(
    state: Mapping[str, object], key: str, size: int, at_most: int, *, least: float = 0.0, most: float = 1.0
) -> list[tuple[float, ...]]:
    """Up to `at_most` rows of `size` numbers each."""
    value = state.get(key)
    if not isinstance(value, list | tuple) or len(value) > at_most:
        raise ValueError(
            f"saved state: {key!r} is not a list of at most {at_most} rows; delete the state file to start fresh"
        )
    return [_row(key, row, size, least, most, False) for row in value]


def _row(key: str, value: object, size: int, least: float, most: float, empty: bool) -> tuple[float, ...]:
    right = isinstance(value, list | tuple) and (len(value) == size or (empty and not value))
    if not right:
        raise ValueError(f"saved state: {key!r} is {value!r}, not {size} numbers; delete the state file to start fresh")
    assert isinstance(value, list | tuple)
    return tuple([_checked(key, item, least, most) for item in value])


def _checked(key: str, value: object, least: float, most: float) -> float:
    # An int may be too large for a float, and so for `isfinite`: the comparison comes first.
    if isinstance(value, int | float) and -GREATEST <= value <= GREATEST and least <= value <= most:
        return float(value)
    raise ValueError(
        f"saved state: {key!r} holds {value!r}, not a number from {least:g} to {most:g};"
        " delete the state file to start fresh"
    )
