"""How much load of recently started pods is not in the usage yet, if a pod takes some seconds to reach its load.

A pod that touches its memory over ten seconds counts as one pod immediately, but after a second only a tenth of it is
in the usage. To learn the cost from such seconds, the count is replaced by the number of pods that would be visible if
every pod's load rose linearly over `seconds`. A stop removes an average pod: the count does not identify which one.
"""

from __future__ import annotations

from collections.abc import Mapping

from carico.estimate.saved import number, rows

LONGEST = 20.0  # s; a longer ramp cannot be distinguished from a slow change of the cost
GRAIN = 0.5  # s; starts closer together than this are merged, to bound memory in a burst


class RampTracker:
    """The young pods of a node.

    >>> starts = RampTracker()
    >>> starts.count(0.0, 3)  # seen for the first time: their age is unknown, so they count as old
    >>> starts.count(10.0, 5)
    >>> starts.missing(at=12.5, seconds=10.0)  # two pods, each at a quarter
    1.5
    >>> starts.missing(at=12.5, seconds=0.0)
    0.0
    """

    def __init__(self) -> None:
        self._pods = -1
        self._young: list[tuple[float, float]] = []  # (s, pods), oldest first

    def count(self, at: float, pods: int) -> None:
        self._young = [(began, many) for began, many in self._young if 0.0 <= at - began < LONGEST]
        if pods > self._pods >= 0:
            self._started(at, pods - self._pods)
        elif pods < self._pods:
            share = pods / self._pods
            self._young = [(began, many * share) for began, many in self._young]
        self._pods = pods

    def _started(self, at: float, pods: int) -> None:
        if self._young and 0.0 <= at - self._young[-1][0] < GRAIN:
            began, many = self._young[-1]
            self._young[-1] = (began + (at - began) * pods / (many + pods), many + pods)
        else:
            self._young.append((at, float(pods)))

    def missing(self, at: float, seconds: float) -> float:
        """Load that is not in the usage yet at that moment, in pods."""
        if seconds <= 0.0:
            return 0.0
        return sum([many * (1.0 - (at - began) / seconds) for began, many in self._young if 0 <= at - began < seconds])

    def save(self) -> dict[str, object]:
        return {"pods": self._pods, "young": [list(entry) for entry in self._young]}

    def restore(self, state: Mapping[str, object]) -> None:
        self._pods = int(number(state, "pods", least=-1))
        most = int(LONGEST / GRAIN) + 2
        self._young = [(began, many) for began, many in rows(state, "young", 2, most, least=0.0, most=1e12)]
