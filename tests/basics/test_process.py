"""The life of a process: what ends it, what its end waits for, and whose error it raises."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from carico.process import cancel, first_to_end, run_parts, run_until_signal


class Part:
    """Runs until it is cancelled, and then needs two iterations of the event loop to end."""

    def __init__(self) -> None:
        self.ended = False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.ended = True


async def fail() -> None:
    await asyncio.sleep(0)
    raise ValueError("this part")


def test_parts_run_until_they_are_stopped_and_have_ended_then() -> None:
    async def scenario() -> list[bool]:
        stop, parts = asyncio.Event(), [Part(), Part()]
        running = asyncio.create_task(run_parts(stop, [part.run() for part in parts]))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not running.done()
        stop.set()
        await running
        return [part.ended for part in parts]

    assert asyncio.run(scenario()) == [True, True]


def test_a_part_that_fails_stops_the_others_and_its_error_is_raised() -> None:
    async def scenario() -> bool:
        part = Part()
        with pytest.raises(ValueError, match="this part"):
            await run_parts(asyncio.Event(), [part.run(), fail()])
        return part.ended

    assert asyncio.run(scenario())


def test_a_part_that_ends_ends_all() -> None:
    async def scenario() -> bool:
        part = Part()
        await run_parts(asyncio.Event(), [part.run(), asyncio.sleep(0)])
        return part.ended

    assert asyncio.run(scenario())


def test_a_cancelled_process_leaves_no_task() -> None:
    async def scenario() -> set[asyncio.Task[None]]:
        waiting = asyncio.create_task(first_to_end(asyncio.Event(), [asyncio.create_task(Part().run())]))
        await asyncio.sleep(0)
        await cancel([waiting])
        for _ in range(3):
            await asyncio.sleep(0)
        return {task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == "Event.wait"}  # type: ignore[union-attr]

    assert asyncio.run(scenario()) == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process(number: signal.Signals) -> None:
    stopped = []

    async def run(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), number)
        await stop.wait()
        stopped.append(True)

    run_until_signal(run)
    assert stopped == [True]
