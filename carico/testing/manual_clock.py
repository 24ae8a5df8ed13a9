"""A clock that tests turn by hand, so that no test waits for real time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from carico.tick_loop import Step, repeat_by_timers


class ManualClock:
    """A clock that only moves when the test calls `turn` or `advance`.

    >>> clock = ManualClock(now=100.0)
    >>> async def nap() -> float:
    ...     await clock.sleep(5)
    ...     return clock.monotonic()
    >>> async def both() -> float:
    ...     sleeper = asyncio.create_task(nap())
    ...     await clock.turn(5)
    ...     return await sleeper
    >>> asyncio.run(both())
    105.0
    """

    def __init__(self, now: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._now = now
        self._wall_offset = wall - now
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_offset

    def step_wall(self, seconds: float) -> None:
        """Steps the wall clock, as an administrator or NTP does; monotonic time does not change."""
        self._wall_offset += seconds

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        cancel = self.call_at(self._now + seconds, woken.set)
        try:
            await woken.wait()
        finally:
            cancel()

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        entry = (when, next(self._order), callback)
        heapq.heappush(self._due, entry)

        def cancel() -> None:
            if entry in self._due:
                self._due.remove(entry)
                heapq.heapify(self._due)

        return cancel

    def call_repeatedly(self, first: float, step: Step) -> Callable[[], object]:
        return repeat_by_timers(self.call_at, first, step)

    def advance(self, seconds: float) -> None:
        """Advances time without running callbacks: a stall. Sleepers wake up at the next `turn`."""
        self._now += seconds

    async def turn(self, seconds: float) -> None:
        """Advances time and runs every callback at its time, in order."""
        await _settle()
        end = self._now + seconds
        while self._due and self._due[0][0] <= end:
            due, _, callback = heapq.heappop(self._due)
            self._now = max(self._now, due)
            callback()
            await _settle()
        self._now = max(self._now, end)
        await _settle()


async def _settle() -> None:
    """Runs 20 iterations of the event loop, so that all ready tasks reach their next wait."""
    for _ in range(20):
        await asyncio.sleep(0)
