"""Time as a dependency, so that tests advance the clock instead of waiting.

`Clock` has all time functions that a process needs. `Ticker` calls a function periodically: it neither drifts (each
tick is a multiple of the period from the start) nor bursts (ticks missed during a stall are dropped, not run later).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Protocol

from carico.tick_loop import Step, TickLoop, repeat_by_timers


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        """Calls back at monotonic time `when`; returns a cancel function."""

    def call_repeatedly(self, first: float, step: Step) -> Callable[[], object]:
        """Calls `step` at `first`, then at each time that it returns; returns a cancel function."""


class SystemClock:
    monotonic = staticmethod(time.monotonic)  # without a wrapper: the agent calls it several times per tick
    wall = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        return asyncio.get_running_loop().call_at(when, callback).cancel  # the loop's time is monotonic time

    def call_repeatedly(self, first: float, step: Step) -> Callable[[], object]:
        loop = asyncio.get_running_loop()
        return (
            loop.call_repeatedly(first, step)
            if isinstance(loop, TickLoop)
            else repeat_by_timers(self.call_at, first, step)
        )


class Ticker:
    """Ticks every `period` seconds.

    It uses callbacks of the event loop, not a task that sleeps: waking up a task takes a second iteration of the loop,
    which was a third of the cost of a tick.
    """

    def __init__(self, clock: Clock, period: float) -> None:
        self._clock = clock
        self._period = period
        self.missed = 0  # ticks that were dropped because something stalled

    async def run(self, step: Callable[[float], object]) -> None:
        """Calls `step` at every tick, with its delay in seconds, until cancelled or until it raises."""
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

        cancel = self._clock.call_repeatedly(due, tick)
        try:
            await broken
        finally:
            cancel()

    def _next(self, due: float) -> float:
        """The next multiple of the period."""
        ahead, now = due + self._period, self._clock.monotonic()
        if now < ahead:
            return ahead
        passed = math.floor((now - due) / self._period)
        self.missed += passed
        return due + (passed + 1) * self._period
