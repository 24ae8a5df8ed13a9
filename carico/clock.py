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

from carico.beat import BeatLoop, Step, chain


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        """Calls back at monotonic time `when`; what it returns calls that off."""

    def beat(self, first: float, step: Step) -> Callable[[], object]:
        """Calls `step` at `first`, then at every time that it returned; what this returns calls that off."""


class SystemClock:
    monotonic = staticmethod(time.monotonic)  # as it is: the agent asks several times in a tick
    wall = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        return asyncio.get_running_loop().call_at(when, callback).cancel  # the loop's time is monotonic time

    def beat(self, first: float, step: Step) -> Callable[[], object]:
        loop = asyncio.get_running_loop()
        return loop.beat(first, step) if isinstance(loop, BeatLoop) else chain(self.call_at, first, step)


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
        due = self._clock.monotonic()

        def tick() -> float:
            nonlocal due
            try:
                step(max(0.0, self._clock.monotonic() - due))
            except Exception as error:
                if not broken.done():
                    broken.set_exception(error)
                return math.inf
            due = self._next(due)
            return due

        call_off = self._clock.beat(due, tick)
        try:
            await broken
        finally:
            call_off()

    def _next(self, due: float) -> float:
        """The first multiple of the period that is still to come."""
        ahead, now = due + self._period, self._clock.monotonic()
        if now < ahead:
            return ahead
        passed = math.floor((now - due) / self._period)
        self.missed += passed
        return due + (passed + 1) * self._period
