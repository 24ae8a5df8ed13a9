"""Pauses between attempts: doubled after every failure, bounded, and spread at random.

>>> [doubled(0.1, 1.0, failures) for failures in (1, 2, 3, 4, 5, 1000)]
[0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
"""

from __future__ import annotations

import random

MOST_DOUBLINGS = 60  # a float overflows at 1,024


def doubled(first: float, longest: float, failures: int) -> float:
    """The pause after this number of failures in a row, at least 1: `first`, doubled each time, at most `longest`."""
    return min(longest, first * 2.0 ** min(failures - 1, MOST_DOUBLINGS))


def spread(pause: float, draw: float | None = None) -> float:
    """Half to all of it, so that many clients do not retry at the same moment; `draw` is in [0, 1).

    >>> spread(8.0, draw=0.5)
    6.0
    """
    return pause * (0.5 + 0.5 * (random.random() if draw is None else draw))
