"""Pronto's reject signal, the binary ancestor of k, for comparison.

Telemetry is centred on its running mean and its subspace followed by incremental SVD with forgetting. Every second is
projected on that subspace; a spike is a projection far above the mean of its own sliding window, measured in the
window's standard deviations. While the sum of the spikes, weighted by the singular values, is over the threshold the
node rejects jobs. Neither Pronto's paper nor the report gives window or threshold: both are settings.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import numpy as np

from carico.estimate.saved import numbers, rows
from carico.estimate.subspace import Subspace, damp, restore, save

FORGET = 0.98  # weight of the past, per second: Pronto follows the shape of a minute, not of a moment
LEAST_SPREAD = 1e-3  # standard deviation of a projection; less is rounding, not calm
SHORTEST = 5  # s of window below which nothing is called a spike


class Pronto:
    """
    >>> pronto = Pronto(1, window=60, threshold=3.0)
    >>> any(pronto.update((0.2 + 0.01 * (i % 2),)) for i in range(60))
    False
    >>> pronto.update((0.9,))
    True
    """

    def __init__(self, size: int, window: int, threshold: float) -> None:
        self._size = size
        self._threshold = threshold
        self._mean: tuple[float, ...] = ()
        self._model = Subspace(np.eye(size), np.zeros(size))
        self._window: deque[tuple[float, ...]] = deque(maxlen=window)  # centred usage

    def update(self, usage: tuple[float, ...]) -> bool:
        """One second; true while jobs are rejected."""
        self._mean = self._mean or usage
        centred = tuple([x - m for x, m in zip(usage, self._mean, strict=True)])
        rejecting = len(self._window) >= SHORTEST and self._spikes(centred) > self._threshold
        self._mean = tuple([m + (1.0 - FORGET) * c for m, c in zip(self._mean, centred, strict=True)])
        self._window.append(centred)
        self._model = damp(self._model, np.array([centred]).T, FORGET)
        return rejecting

    def _spikes(self, centred: tuple[float, ...]) -> float:
        """Weighted sum of the projections that stand out upwards, in standard deviations."""
        total = float(self._model.s.sum())
        if total <= 0.0:
            return 0.0
        past = np.array(self._window) @ self._model.u
        mean = past.sum(axis=0) / len(past)
        variance = (past * past).sum(axis=0) / len(past) - mean * mean
        spread = np.sqrt(np.maximum(variance, LEAST_SPREAD**2))
        spikes = np.maximum((np.array(centred) @ self._model.u - mean) / spread, 0.0)
        return float(spikes @ self._model.s) / total

    def save(self) -> dict[str, object]:
        return {"mean": self._mean, "model": save(self._model), "window": [list(row) for row in self._window]}

    def restore(self, state: Mapping[str, object]) -> None:
        self._mean = numbers(state, "mean", self._size, least=0.0, most=1.0, empty=True)
        self._model = restore(state, "model", self._size, longest=math.sqrt(self._size) + 1e-6) or self._model
        longest = self._window.maxlen or 0
        self._window.extend(rows(state, "window", self._size, longest, least=-1.0))
