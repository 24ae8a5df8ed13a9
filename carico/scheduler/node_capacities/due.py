"""Which NodeCapacity objects are to be written, and when: state without I/O.

An object is due when the node's figures differ by a pod or more from those that were written, or when its mode changed,
or whether it is stale; else when a fresh node's object is as old as `refresh_after`. Those that differ go first, the
one that has differed longest before the others. All requests together, failed ones included, stay below RATE: a write
that needed more than one request is paid for when it ends, before the next one begins. After failures all writes pause,
longer each time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carico.backoff import doubled
from carico.columns import grown
from carico.kube.node_capacities import MOST_REQUESTS
from carico.scheduler.cache.rows import Mask
from carico.types import Matrix, Vector

RATE = 10.0  # requests/s
AT_ONCE = 32  # writes that have not ended
LEAST_REFRESH = 300.0  # s
REFRESHES_PER_SECOND = 4.0  # of all nodes together
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0  # s after a failure, doubled at each in a row
NOT_SERVED_PAUSE = 300.0  # s until it is tried again whether the cluster has such objects
LOOK_AGAIN = 30.0  # s after which an object that belonged to a former node of this name is written again

PODS = slice(0, 3)  # columns in pods: Pod-Capacity, reserved and counted
STATE = slice(3, 5)  # columns that are 0 or 1: churn and stale
STALE, COLUMNS = 4, 5


class NodeKey(NamedTuple):
    """A row and the UID of its Node: rows are used again by other nodes."""

    row: int
    uid: str


def refresh_after(nodes: int) -> float:
    """
    >>> refresh_after(100), refresh_after(20_000)
    (300.0, 5000.0)
    """
    return max(LEAST_REFRESH, nodes / REFRESHES_PER_SECOND)


class DueWrites:
    def __init__(self) -> None:
        self._uids: list[str] = []
        self._written: Matrix = np.zeros((0, COLUMNS))  # NaN: this leader has not written the object
        self._written_at: Vector = np.zeros(0)  # s, monotonic
        self._not_before: Vector = np.zeros(0)  # s, monotonic
        self._since: Vector = np.zeros(0)  # s, monotonic: when it first differed; inf: it is as written
        self._in_flight: dict[NodeKey, Vector] = {}  # with the figures that are written
        self._busy: Mask = np.zeros(0, dtype=np.bool_)
        self._tokens, self._filled_at = RATE, -math.inf
        self._failures, self._closed_until = 0, -math.inf
        self.differing = 0  # objects that were not equal to what is known, at the last `choose`

    def own(self, row: int, uid: str) -> None:
        """The row is that of this Node from now on; empty: of none."""
        self._fit(row + 1)
        if self._uids[row] != uid:
            self._uids[row] = uid
            self._written[row], self._since[row] = np.nan, math.inf
            self._written_at[row] = self._not_before[row] = -math.inf
            self._busy[row] = NodeKey(row, uid) in self._in_flight

    def choose(self, figures: Matrix, wanted: Mask, nodes: int, now: float) -> list[NodeKey]:
        """The objects to write now. `figures`: one row per node; only rows in `wanted` are written."""
        length = len(figures)
        self._fit(length)
        differs = wanted & self._differs(figures)
        self.differing = int(np.count_nonzero(differs))
        since = self._since[:length]
        since[differs] = np.minimum(since[differs], now)
        since[~differs] = math.inf
        count = self._affordable(now)
        if count <= 0:
            return []
        old = wanted & (figures[:, STALE] == 0) & (now - self._written_at[:length] >= refresh_after(nodes))
        may = ~self._busy[:length] & (self._not_before[:length] <= now)
        rows = np.flatnonzero((differs | old) & may)
        order = np.lexsort((self._written_at[rows], since[rows]))
        return [self._begin(row, figures[row]) for row in rows[order].tolist()[:count]]

    def written(self, key: NodeKey, requests: int, owned: bool, now: float) -> None:
        """The object has the figures that were chosen; not `owned`: it belongs to a former Node and will be deleted."""
        self._failures = 0
        figures = self._end(key, requests)
        if figures is not None and owned:
            self._written[key.row], self._written_at[key.row] = figures, now
        elif figures is not None:
            self._written[key.row], self._not_before[key.row] = np.nan, now + LOOK_AGAIN

    def failed(self, key: NodeKey, now: float, *, served: bool = True) -> None:
        """`served` False: the cluster has no such kind of objects."""
        self._end(key, MOST_REQUESTS)
        self._failures += 1
        pause = doubled(FIRST_PAUSE, LAST_PAUSE, self._failures) if served else NOT_SERVED_PAUSE
        self._closed_until = max(self._closed_until, now + pause)

    # --- inside ---

    def _fit(self, length: int) -> None:
        if len(self._uids) >= length:
            return
        self._uids += [""] * (length - len(self._uids))
        if len(self._since) < length:
            more = max(length, 2 * len(self._since)) - len(self._since)
            self._written = np.pad(self._written, ((0, more), (0, 0)), constant_values=np.nan)
            self._written_at = np.pad(self._written_at, (0, more), constant_values=-math.inf)
            self._not_before = np.pad(self._not_before, (0, more), constant_values=-math.inf)
            self._since = np.pad(self._since, (0, more), constant_values=math.inf)
            self._busy = grown(self._busy, len(self._since))

    def _differs(self, figures: Matrix) -> Mask:
        """NaN is unequal to everything."""
        change: NDArray[np.float64] = np.abs(figures - self._written[: len(figures)])
        differs: Mask = ~((change[:, PODS] < 1).all(axis=1) & (change[:, STATE] == 0).all(axis=1))
        return differs

    def _affordable(self, now: float) -> int:
        """How many writes may begin now."""
        if now < self._closed_until:
            return 0
        self._tokens = min(RATE, self._tokens + (now - self._filled_at) * RATE)
        self._filled_at = now
        if self._failures:  # one alone shows whether it works again
            return int(self._tokens >= 1 and not self._in_flight)
        return min(int(self._tokens), AT_ONCE - len(self._in_flight))

    def _begin(self, row: int, figures: Vector) -> NodeKey:
        key = NodeKey(row, self._uids[row])
        self._tokens -= 1
        self._in_flight[key] = figures.copy()
        self._busy[row] = True
        return key

    def _end(self, key: NodeKey, requests: int) -> Vector | None:
        """The figures that were chosen; None if the row is another node's by now."""
        figures = self._in_flight.pop(key)
        self._tokens -= requests - 1
        if self._uids[key.row] != key.uid:
            return None
        self._busy[key.row] = False
        return figures
