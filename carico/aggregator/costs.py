"""What a pod costs, from the reports of all nodes; no single one is trusted.

In one dimension node i reports cᵢ with variance vᵢ and has weight wᵢ (1, less while it fades). med is the weighted
median:

    rough = med(c; w)
    pᵢ = 1/(vᵢ/max(cᵢ, rough)² + (1/10)²), at most twice med(p; w)
    qᵢ = wᵢ·pᵢ                                      better evidence counts more, but no node counts for many
    mid = med(c; q),  s = max(1.4826·med(|c − mid|; q), mid/10)
    cᵢ' = cᵢ, clipped to mid ± 3s
    mean = Σ qᵢcᵢ' / Σ qᵢ
    variance = Σ qᵢ(cᵢ − mean)² / Σ qᵢ + med(v; q)

Variances are taken relative to the cost, or cheap pods would count more than expensive ones only because they are
cheap. The mean is clipped, but the variance is the true spread, not clipped: where nodes differ, because they run
different pods or because one reports a wrong value, the cost of the next node is less certain, and the variance shows
it.

The bound. Let honest nodes report costs in [a, b], and let φ be the others' share of Σ q. For a share f of nodes
φ ≤ 4·f because of the limit on pᵢ, and φ = f when all variances are equal. If φ < ½ then mid lies in [a, b], the spread
s is at most max(1.4826·(b − a), b/10), and so

    a − 3sφ ≤ mean ≤ b + 3sφ,

whatever the others report. A node that reports 100 times its peers' cost moves the mean as one that reports mid + 3s.
"""

from __future__ import annotations

import numpy as np

from carico.types import CostPoints, Vector

POINTS = 256  # at most, sent between replicas per dimension
MAD_TO_SIGMA = 1.4826  # for a Gaussian
CLIP = 3.0  # s on either side
SAME = 0.1  # share of the cost: smaller differences are not counted against a node
WEIGHT_LIMIT = 2.0  # times the median precision
TINY = 1e-300  # keeps a cost of exactly 0 with variance 0 out of a division


def points(cost: Vector, variance: Vector, weight: Vector) -> CostPoints:
    """One point per node; every k-th of them in order of cost where there are more than POINTS nodes."""
    if len(cost) <= POINTS:
        return CostPoints(cost.copy(), variance.copy(), weight.copy())
    order = np.argsort(cost, kind="stable")
    running = np.cumsum(weight[order])
    total = float(running[-1])
    chosen = order[np.searchsorted(running, (np.arange(POINTS) + 0.5) / POINTS * total)]
    return CostPoints(cost[chosen], variance[chosen], np.full(POINTS, total / POINTS))


def robust(reported: CostPoints) -> tuple[float, float] | None:
    """Mean and variance as above; None when there is no report."""
    present = reported.weight > 0
    cost, variance, weight = reported.cost[present], reported.variance[present], reported.weight[present]
    if not len(cost):
        return None
    rough = median(cost, weight)
    precision = 1.0 / (variance / (np.maximum(cost, rough) ** 2 + TINY) + SAME**2)
    trust = weight * np.minimum(precision, WEIGHT_LIMIT * median(precision, weight))
    trust /= trust.sum()
    middle = median(cost, trust)
    spread = max(MAD_TO_SIGMA * median(np.abs(cost - middle), trust), SAME * middle)
    clipped = np.clip(cost, middle - CLIP * spread, middle + CLIP * spread)
    mean = float(trust @ clipped)
    return mean, float(trust @ (cost - mean) ** 2) + median(variance, trust)


def median(values: Vector, weight: Vector) -> float:
    """The smallest value with at least half of the weight at or below it.

    >>> median(np.array([3.0, 1.0, 2.0]), np.ones(3))
    2.0
    >>> median(np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    2.0
    """
    order = np.argsort(values, kind="stable")
    running = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(running, running[-1] / 2)]])
