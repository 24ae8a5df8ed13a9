"""Runs Python's garbage collector of reference cycles outside the scheduling cycles.

By default it runs whenever enough objects were allocated, most often during a scheduling cycle, and sometimes traverses
every pod and node. Long-lived objects (pods, nodes, templates) have no reference cycles: they are frozen (`settle`) and
never traversed. Young objects are collected between two scheduling cycles (`tidy`), and everything once an hour while
no pod is active (`sweep`), because closed streams and failed tasks do leave reference cycles.
"""

from __future__ import annotations

import gc

YOUNG = 10_000  # new objects at which `tidy` collects them: under a millisecond
SAFETY = 500_000  # new objects at which the collector runs by itself, if `tidy` is not called
MIDDLE = 20  # collections of generation 0 before one of generation 1
SWEEP_EVERY = 3600.0  # s


class GcControl:
    """`ours`: this process is only a scheduler; otherwise the collector is left unchanged."""

    def __init__(self, *, ours: bool) -> None:
        self._ours = ours
        self._swept_at: float | None = None
        if ours:
            gc.set_threshold(SAFETY, MIDDLE, 1000)

    def settle(self) -> None:
        """Freezes all live objects; called after the first lists, and after a sweep."""
        if self._ours:
            gc.collect()
            gc.freeze()

    def tidy(self) -> None:
        """Collects young objects; called between two scheduling cycles."""
        if not self._ours:
            return
        young, middle, _ = gc.get_count()
        if young > YOUNG:
            gc.collect(1 if middle > MIDDLE else 0)

    def sweep(self, now: float) -> None:
        """Collects everything; called while no pod is active. At 30,000 pods it takes half a second."""
        if self._swept_at is None:
            self._swept_at = now
        if self._ours and now - self._swept_at >= SWEEP_EVERY:
            self._swept_at = now
            gc.unfreeze()
            self.settle()
