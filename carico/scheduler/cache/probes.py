"""Number of pods of unmeasured classes, by class and row.

The cost of such a pod is a guess. The number of them per node is limited, so that a wrong guess has little effect; the
limit ends as soon as one was measured on any node.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from carico.scheduler.cache.rows import RowArray
from carico.types import ClassKey


class Probes:
    """
    >>> probes, key = Probes(), ClassKey("team-a", "team-a/web")
    >>> probes.add(key, 3); probes.add(key, 5); probes.add(key, 5)
    >>> probes.on(key, 5), probes.rows(key, 2).tolist(), probes.rows(key, 1).tolist()
    (2, [5], [3, 5])
    >>> probes.remove(key, 5); probes.on(key, 5)
    1
    """

    def __init__(self) -> None:
        self._rows: dict[ClassKey, dict[int, int]] = {}

    def __iter__(self) -> Iterator[tuple[ClassKey, int, int]]:
        """Class, row and number of pods."""
        return ((key, row, pods) for key, rows in self._rows.items() for row, pods in rows.items())

    def on(self, key: ClassKey, row: int) -> int:
        return self._rows.get(key, {}).get(row, 0)

    def rows(self, key: ClassKey, least: int) -> RowArray:
        """Rows with at least `least` pods of the class."""
        rows = self._rows.get(key, {})
        found = rows if least <= 1 else [row for row, pods in rows.items() if pods >= least]
        return np.fromiter(found, dtype=np.intp, count=len(found))

    def add(self, key: ClassKey, row: int) -> None:
        rows = self._rows.setdefault(key, {})
        rows[row] = rows.get(row, 0) + 1

    def remove(self, key: ClassKey, row: int) -> None:
        rows = self._rows[key]
        rows[row] -= 1
        if not rows[row]:
            del rows[row]
        if not rows:
            del self._rows[key]
