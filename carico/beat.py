"""An event loop for a process that wakes up ten times a second and mostly finds nothing else to do.

A timer of asyncio costs some hundred µs on a processor that has slept: the whole way from the selector through the
heap of timers to the callback, every time with cold caches. Here the selector itself knows of one beat, and calls it
when its time has come, without leaving its wait. Whatever the beat sets going (a callback, a timer) ends the wait, so
that the loop goes on as it always does.
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
CallAt = Callable[[float, Callable[[], None]], Callable[[], object]]  # calls back once; gives what calls that off
Step = Callable[[], float]  # one beat; gives the time of the next (s, monotonic), infinite for none


class BeatSelector(selectors.DefaultSelector):
    """A selector that calls `beat` at `due` (s, monotonic) from within its wait."""

    def __init__(self) -> None:
        super().__init__()
        self._anything = select.epoll.fromfd(os.dup(self.fileno()))  # the same files, asked without the lists of them
        self.due = math.inf
        self.beat: Step | None = None
        self.disturbed = False  # the beat gave the loop something to do

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
                if self.beat is beat:  # nobody called it off meanwhile
                    self.due = due
                now = time.monotonic()
                found = found or self.disturbed
            if found:
                return super().select(0)
        return super().select(None if timeout is None else max(0.0, end - now))


class BeatLoop(asyncio.SelectorEventLoop):
    """`asyncio.Runner(loop_factory=BeatLoop)` runs on it; everything but the beat is asyncio's own."""

    def __init__(self) -> None:
        self._beats = BeatSelector()
        super().__init__(self._beats)

    def beat(self, first: float, step: Step) -> Callable[[], object]:
        """Calls `step` at `first`, then whenever it said; what it returns calls that off. There is one such beat."""
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
    """A beat made of single calls, for clocks that know nothing better."""

    pending: list[Callable[[], object]] = []

    def once() -> None:
        if (due := step()) < math.inf:
            pending[:] = [call_at(due, once)]

    pending.append(call_at(first, once))
    return lambda: pending[0]()
