"""Collects samples into a matrix: m dimensions × b samples, divided by √b.

The report does not scale the batch. With the division, σ₁ of a batch is the root mean square of the usage along u₁. It
does not depend on the batch's length, and a damped merge preserves that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from carico.estimate.saved import number, numbers
from carico.types import Matrix


class Batch:
    """Collects `length` samples, returns them as a matrix and starts the next batch.

    >>> batch = Batch(2)
    >>> batch.add((0.5, 0.1)) is None
    True
    >>> batch.add((0.5, 0.1)).round(3).tolist()
    [[0.354, 0.354], [0.071, 0.071]]
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.rows: list[tuple[float, ...]] = []

    def add(self, values: tuple[float, ...]) -> Matrix | None:
        self.rows.append(values)
        if len(self.rows) < self.length:
            return None
        matrix = np.array(self.rows, dtype=np.float64).T / math.sqrt(self.length)
        self.rows = []
        return matrix


class CleanMean:
    """Mean of the raw samples of a batch that were taken without churn and with the current pod count.

    >>> clean = CleanMean(full=(0.99,))
    >>> clean.take((0.4,))
    >>> clean.take((1.0,))
    >>> clean.count, clean.mean, clean.saturated
    (2, (0.7,), (True,))
    """

    def __init__(self, full: tuple[float, ...]) -> None:
        self._full = full
        self.restart()

    def restart(self) -> None:
        """Drops all samples: a batch begins, or the pod count changed."""
        self.count = 0
        self.sums = [0.0] * len(self._full)
        self.saturated = (False,) * len(self._full)

    def take(self, values: tuple[float, ...]) -> None:
        self.count += 1
        for i, value in enumerate(values):
            self.sums[i] += value
            if value >= self._full[i]:
                self.saturated = (*self.saturated[:i], True, *self.saturated[i + 1 :])

    @property
    def mean(self) -> tuple[float, ...]:
        return tuple([total / self.count for total in self.sums]) if self.count else tuple(self.sums)

    def save(self) -> dict[str, object]:
        return {"count": self.count, "sums": list(self.sums), "saturated": list(self.saturated)}

    def restore(self, state: Mapping[str, object]) -> None:
        size = len(self._full)
        self.count = int(number(state, "count", least=0))
        self.sums = list(numbers(state, "sums", size, least=0.0, most=self.count))
        self.saturated = tuple([flag != 0.0 for flag in numbers(state, "saturated", size)])
