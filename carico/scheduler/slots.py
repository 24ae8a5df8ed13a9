"""How many requests for bindings are at the API server at once, and how many decided pods may queue up for that.

A slot is held around a request (or around a few tries of one in a row), never while a pod waits for anything else.
Decisions stop while as many pods hold or want a slot as there are: a scheduler that is far ahead of its API server has
promised nodes by an old view of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from carico.kube.client import JSON, Fence


class Slots:
    """`async with slots:` holds one."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = asyncio.Semaphore(count)
        self._changed = asyncio.Event()
        self._announced = 0  # pods that were decided on and have not taken their first step
        self._wanted = 0  # pods that hold a slot or wait for one

    @property
    def busy(self) -> bool:
        return self._announced + self._wanted > 0

    @property
    def has_room(self) -> bool:
        """Whether one more pod may be decided on."""
        return self._announced + self._wanted < self._count

    async def wait_for_room(self) -> None:
        while not self.has_room:
            self._changed.clear()
            await self._changed.wait()

    def announce(self) -> None:
        """A pod was decided on: it will want a slot as soon as its task runs."""
        self._announced += 1

    def arrive(self) -> None:
        """Its task runs."""
        self._announced -= 1
        self._changed.set()

    async def __aenter__(self) -> None:
        self._wanted += 1
        try:
            await self._free.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._free.release()
        self._leave()

    def _leave(self) -> None:
        self._wanted -= 1
        self._changed.set()


class Sender(Protocol):
    """The part of kube/client.py that plugins use."""

    async def call(
        self, method: str, path: str, body: bytes = ..., content_type: str = ..., *, fence: Fence | None = ...
    ) -> bytes: ...


class PluginClient:
    """The client that plugins get: each request holds a slot, and only the leader's writes are sent."""

    def __init__(self, client: Sender, slots: Slots, may_bind: Callable[[], bool]) -> None:
        self._client, self._slots, self._may_bind = client, slots, may_bind

    async def call(self, method: str, path: str, body: bytes = b"", content_type: str = JSON) -> bytes:
        fence = None if method == "GET" else self._may_bind
        async with self._slots:
            return await self._client.call(method, path, body, content_type, fence=fence)
