"""The ticker neither drifts nor bursts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from carico.clock import SystemClock, Ticker
from carico.testing import ManualClock


async def _ticks(clock: ManualClock, ticker: Ticker, into: list[tuple[float, float]]) -> None:
    await ticker.run(lambda late: into.append((round(clock.monotonic(), 6), round(late, 6))))


def test_ticks_stay_multiples_of_the_period() -> None:
    async def scenario() -> list[tuple[float, float]]:
        clock = ManualClock(now=7.0)
        seen: list[Any] = []
        tick = asyncio.create_task(_ticks(clock, Ticker(clock, 0.1), seen))
        for _ in range(1000):
            await clock.turn(0.1)
        tick.cancel()
        return seen

    seen = asyncio.run(scenario())
    assert len(seen) == 1001
    assert seen[-1] == (107.0, 0.0)


def test_a_stall_gives_one_late_tick_and_no_burst() -> None:
    async def scenario() -> tuple[list[tuple[float, float]], int]:
        clock = ManualClock()
        seen: list[Any] = []
        ticker = Ticker(clock, 0.1)
        tick = asyncio.create_task(_ticks(clock, ticker, seen))
        await clock.turn(0.1)
        clock.advance(0.55)  # nothing ran for half a second
        await clock.turn(0.35)
        tick.cancel()
        return seen, ticker.missed

    seen, missed = asyncio.run(scenario())
    # The tick due at 0.2 comes at 0.65, those due from 0.3 to 0.6 are dropped; the tick goes on where it always was.
    assert seen == [(0.0, 0.0), (0.1, 0.0), (0.65, 0.45), (0.7, 0.0), (0.8, 0.0), (0.9, 0.0), (1.0, 0.0)]
    assert missed == 4


def test_what_a_step_raises_ends_the_tick() -> None:
    def broken(_: float) -> None:
        raise ValueError("broken step")

    with pytest.raises(ValueError, match="broken step"):
        asyncio.run(Ticker(SystemClock(), 0.01).run(broken))


def test_a_cancelled_tick_leaves_no_timer_behind() -> None:
    async def scenario() -> int:
        clock = ManualClock()
        seen: list[Any] = []
        tick = asyncio.create_task(_ticks(clock, Ticker(clock, 0.1), seen))
        await clock.turn(0.1)
        tick.cancel()
        await clock.turn(1.0)
        return len(seen)

    assert asyncio.run(scenario()) == 2
