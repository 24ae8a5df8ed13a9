"""The loop of the agent: one tick from within the selector's wait, and asyncio as ever beside it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from threading import Timer
from typing import Any, TypeVar

import pytest

from carico.clock import SystemClock, Ticker
from carico.tick_loop import TickLoop

T = TypeVar("T")
PERIOD = 0.01  # s


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=TickLoop) as runner:
        return runner.run(main)


async def ticking(step: Callable[[float], object]) -> None:
    await Ticker(SystemClock(), PERIOD).run(step)


class Ticks:
    """Counts ticks in a running loop; `reach(n)` waits for the nth."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.start = 0.0  # when the first one was due: it may come late, and the others need not
        self._moved = asyncio.Event()
        self._task = asyncio.create_task(ticking(self._step))

    def _step(self, late: float) -> None:
        self.times.append(time.monotonic())
        if len(self.times) == 1:
            self.start = self.times[0] - late
        self._moved.set()

    async def reach(self, count: int) -> None:
        while len(self.times) < count:
            self._moved.clear()
            await self._moved.wait()

    def stop(self) -> None:
        self._task.cancel()


def test_no_tick_comes_before_its_time_or_is_made_up_for() -> None:
    async def main() -> Ticks:
        ticks = Ticks()
        await ticks.reach(5)
        await asyncio.sleep(0)
        _stall(5 * PERIOD)
        await ticks.reach(20)
        ticks.stop()
        return ticks

    ticks = run(main())
    assert all(at >= ticks.start + number * PERIOD - 0.001 for number, at in enumerate(ticks.times))
    assert ticks.times[19] >= ticks.start + 22 * PERIOD - 0.001  # ticks of the stall were dropped


def _stall(seconds: float) -> None:
    """The whole loop stands still."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_what_a_tick_sets_going_is_done_before_the_next_one() -> None:
    async def main() -> list[str]:
        loop, said, done = asyncio.get_running_loop(), [], asyncio.Event()

        def step(_: float) -> None:
            said.append("tick")
            if len(said) == 1:
                loop.call_soon(said.append, "soon")
                loop.call_later(0.0, said.append, "later")
            elif len(said) >= 5:
                done.set()

        tick = asyncio.create_task(ticking(step))
        await done.wait()
        tick.cancel()
        return said

    assert run(main())[:4] == ["tick", "soon", "later", "tick"]


def test_sockets_threads_and_timers_are_handled_between_ticks() -> None:
    async def main() -> tuple[bytes, str, float]:
        loop = asyncio.get_running_loop()
        tick = asyncio.create_task(ticking(lambda _: None))
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            loop.call_later(3 * PERIOD, far.send, b"news")
            received = await loop.sock_recv(near, 16)
        answer = await asyncio.to_thread(lambda: "thread")
        began = time.monotonic()
        await asyncio.sleep(2.5 * PERIOD)
        slept = time.monotonic() - began
        tick.cancel()
        return received, answer, slept

    received, answer, slept = run(main())
    assert (received, answer) == (b"news", "thread")
    assert slept >= 2.5 * PERIOD - 0.002


def test_a_broken_tick_ends_who_waits_for_it_and_leaves_the_loop_whole() -> None:
    def broken(_: float) -> None:
        raise ValueError("broken tick")

    async def main() -> str:
        with pytest.raises(ValueError, match="broken tick"):
            await ticking(broken)
        await asyncio.sleep(PERIOD)
        return "went on"

    assert run(main()) == "went on"


def test_a_second_tick_is_a_timer_and_a_cancelled_one_is_silent() -> None:
    async def main() -> int:
        first, second = Ticks(), Ticks()
        await first.reach(5)
        await second.reach(5)
        first.stop()
        await asyncio.sleep(0)
        ticks = len(first.times)
        await second.reach(len(second.times) + 5)
        second.stop()
        return len(first.times) - ticks

    assert run(main()) == 0


def test_with_the_tick_gone_the_loop_waits_as_ever() -> None:
    async def main() -> bytes:
        ticks = Ticks()
        await ticks.reach(2)
        ticks.stop()
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            Timer(3 * PERIOD, far.send, (b"news",)).start()  # no timer of the loop: it waits without an end
            return await asyncio.get_running_loop().sock_recv(near, 16)

    assert run(main()) == b"news"
