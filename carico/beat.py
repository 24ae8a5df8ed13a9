"""An event loop for a process that wakes up ten times a second and mostly has nothing else to do.

A timer of asyncio takes some hundred µs on a processor that has slept: the path from the selector through the heap of
timers to the callback, each time with cold caches. Here the selector itself has one periodic callback, the beat, and
calls it when it is due, without returning from its wait. If the beat schedules anything (a callback, a timer), the wait
ends and the loop continues as usual.
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
Step = Callable[[], float]  # one beat; returns the time of the next (s, monotonic), infinite for none


class BeatSelector(selectors.DefaultSelector):
    """A selector that calls `beat` at `due` (s, monotonic) from within its wait."""

    def __init__(self) -> None:
        super().__init__()
        self._anything = select.epoll.fromfd(os.dup(self.fileno()))  # the same epoll, polled without building lists
        self.due = math.inf
        self.beat: Step | None = None
        self.disturbed = False  # the beat scheduled something in the loop

    def close(self) -> None:
        self._anything.close()
        super().close()

    def select(self, timeout: float | None = None) -> Ready:
        now = time.monotonic()
        end = math.inf if timeout is None else now + timeout
        while (beat := self.beat) is not None and self.due <= end:
            left = self.due - now
            found = bool(self._anything.poll(left if left > 0.0 else 0.0))
            now = time.monotonic()
            if now >= self.due:
                self.disturbed = False
                due = beat()
                if self.beat is beat:  # it was not cancelled meanwhile
                    self.due = due
                now = time.monotonic()
                found = found or self.disturbed
            if found:
                return super().select(0)
        return super().select(None if timeout is None else max(0.0, end - now))


class BeatLoop(asyncio.SelectorEventLoop):
    """Use it with `asyncio.Runner(loop_factory=BeatLoop)`; everything except the beat is asyncio's."""

    def __init__(self) -> None:
        self._beats = BeatSelector()
        super().__init__(self._beats)

    def beat(self, first: float, step: Step) -> Callable[[], object]:
        """Calls `step` at `first`, then at each time that it returns; returns a cancel function.

        There is one such beat; further ones are chained timers.
        """
        if self._beats.beat is not None:
            return chain(lambda when, call: self.call_at(when, call).cancel, first, step)
        self._beats.due, self._beats.beat = first, step

        def call_off() -> None:
            if self._beats.beat is step:
                self._beats.due, self._beats.beat = math.inf, None

        return call_off

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._beats.disturbed = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._beats.disturbed = True
        return super().call_at(when, callback, *args, context=context)


def chain(call_at: CallAt, first: float, step: Step) -> Callable[[], object]:
    """A beat made of single timers, for clocks without their own."""

    pending: list[Callable[[], object]] = []

    def once() -> None:
        if (due := step()) < math.inf:
            pending[:] = [call_at(due, once)]

    pending.append(call_at(first, once))
    return lambda: pending[0]()
