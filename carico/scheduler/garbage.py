"""Python's collector of reference cycles, kept away from decisions.

Left to itself it runs whenever enough objects were made, most often in the middle of a decision, and now and then
walks over every pod and node there is. What lives long here (pods, nodes, templates) has no cycles: it is set aside
(`settle`) and never walked over. Young objects are looked at between two decisions (`tidy`), and everything once an
hour while nothing waits (`sweep`), because closed streams and failed tasks do leave cycles behind.
"""

from __future__ import annotations

import gc

YOUNG = 10_000  # objects made since the last look after which `tidy` looks at them: under a millisecond
SAFETY = 500_000  # objects after which the collector runs by itself: should nobody call `tidy`
MIDDLE = 20  # looks at the young after which the survivors are looked at once more
SWEEP_EVERY = 3600.0  # s


class Garbage:
    """`ours`: this process is a scheduler and nothing else; otherwise its collector is left as it is."""

    def __init__(self, *, ours: bool) -> None:
        self._ours = ours
        self._swept_at: float | None = None
        if ours:
            gc.set_threshold(SAFETY, MIDDLE, 1000)

    def settle(self) -> None:
        """All that is alive now will stay: after the first lists, and after a sweep."""
        if self._ours:
            gc.collect()
            gc.freeze()

    def tidy(self) -> None:
        """Between two decisions."""
        if not self._ours:
            return
        young, middle, _ = gc.get_count()
        if young > YOUNG:
            gc.collect(1 if middle > MIDDLE else 0)

    def sweep(self, now: float) -> None:
        """While nothing waits: at 30,000 pods it takes half a second."""
        if self._swept_at is None:
            self._swept_at = now
        if self._ours and now - self._swept_at >= SWEEP_EVERY:
            self._swept_at = now
            gc.unfreeze()
            self.settle()
