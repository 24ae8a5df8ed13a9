"""What a pod of one class costs, from the reports of the nodes that run it; no single node is trusted against all.

For many classes at once: arrays are classes × nodes, padded with trust 0. In one resource node i reports cᵢ, the pods
behind it count wᵢ, and fᵢ in [0, 1] is the remaining weight of a node that fades. With at least three nodes:

    eᵢ = fᵢ·min(wᵢ, med(w))                          more pods count more, but no node counts for many
    mid = med(c; e),  s = max(1.4826·med(|c − mid|; e), mid/10)
    mean = Σ eᵢ·clip(cᵢ, mid ± 3s) / Σ eᵢ
    variance = Σ eᵢ(cᵢ* − mean)² / Σ eᵢ + Σ eᵢvᵢ* / Σ eᵢ
    high = min(max hᵢ, 2·second highest hᵢ)          memory; for cpu the quantile 0.9 of h by e instead of max hᵢ

cᵢ* is cᵢ, but the one farthest from mid is moved as near as the second farthest, and the largest vᵢ counts as the
second largest. So two nodes that differ from the others contribute fully to the spread, and one alone does not. With
one or two nodes there is no way to find which of them is wrong: means are weighted by wᵢ, and `high` is the highest.

The bound. Let n − 1 ≥ 2 honest nodes report means in [a, b] and highs up to h. The share of a single node in Σ e is
φ ≤ 1/⌈n/2⌉ where no node fades, always below ½. Whatever that node reports,

    a − 3sφ ≤ mean ≤ b + 3sφ   with   s ≤ max(1.4826·(b − a), b/10),      high ≤ 2h,

and the variance is at most (b − a + 3sφ)² plus the largest variance that an honest node reports.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carico.aggregator.costs import CLIP, MAD_TO_SIGMA, SAME
from carico.types import Matrix, Vector

Marks = NDArray[np.bool_]

LEAST_NODES = 3  # for a median to overrule a node
ALONE = 2.0  # times the second highest: the limit of the highest value that a single node reports
HIGH_QUANTILE = 0.9
HEAVIEST = 10.0  # times the median: what one node's pods count for in the sum, at most


class ClassReports(NamedTuple):
    """What the nodes reported of one resource; classes × nodes."""

    mean: Matrix
    variance: Matrix
    high: Matrix
    use_high: Matrix


class Merged(NamedTuple):
    """In one resource; one value per class."""

    mean: Vector
    variance: Vector
    high: Vector
    use_high: Vector


def trust_of(weight: Matrix, fading: Matrix) -> Matrix:
    """e above; `weight` is 0 where there is no node."""
    present = fading > 0
    many = present.sum(axis=1, keepdims=True) >= LEAST_NODES
    middle = quantile(weight, np.where(present & (weight > 0), 1.0, 0.0), 0.5)[:, None]
    trust: Matrix = np.where(many, np.minimum(weight, middle), weight) * fading
    return trust


def total_weight(weight: Matrix, fading: Matrix) -> Vector:
    """Pods measured by all nodes, each node's part limited."""
    middle = quantile(weight, np.where((fading > 0) & (weight > 0), 1.0, 0.0), 0.5)[:, None]
    total: Vector = (np.minimum(weight, HEAVIEST * middle) * fading).sum(axis=1)
    return total


def merge(reports: ClassReports, trust: Matrix, overruled: Marks, *, is_peak: bool) -> Merged:
    """`overruled` marks the nodes that the others may overrule; trust 0 where there is no report."""
    total = trust.sum(axis=1, keepdims=True)
    share = np.divide(trust, total, out=np.zeros_like(trust), where=total > 0)
    present = trust > 0
    middle = quantile(reports.mean, trust, 0.5)[:, None]
    away = np.where(present, reports.mean - middle, 0.0)
    spread = np.maximum(MAD_TO_SIGMA * quantile(np.abs(away), trust, 0.5)[:, None], SAME * middle)
    clipped = np.where(overruled, np.clip(away, -CLIP * spread, CLIP * spread), away)
    mean = middle[:, 0] + (share * clipped).sum(axis=1)
    nearest = _second(np.abs(away), present)
    tamed = np.where(overruled, np.clip(away, -nearest, nearest), away)
    between = (share * (middle + tamed - mean[:, None]) ** 2).sum(axis=1)
    within = np.where(overruled, np.minimum(reports.variance, _second(reports.variance, present)), reports.variance)
    variance = between + (share * np.where(present, within, 0.0)).sum(axis=1)
    high = _highest(reports.high, trust, overruled, is_peak=is_peak)
    return Merged(mean, variance, high, _highest(reports.use_high, trust, overruled, is_peak=is_peak))


def _highest(values: Matrix, trust: Matrix, overruled: Marks, *, is_peak: bool) -> Vector:
    present = trust > 0
    limited = np.where(overruled, np.minimum(values, ALONE * _second(values, present)), values)
    if is_peak:
        highest: Vector = np.where(present, limited, 0.0).max(axis=1)
        return highest
    return quantile(limited, trust, HIGH_QUANTILE)


def _second(values: Matrix, present: Marks) -> Matrix:
    """The second largest value of each class as a column; the largest where there is only one."""
    if values.shape[1] < 2:
        return np.where(present, values, 0.0)
    pair = np.partition(np.where(present, values, -np.inf), -2, axis=1)[:, -2:]
    second: Matrix = np.where(np.isfinite(pair[:, :1]), pair[:, :1], pair[:, 1:])
    return np.where(np.isfinite(second), second, 0.0)


def quantile(values: Matrix, weight: Matrix, share: float) -> Vector:
    """Per class the smallest value with at least that share of the weight at or below it; 0 where there is no node.

    >>> quantile(np.array([[3.0, 1.0, 2.0], [5.0, 7.0, 0.0]]), np.array([[1.0, 1.0, 1.0], [1.0, 3.0, 0.0]]), 0.5)
    array([2., 7.])
    """
    order = np.argsort(np.where(weight > 0, values, np.inf), axis=1, kind="stable")
    running = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    at = (running < share * running[:, -1:] * (1 - 1e-12)).sum(axis=1, keepdims=True)
    at = np.minimum(at, values.shape[1] - 1)
    found = np.take_along_axis(values, np.take_along_axis(order, at, axis=1), axis=1)[:, 0]
    result: Vector = np.where(running[:, -1] > 0, found, 0.0)
    return result
