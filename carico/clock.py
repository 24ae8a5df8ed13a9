"""Time as an argument, so that tests turn the clock instead of waiting for it.

`Clock` is what a process needs to know of time. `Ticker` turns it into a steady beat: it neither drifts (each tick is a
multiple of the period from the start) nor bursts (ticks that were missed during a stall are dropped, not made up for).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Ticker:
    """A beat of `period` seconds; iterate over it to get, at each tick, how late it came in seconds."""

    def __init__(self, clock: Clock, period: float) -> None:
        self._clock = clock
        self._period = period
        self.missed = 0  # ticks that were dropped because something stalled

    async def __aiter__(self) -> AsyncIterator[float]:
        due = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            yield max(0.0, now - due)
            due = self._next(due)
            await self._clock.sleep(max(0.0, due - self._clock.monotonic()))

    def _next(self, due: float) -> float:
        """The first multiple of the period that is still to come."""
        passed = max(0, math.floor((self._clock.monotonic() - due) / self._period))
        self.missed += passed
        return due + (passed + 1) * self._period
