"""Until when each node's report is fresh, one row per node.

Every scheduling cycle needs it for all nodes, and little changes between two cycles: the result is cached, corrected
row by row, and recomputed only when the first of the fresh rows has expired.
"""

from __future__ import annotations

import numpy as np

from carico.columns import grown
from carico.scheduler.cache.rows import Mask
from carico.types import Vector

NEVER = -np.inf


class Freshness:
    """
    >>> freshness = Freshness()
    >>> freshness.fit(2)
    >>> freshness.set(0, 10.0); freshness.set(1, 20.0)
    >>> freshness.rows(5.0).tolist(), freshness.rows(15.0).tolist()
    ([True, True], [False, True])
    """

    def __init__(self) -> None:
        self.expires: Vector = np.zeros(0)  # s, monotonic: from then on the node is stale
        self._fresh: Mask = np.zeros(0, dtype=np.bool_)  # computed at `_asked`, valid until `_holds`
        self._asked = NEVER
        self._holds = np.inf

    def fit(self, length: int) -> None:
        self.expires = grown(self.expires, length, NEVER)
        self._fresh = grown(self._fresh, length, False)

    def set(self, row: int, expires: float) -> None:
        self.expires[row] = expires
        fresh = self._fresh[row] = self._asked <= expires and expires > NEVER
        if fresh:
            self._holds = min(self._holds, expires)

    def rows(self, now: float) -> Mask:
        """Rows that are fresh at `now`, which does not decrease; read-only, valid until the next call."""
        if now > self._holds or now < self._asked:
            np.greater_equal(self.expires, now, out=self._fresh)
            self._asked = now
            self._holds = float(self.expires[self._fresh].min(initial=np.inf))
        return self._fresh
