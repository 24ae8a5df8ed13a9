"""Pronto's reject signal, the binary predecessor of k, for comparison.

Telemetry is centred on its running mean and its subspace is tracked with exponential forgetting. Every second is
projected on that subspace; a spike is a projection far above the mean of its own sliding window, in standard deviations
of the window. While the sum of the spikes, weighted by the singular values, is over the threshold the node rejects
jobs. Neither Pronto's paper nor the report gives window or threshold: both are settings.

Grammenos, Kalyvianaki, Pietzuch, Pronto: Federated Task Scheduling, https://arxiv.org/abs/2104.13429
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from carico.estimate.paper.subspace import from_gram
from carico.estimate.saved import number, numbers, rows
from carico.types import Vector

FORGET = 0.98  # weight of the past, per second: a memory of about a minute
LEAST_SPREAD = 1e-3  # standard deviation of a projection; smaller ones are rounding
SHORTEST = 5  # s of window below which nothing counts as a spike


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
        self._gram = np.zeros((size, size))  # of the centred usage; at full rank it is the incremental SVD
        self._window = np.zeros((window, size))  # centred usage, a ring buffer
        self._seconds = 0
        self.rejecting = False  # the last result of `update`

    def update(self, usage: tuple[float, ...]) -> bool:
        """Processes one second; returns true while jobs are rejected."""
        self._mean = self._mean or usage
        centred = tuple([x - m for x, m in zip(usage, self._mean, strict=True)])
        row = np.array(centred)
        self.rejecting = self._seconds >= SHORTEST and self._spikes(row) > self._threshold
        self._mean = tuple([m + (1.0 - FORGET) * c for m, c in zip(self._mean, centred, strict=True)])
        self._window[self._seconds % len(self._window)] = row
        self._seconds += 1
        self._gram = FORGET * self._gram + (1.0 - FORGET) * row[:, None] * row
        return self.rejecting

    def _spikes(self, row: Vector) -> float:
        """Weighted sum of the projections above their mean, in standard deviations."""
        model = from_gram(self._gram)
        total = float(model.s.sum())
        if total <= 0.0:
            return 0.0
        past = self._window[: self._seconds] @ model.u
        count, spikes = len(past), 0.0
        sums, squares = past.sum(axis=0).tolist(), (past * past).sum(axis=0).tolist()
        for x, s, sum_, square in zip((row @ model.u).tolist(), model.s.tolist(), sums, squares, strict=True):
            mean = sum_ / count
            spread = math.sqrt(max(square / count - mean * mean, LEAST_SPREAD**2))
            spikes += s * max((x - mean) / spread, 0.0)
        return spikes / total

    def save(self) -> dict[str, object]:
        filled = self._window[: self._seconds]
        return {
            "mean": self._mean,
            "gram": self._gram.tolist(),
            "window": filled.tolist(),
            "seconds": self._seconds,
        }

    def restore(self, state: Mapping[str, object]) -> None:
        self._mean = numbers(state, "mean", self._size, least=0.0, most=1.0, empty=True)
        gram = rows(state, "gram", self._size, self._size, least=-1.0)
        window = rows(state, "window", self._size, len(self._window), least=-1.0)
        self._seconds = int(number(state, "seconds", least=0))
        if len(gram) != self._size or len(window) != min(self._seconds, len(self._window)):
            raise ValueError("saved state: 'gram' or 'window' is incomplete; delete the state file to start fresh")
        self._gram = np.array(gram, dtype=np.float64)
        self._window[: len(window)] = np.array(window, dtype=np.float64).reshape(-1, self._size)
