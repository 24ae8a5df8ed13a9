"""What `carico top` and `carico record` follow ends when it should, and a fault ends it with its reason."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from carico.errors import CaricoError
from carico.recording.live import LiveSampler, Tick
from carico.settings import NodeSettings
from carico.testing import ManualClock

SETTINGS = NodeSettings(runtime="none", rate_hz=10.0)


async def followed(watcher: LiveSampler) -> list[Tick]:
    return [tick async for tick in watcher]


def test_it_ends_with_the_sample_that_completes_the_last_second() -> None:
    async def scenario() -> int:
        clock = ManualClock()
        ticks = asyncio.create_task(followed(LiveSampler(SETTINGS, clock, seconds=3)))
        await clock.turn(3.2)
        return len(await asyncio.wait_for(ticks, 5))

    assert asyncio.run(scenario()) == 31  # the first has nothing to compare with


def test_a_slow_beat_does_not_make_its_end_wait() -> None:
    async def scenario() -> int:
        clock = ManualClock()
        slow = NodeSettings(runtime="none", rate_hz=0.1)
        ticks = asyncio.create_task(followed(LiveSampler(slow, clock, seconds=1)))
        await clock.turn(1.2)
        return len(await asyncio.wait_for(ticks, 5))

    assert asyncio.run(scenario()) == 1


def test_a_signal_ends_it_at_once_and_not_at_the_next_tick() -> None:
    async def scenario() -> int:
        clock = ManualClock()
        watcher = LiveSampler(SETTINGS, clock, seconds=None)
        watcher.stop_on_signals()
        ticks = asyncio.create_task(followed(watcher))
        await clock.turn(0.25)
        os.kill(os.getpid(), signal.SIGTERM)
        return len(await asyncio.wait_for(ticks, 5))

    assert asyncio.run(scenario()) == 3


def test_a_fault_at_a_tick_is_raised_and_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        watcher = LiveSampler(SETTINGS, clock, seconds=None)
        monkeypatch.setattr(watcher.sampler, "read", lambda _: 1 / 0)
        ticks = asyncio.create_task(followed(watcher))
        await clock.turn(1.0)
        await asyncio.wait_for(ticks, 5)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(scenario())


def test_a_root_without_a_single_source_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        ticks = asyncio.create_task(
            followed(LiveSampler(NodeSettings(runtime="none", proc_root=tmp_path), clock, seconds=None))
        )
        await clock.turn(1.0)
        await asyncio.wait_for(ticks, 5)

    with pytest.raises(CaricoError, match=f"nothing can be read below {tmp_path}; check --proc-root"):
        asyncio.run(scenario())
