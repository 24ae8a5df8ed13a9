"""An event loop for a process that wakes up ten times a second and mostly finds nothing else to do.

A timer of asyncio costs some hundred µs on a processor that has slept: the whole way from the selector through the
heap of timers to the callback, every time with cold caches. Here the selector itself knows of one callback, the beat,
and calls it when its time has come, without leaving its wait. Whatever the beat sets going (a callback, a timer) ends
the wait, so that the loop goes on as it always does.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")
Ready = list[tuple[selectors.SelectorKey, int]]


class BeatSelector(selectors.DefaultSelector):
    """A selector that calls `beat` at `due` (s, monotonic) from within its wait."""

    def __init__(self) -> None:
        super().__init__()
        self.due = math.inf
        self.beat: Callable[[], None] | None = None
        self.disturbed = False  # the beat gave the loop something to do

    def select(self, timeout: float | None = None) -> Ready:
        now = time.monotonic()
        end = math.inf if timeout is None else now + timeout
        while self.beat is not None and self.due <= end:
            ready: Ready = super().select(max(0.0, self.due - now))
            now = time.monotonic()
            if now >= self.due:
                beat, self.beat, self.due, self.disturbed = self.beat, None, math.inf, False
                beat()
                if self.disturbed:
                    return ready
                now = time.monotonic()
            if ready:
                return ready
        left: Ready = super().select(None if timeout is None else max(0.0, end - now))
        return left


class BeatLoop(asyncio.SelectorEventLoop):
    """`asyncio.Runner(loop_factory=BeatLoop)` runs on it; everything but the beat is asyncio's own."""

    def __init__(self) -> None:
        self._beats = BeatSelector()
        super().__init__(self._beats)

    def beat_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        """Calls back at `when`; what it returns calls that off. There is one beat; a second one is a timer."""
        if self._beats.beat is not None:
            return self.call_at(when, callback).cancel
        self._beats.due, self._beats.beat = when, callback

        def call_off() -> None:
            if self._beats.beat is callback:
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
