"""Time as an argument, so that tests turn the clock instead of waiting for it.

`Clock` is what a process needs to know of time. `Ticker` turns it into a steady beat: it neither drifts (each tick is a
multiple of the period from the start) nor bursts (ticks that were missed during a stall are dropped, not made up for).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Protocol

from carico.beat import BeatLoop


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        """Calls back at monotonic time `when`; what it returns calls that off."""

    def beat_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        """As `call_at`, for what happens again and again: cheaper where the event loop can do it."""


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        return asyncio.get_running_loop().call_at(when, callback).cancel  # the loop's time is monotonic time

    def beat_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        loop = asyncio.get_running_loop()
        return loop.beat_at(when, callback) if isinstance(loop, BeatLoop) else self.call_at(when, callback)


class Ticker:
    """A beat of `period` seconds.

    Callbacks of the event loop carry it, not a task that sleeps: waking a task takes a second turn of the loop, which
    was a third of what a tick cost.
    """

    def __init__(self, clock: Clock, period: float) -> None:
        self._clock = clock
        self._period = period
        self.missed = 0  # ticks that were dropped because something stalled

    async def run(self, step: Callable[[float], object]) -> None:
        """Calls `step` at every tick, with how late it came in seconds, until cancelled or until it raises."""
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._schedule(self._clock.monotonic(), step, broken)
        try:
            await broken
        finally:
            self._call_off()

    def _schedule(self, due: float, step: Callable[[float], object], broken: asyncio.Future[None]) -> None:
        def tick() -> None:
            try:
                step(max(0.0, self._clock.monotonic() - due))
            except Exception as error:
                broken.set_exception(error)
            else:
                self._schedule(self._next(due), step, broken)

        self._call_off = self._clock.beat_at(due, tick)

    def _next(self, due: float) -> float:
        """The first multiple of the period that is still to come."""
        passed = max(0, math.floor((self._clock.monotonic() - due) / self._period))
        self.missed += passed
        return due + (passed + 1) * self._period
