"""The last ten minutes of every node, and of the cluster, for the charts.

Every STEP seconds one row of figures per node is written into a ring: Pod-Capacity, reserved, pods and the usage of
each dimension, as 16-bit floats (a chart has a few hundred steps). With two dimensions that is 2 kB per node: 10 MB at
5,000 nodes. A stale node leaves a gap.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carico.scheduler.http.dashboard.columns import CAPACITY, FRESH, PODS, RESERVED, STATE, USAGE, Matrix32

STEP = 3.0  # s
STEPS = 200  # ten minutes
KEPT = (CAPACITY, RESERVED, PODS)
LARGEST = 60_000.0  # below the largest number that 16 bits hold


class NodeHistory:
    """
    >>> history = NodeHistory()
    >>> history.sample(np.array([[1, 8.0, 2.0, 3, 0, 0.5]], dtype=np.float32), 100.0)
    >>> history.of(0)["capacity"], history.of(0)["usage"], history.of(0)["at"]
    ([8.0], [[0.5]], [100.0])
    """

    def __init__(self) -> None:
        self._ring: NDArray[np.float16] = np.zeros((STEPS, 0, 0), dtype=np.float16)  # step, figure, row
        self._at: deque[float] = deque(maxlen=STEPS)  # s, monotonic
        self._next = 0
        self.cluster: deque[list[float]] = deque(maxlen=STEPS)  # time, pods, reserved, free, waiting

    @property
    def nbytes(self) -> int:
        return self._ring.nbytes

    def is_due(self, now: float) -> bool:
        return not self._at or now - self._at[-1] >= STEP

    def sample(self, matrix: Matrix32, now: float) -> None:
        kept = matrix[:, [*KEPT, *range(USAGE, matrix.shape[1])]]
        fresh = (matrix[:, STATE].astype(np.int32) & FRESH) > 0
        self._fit(kept.shape[1], len(matrix))
        step = self._ring[self._next]
        step[:] = np.nan
        step[: kept.shape[1], : len(kept)] = np.where(fresh[:, None], np.minimum(kept, LARGEST), np.nan).T
        self._next = (self._next + 1) % STEPS
        self._at.append(now)

    def forget(self, row: int) -> None:
        """Clear the row: it belongs to another node from now on."""
        self._ring[:, :, row : row + 1] = np.nan

    def of(self, row: int) -> dict[str, Any]:
        """A node's figures, oldest first; None where it was stale."""
        order = [(self._next - len(self._at) + i) % STEPS for i in range(len(self._at))]
        if row >= self._ring.shape[2]:
            return {"at": [], "capacity": [], "reserved": [], "pods": [], "usage": []}
        figures = [_plain(line) for line in self._ring[order, :, row].T]
        at = [round(when, 2) for when in self._at]
        capacity, reserved, pods, *usage = figures
        return {"at": at, "capacity": capacity, "reserved": reserved, "pods": pods, "usage": usage}

    def _fit(self, figures: int, rows: int) -> None:
        _, have_figures, have_rows = self._ring.shape
        if figures <= have_figures and rows <= have_rows:
            return
        wide = max(have_rows, rows if rows <= have_rows else max(rows, min(2 * have_rows, rows + 1000)))
        more = ((0, 0), (0, max(0, figures - have_figures)), (0, wide - have_rows))
        self._ring = np.pad(self._ring, more, constant_values=np.nan)


def _plain(line: NDArray[np.float16]) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 3) for value in line.tolist()]
