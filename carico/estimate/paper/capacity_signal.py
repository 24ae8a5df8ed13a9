"""The capacity signal k: how many more units of the recent average workload fit.

k = max{ k : y + k·v ≤ 1 in every dimension }, where y is the current usage and v the unit of workload. The report uses
v = σ₁u₁ of the subspace; its author's code used vᵢ = Σⱼ|Uᵢⱼ|σⱼ / tr Σ, whose length hardly depends on the load.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from carico.estimate.paper.subspace import Subspace

# A dimension in which the workload is smaller than this does not bound k: 1/ε is far above any limit on k.
EPSILON = 1e-6


def signal(usage: Sequence[float], unit: Sequence[float], full: Sequence[float], limit: float) -> float:
    """k, in [0, limit]; 0 once any resource is full.

    >>> signal((0.5, 0.2), (0.25, 0.1), (0.99, 0.99), limit=1000)
    2.0
    >>> signal((0.995, 0.2), (0.25, 0.1), (0.99, 0.99), limit=1000)
    0.0
    >>> signal((0.5, 0.2), (0.0, 0.0), (0.99, 0.99), limit=1000)
    1000
    """
    k = limit
    for y, v, end in zip(usage, unit, full, strict=True):
        if y >= end:
            return 0.0
        if v > EPSILON:
            k = min(k, (1.0 - y) / v)
    return max(0.0, k)


def workload(model: Subspace) -> tuple[float, ...]:
    """σ₁u₁, the report's unit of workload."""
    return tuple((model.u[:, 0] * model.s[0]).tolist())


def trace_workload(model: Subspace) -> tuple[float, ...]:
    """Σⱼ|Uᵢⱼ|σⱼ / tr Σ, the unit in the code of the report's author; zero for an empty model."""
    total = float(model.s.sum())
    if total <= EPSILON:
        return (0.0,) * len(model.u)
    unit: list[float] = (np.abs(model.u) @ model.s / total).tolist()
    return tuple(unit)
