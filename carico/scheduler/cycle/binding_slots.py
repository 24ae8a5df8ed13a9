"""Limits the concurrent binding requests to the API server, and the pods that may wait for one.

A slot is held during a request (or a few retries of one in a row), never while a pod waits for anything else. No
scheduling cycle starts while as many pods hold or wait for a slot as there are slots: a scheduler that is far ahead of
its API server would reserve nodes by an outdated state of the cluster.
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
        self._announced = 0  # pods that were assigned a node and whose task has not started
        self._wanted = 0  # pods that hold a slot or wait for one

    @property
    def busy(self) -> bool:
        return self._announced + self._wanted > 0

    @property
    def has_room(self) -> bool:
        """Whether the next scheduling cycle may start."""
        return self._announced + self._wanted < self._count

    async def wait_for_room(self) -> None:
        while not self.has_room:
            self._changed.clear()
            await self._changed.wait()

    def announce(self) -> None:
        """A pod was assigned a node: it will need a slot as soon as its task runs."""
        self._announced += 1

    def arrive(self) -> None:
        """The task of an announced pod runs."""
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
    """The client for plugins: each request holds a slot, and only the leader's writes are sent."""

    def __init__(self, client: Sender, slots: Slots, may_bind: Callable[[], bool]) -> None:
        self._client, self._slots, self._may_bind = client, slots, may_bind

    async def call(self, method: str, path: str, body: bytes = b"", content_type: str = JSON) -> bytes:
        fence = None if method == "GET" else self._may_bind
        async with self._slots:
            return await self._client.call(method, path, body, content_type, fence=fence)
