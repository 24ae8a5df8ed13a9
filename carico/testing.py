"""What the tests of Carico use, and the tests of other people's plugins may use."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class ManualClock:
    """A clock that stands still until it is turned.

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
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_offset

    def step_wall(self, seconds: float) -> None:
        """What an administrator or NTP does: the wall clock jumps, monotonic time does not."""
        self._wall_offset += seconds

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        await future

    def advance(self, seconds: float) -> None:
        """Time passes while nobody looks: a stall. Sleepers wake at the next `turn`."""
        self._now += seconds

    async def turn(self, seconds: float) -> None:
        """Lets time pass; whoever sleeps wakes at its own moment, in order."""
        await _settle()
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not future.done():
                future.set_result(None)
            await _settle()
        self._now = max(self._now, end)
        await _settle()


async def _settle() -> None:
    """Gives every ready task its turns, until all of them wait for something."""
    for _ in range(20):
        await asyncio.sleep(0)
