"""Until when each node's report may be believed, one row per node.

Every decision asks it about all nodes, and between two decisions hardly anything changes: the answer is kept, corrected
row by row, and made anew only when the first of the fresh rows has expired.
"""

from __future__ import annotations

import numpy as np

from carico.scheduler.rows import Mask, grown
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
        self._fresh: Mask = np.zeros(0, dtype=np.bool_)  # as of `_asked`, and still until `_holds`
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
        """Rows that are fresh at `now`, which never goes back; for reading only, until the next call."""
        if now > self._holds or now < self._asked:
            np.greater_equal(self.expires, now, out=self._fresh)
            self._asked = now
            self._holds = float(self.expires[self._fresh].min(initial=np.inf))
        return self._fresh
