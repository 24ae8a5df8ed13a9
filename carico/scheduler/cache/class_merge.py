"""Merges the costs that several nodes measured for one class, robustly against a single wrong node.

The merge takes weighted medians: of three nodes or more, one with wrong figures has no influence unless it ran most of
the pods. Of two with equal weight, the more expensive one is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from carico.types import ClassCost, ClassKey, Vector

NORMAL = 1.4826  # median absolute deviations in a standard deviation


def merged(key: ClassKey, costs: Sequence[ClassCost]) -> ClassCost:
    """Of one class, or of several revisions of a family; all with the same resources."""
    if len(costs) == 1:
        return replace(costs[0], key=key)
    weight = np.array([max(cost.weight, 1e-9) for cost in costs])
    mean, spread = _middle([cost.mean for cost in costs], weight)
    variance, _ = _middle([cost.variance for cost in costs], weight)
    high, above = _middle([cost.high for cost in costs], weight)
    use, above_use = _middle([cost.use_high for cost in costs], weight)
    ramp, _ = _middle([(cost.ramp,) for cost in costs], weight)
    return ClassCost(
        key=key,
        pods=sum(cost.pods for cost in costs),
        weight=float(weight.sum()),
        mean=_plain(mean),
        variance=_plain(variance + spread**2),
        high=_plain(np.maximum(high + above, mean)),
        use_high=_plain(use + above_use),
        ramp=float(ramp[0]),
        nodes=sum(cost.nodes for cost in costs),
    )


def _middle(values: Sequence[tuple[float, ...]], weight: Vector) -> tuple[Vector, Vector]:
    """The median of each column, and the deviation from it, scaled to a standard deviation."""
    table = np.array(values, dtype=np.float64)
    middle = np.array([_median(column, weight) for column in table.T])
    spread = np.array([_median(np.abs(column - m), weight) for column, m in zip(table.T, middle, strict=True)])
    return middle, NORMAL * spread


def _median(values: Vector, weight: Vector) -> float:
    """
    >>> _median(np.array([1.0, 2.0, 100.0]), np.ones(3)), _median(np.array([1.0, 2.0]), np.ones(2))
    (2.0, 2.0)
    """
    order = np.argsort(values)
    passed = np.cumsum(weight[order])
    return float(values[order[min(np.searchsorted(passed, passed[-1] / 2, side="right"), len(values) - 1)]])


def _plain(values: Vector) -> tuple[float, ...]:
    return tuple(values.tolist())
