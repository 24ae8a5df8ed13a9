"""Simulated time: a clock that runs scheduled calls in order of time, without waiting."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from carico.tick_loop import Step, repeat_by_timers

WALL = 1_700_000_000.0  # s since the epoch at simulated time 0


class Timeline:
    """A `carico.clock.Clock`.

    >>> timeline, seen = Timeline(), []
    >>> cancel = timeline.call_at(2.0, lambda: seen.append(("b", timeline.monotonic())))
    >>> timeline.at(1.0, lambda: seen.append(("a", timeline.monotonic())))
    >>> timeline.run(until=1.5)
    >>> seen, timeline.monotonic()
    ([('a', 1.0)], 1.5)
    >>> cancel()
    >>> timeline.run(until=3.0)
    >>> seen
    [('a', 1.0)]
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()  # calls at the same time run in the order of scheduling

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return WALL + self._now

    def at(self, when: float, call: Callable[[], object]) -> None:
        heapq.heappush(self._due, (max(when, self._now), next(self._order), call))

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        wanted = [callback]  # emptied when it is cancelled
        self.at(when, lambda: wanted and wanted[0]())
        return wanted.clear

    def call_repeatedly(self, first: float, step: Step) -> Callable[[], object]:
        return repeat_by_timers(self.call_at, first, step)

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self.at(self._now + seconds, woken.set)
        await woken.wait()

    def run(self, until: float) -> None:
        """Runs every call that is due until then."""
        due = self._due
        while due and due[0][0] <= until:
            self._now, _, call = heapq.heappop(due)
            call()
        self._now = until
