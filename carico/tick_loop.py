"""An event loop for a process that wakes up ten times a second and mostly has nothing else to do.

A timer of asyncio takes some hundred µs on a processor that has slept: the path from the selector through the heap of
timers to the callback, each time with cold caches. Here the selector itself has one periodic callback and calls it when
it is due, without returning from its wait. If the callback schedules anything (a callback, a timer), the wait ends and
the loop continues as usual.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import selectors
import time
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")
Ready = list[tuple[selectors.SelectorKey, int]]
CallAt = Callable[[float, Callable[[], None]], Callable[[], object]]  # calls back once; returns a cancel function
Step = Callable[[], float]  # one tick; returns the time of the next (s, monotonic), infinite for none


class TickSelector(selectors.DefaultSelector):
    """A selector that calls `step` at `due` (s, monotonic) from within its wait."""

    def __init__(self) -> None:
        super().__init__()
        self._epoll = select.epoll.fromfd(os.dup(self.fileno()))  # the same epoll, polled without building lists
        self.due = math.inf
        self.step: Step | None = None
        self.scheduled = False  # the step scheduled something in the loop

    def close(self) -> None:
        self._epoll.close()
        super().close()

    def select(self, timeout: float | None = None) -> Ready:
        now = time.monotonic()
        end = math.inf if timeout is None else now + timeout
        while (step := self.step) is not None and self.due <= end:
            left = self.due - now
            found = bool(self._epoll.poll(left if left > 0.0 else 0.0))
            now = time.monotonic()
            if now >= self.due:
                self.scheduled = False
                due = step()
                if self.step is step:  # it was not cancelled meanwhile
                    self.due = due
                now = time.monotonic()
                found = found or self.scheduled
            if found:
                return super().select(0)
        return super().select(None if timeout is None else max(0.0, end - now))


class TickLoop(asyncio.SelectorEventLoop):
    """Use it with `asyncio.Runner(loop_factory=TickLoop)`; everything except the ticks is asyncio's."""

    def __init__(self) -> None:
        self._ticks = TickSelector()
        super().__init__(self._ticks)

    def call_repeatedly(self, first: float, step: Step) -> Callable[[], object]:
        """Calls `step` at `first`, then at each time that it returns; returns a cancel function.

        The selector has one such callback; further ones are chained timers.
        """
        if self._ticks.step is not None:
            return repeat_by_timers(lambda when, call: self.call_at(when, call).cancel, first, step)
        self._ticks.due, self._ticks.step = first, step

        def cancel() -> None:
            if self._ticks.step is step:
                self._ticks.due, self._ticks.step = math.inf, None

        return cancel

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._ticks.scheduled = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._ticks.scheduled = True
        return super().call_at(when, callback, *args, context=context)


def repeat_by_timers(call_at: CallAt, first: float, step: Step) -> Callable[[], object]:
    """The same with single timers, for clocks that have nothing else."""
    pending: list[Callable[[], object]] = []

    def once() -> None:
        if (due := step()) < math.inf:
            pending[:] = [call_at(due, once)]

    pending.append(call_at(first, once))
    return lambda: pending[0]()
