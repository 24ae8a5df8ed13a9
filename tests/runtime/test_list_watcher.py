"""How a runtime is followed, with a runtime made of two queues and a clock that is turned by hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carico.errors import SourceError
from carico.runtime.list_watcher import LONGEST_PAUSE, RELIST_SOON, ListWatcher
from carico.runtime.pods import PodListing, PodTable
from carico.settings import RuntimeSettings
from carico.testing import ManualClock


class Runtime:
    """Records its calls. Put None into `events` to end the stream, an exception to break it."""

    relist_every = 300.0

    def __init__(self) -> None:
        self.said: list[str] = []
        self.events: asyncio.Queue[str | Exception | None] = asyncio.Queue()
        self.down: SourceError | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Runtime]:
        self.said.append("connect")
        if self.down is not None:
            raise self.down
        yield self

    def subscribe(self) -> AsyncGenerator[str]:
        self.said.append("subscribe")
        return self._hear()

    async def _hear(self) -> AsyncGenerator[str]:
        while (event := await self.events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield event

    async def relist(self) -> None:
        self.said.append("list")

    async def handle(self, event: str) -> None:
        self.said.append(event)


def play(script: Callable[[Runtime, ListWatcher, ManualClock], Awaitable[None]]) -> Runtime:
    """Runs a script beside a follower; the follower itself must never end."""

    async def both() -> Runtime:
        runtime, clock = Runtime(), ManualClock()
        table = PodTable(RuntimeSettings())
        follower = ListWatcher("test", Path("/run/test.sock"), runtime.connect, table, clock)
        following = asyncio.create_task(follower.run())
        await clock.turn(0)
        await script(runtime, follower, clock)
        assert not following.done()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        return runtime

    return asyncio.run(both())


def test_it_subscribes_before_it_lists_and_lists_again_soon() -> None:
    async def script(runtime: Runtime, follower: ListWatcher, clock: ManualClock) -> None:
        assert follower.problem is None
        runtime.events.put_nowait("event")
        await clock.turn(RELIST_SOON)
        await clock.turn(runtime.relist_every)

    assert play(script).said == ["connect", "subscribe", "list", "event", "list", "list"]


def test_events_that_never_pause_do_not_keep_it_from_listing() -> None:
    async def script(runtime: Runtime, follower: ListWatcher, clock: ManualClock) -> None:  # noqa: ARG001
        for _ in range(4):
            runtime.events.put_nowait("event")
            await clock.turn(RELIST_SOON / 2)

    assert play(script).said.count("list") == 2


@pytest.mark.parametrize("end", [None, SourceError("broken pipe")])
def test_a_stream_that_ends_is_opened_and_listed_again(end: SourceError | None) -> None:
    async def script(runtime: Runtime, follower: ListWatcher, clock: ManualClock) -> None:
        runtime.events.put_nowait(end)
        await clock.turn(0)
        assert follower.problem == ("broken pipe" if end else "/run/test.sock ended the stream of events")
        await clock.turn(1)
        assert follower.problem is None

    assert play(script).said == ["connect", "subscribe", "list"] * 2


def test_an_outage_is_said_once_and_tried_ever_more_slowly(caplog: pytest.LogCaptureFixture) -> None:
    async def script(runtime: Runtime, follower: ListWatcher, clock: ManualClock) -> None:
        runtime.down = SourceError("no process listens")
        runtime.events.put_nowait(None)
        await clock.turn(600)
        assert follower.problem == "no process listens"
        tries = runtime.said.count("connect")
        assert 600 / LONGEST_PAUSE <= tries <= 2 * 600 / LONGEST_PAUSE + 10
        runtime.down = None
        await clock.turn(LONGEST_PAUSE)
        assert follower.problem is None

    with caplog.at_level(logging.INFO):
        play(script)
    assert sum("no process listens" in record.message for record in caplog.records) == 1
    assert caplog.records[-1].message == "pods are counted by test at /run/test.sock"


def test_while_the_runtime_is_away_the_table_keeps_what_it_knew() -> None:
    async def script(runtime: Runtime, follower: ListWatcher, clock: ManualClock) -> None:
        follower.table.replace_all(PodListing({}, {}, {"box": 0.0}), 0.0)
        runtime.down = SourceError("away")
        runtime.events.put_nowait(None)
        before = follower.table.count(clock.monotonic())
        await clock.turn(5)
        assert follower.table.count(clock.monotonic()) == before

    play(script)
