"""Follows a runtime indefinitely: subscribe, then list, then handle events; when the stream breaks, start again.

The subscription comes first, so that nothing is lost between the listing and the first event. While a listing is in
progress no event is handled: an event older than the listing is corrected by those that follow it in the stream, a
newer one is correct. A server does not report when a subscription has become active, so a second listing follows soon
after the first; later ones correct errors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any, Protocol

import grpc.aio
from google.protobuf.message import DecodeError

from carico.backoff import doubled, spread
from carico.clock import Clock
from carico.errors import SourceError
from carico.runtime.channel import explain
from carico.runtime.pods import PodTable

log = logging.getLogger(__name__)

RELIST_SOON = 1.0  # s
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0  # s of back-off between two connection attempts
NOT_YET = "not connected yet"


class RuntimeConnection(Protocol):
    """One connection to a runtime."""

    relist_every: float  # s

    def subscribe(self) -> AsyncGenerator[Any]:
        """Starts the call immediately, so that it is in flight before a listing; yields the events."""
        ...

    async def relist(self) -> None: ...
    async def handle(self, event: Any) -> None: ...


class ListWatcher:
    """Keeps `table` up to date while `run` runs. `problem` is the reason why it may be out of date, or None."""

    def __init__(
        self,
        name: str,
        path: Path,
        connect: Callable[[], AbstractAsyncContextManager[RuntimeConnection]],
        table: PodTable,
        clock: Clock,
    ) -> None:
        self.name = name
        self.table = table
        self.problem: str | None = NOT_YET
        self.socket = path
        self._connect = connect
        self._clock = clock
        self._failures = 0  # in a row

    async def run(self) -> None:
        while True:
            try:
                async with self._connect() as connection:
                    await self._follow(connection)
                self._failed(f"{self.socket} ended the stream of events")
            except grpc.aio.AioRpcError as error:
                self._failed(explain(error, self.socket))
            except (SourceError, DecodeError) as error:
                self._failed(str(error))
            self._failures += 1
            await self._clock.sleep(spread(doubled(FIRST_PAUSE, LONGEST_PAUSE, self._failures)))

    async def _follow(self, connection: RuntimeConnection) -> None:
        async with aclosing(connection.subscribe()) as events:
            reading = asyncio.ensure_future(anext(events, None))
            listing_due = asyncio.ensure_future(self._clock.sleep(RELIST_SOON))
            try:
                await self._relist(connection)
                while True:
                    await asyncio.wait({reading, listing_due}, return_when=asyncio.FIRST_COMPLETED)
                    if listing_due.done():
                        await self._relist(connection)
                        listing_due = asyncio.ensure_future(self._clock.sleep(connection.relist_every))
                    if not reading.done():
                        continue
                    if (event := reading.result()) is None:
                        return
                    await connection.handle(event)
                    reading = asyncio.ensure_future(anext(events, None))
            finally:
                reading.cancel()
                listing_due.cancel()
                await asyncio.gather(reading, listing_due, return_exceptions=True)

    async def _relist(self, connection: RuntimeConnection) -> None:
        await connection.relist()
        if self.problem is not None:
            log.info("pods are counted by %s at %s", self.name, self.socket)
        self.problem, self._failures = None, 0

    def _failed(self, problem: str) -> None:
        if problem != self.problem:  # log it once, not at every attempt
            log.warning("pods cannot be counted by %s: %s; trying again", self.name, problem)
        self.problem = problem
