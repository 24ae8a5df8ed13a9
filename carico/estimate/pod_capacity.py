"""From usage and cost to pods: the two formulas of Pod-Capacity, and their bounds.

A settled node has room for minᵢ (fullᵢ − xᵢ)/cᵢ − u more pods, where u are pods that are counted but whose load cannot
be in the usage x yet. In churn, when usage is not representative, it has room for minᵢ (fullᵢ − bᵢ)/cᵢ − n. Some of the
load of the u may be in x already. Subtracting all u would count it twice, so x is first completed: to the prediction
b + c·n of the model, but by at least 0 and at most the load of u pods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def completed(now: float, model: float, missing: float) -> float:
    """Usage including the load of all counted pods: at least `now`, at most `missing` more, `model` in between.

    >>> completed(now=0.4, model=0.5, missing=0.2)
    0.5
    >>> completed(now=0.4, model=0.9, missing=0.2)
    0.6000000000000001
    >>> completed(now=0.4, model=0.1, missing=0.2)
    0.4
    """
    return min(max(now, model), now + missing)


def room(full: Sequence[float], usage: Sequence[float], cost: Sequence[float]) -> tuple[float, int]:
    """minᵢ (fullᵢ − xᵢ)/cᵢ over costs > 0, and the binding dimension i.

    >>> room((0.99, 0.99), (0.49, 0.19), (0.1, 0.4))
    (2.0, 1)
    """
    rooms = [(end - x) / c for end, x, c in zip(full, usage, cost, strict=True)]
    least = min(rooms)
    return least, rooms.index(least)


def bounded(pods: float, limit: float) -> float:
    """Clips to [0, limit]; NaN becomes 0.

    >>> bounded(-0.3, 1000.0), bounded(1e300, 1000.0), bounded(float("nan"), 1000.0)
    (0.0, 1000.0, 0.0)
    """
    return 0.0 if math.isnan(pods) else min(max(pods, 0.0), limit)
