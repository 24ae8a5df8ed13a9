"""A namespace of a real or embedded cluster behind a proxy that breaks things on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from carico.clock import SystemClock
from carico.kube import calls
from carico.kube.client import Client
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, WatchedResource
from harness.kube.faulty import FaultyServer

CLOCK = SystemClock()
PATIENCE = 60.0  # s; on a busy machine


class Place:
    """A namespace of a cluster behind a faulty proxy."""

    def __init__(self, client: Client, proxy: FaultyServer, namespace: str) -> None:
        self.client, self.proxy, self.namespace = client, proxy, namespace
        self.changes: list[tuple[Pod | None, Pod | None]] = []
        self.reflector = Reflector(
            client,
            WatchedResource(calls.FOLLOW_PODS, Pod, namespace=namespace),
            lambda old, new: self.changes.append((old, new)),
        )

    async def pod(self, name: str) -> Pod:
        spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}
        body = msgspec.json.encode({"metadata": {"name": name}, "spec": spec})
        made = await self.client.call("POST", f"/api/v1/namespaces/{self.namespace}/pods", body)
        return msgspec.json.decode(made, type=Pod)

    async def delete(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        await self.client.call("DELETE", path, b'{"gracePeriodSeconds":0}')

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - what is waited for is in another process
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[Reflector[Pod]]:
        task = asyncio.create_task(self.reflector.run())
        try:
            await self.reflector.synced.wait()
            yield self.reflector
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


Scenario = Callable[[Place], Awaitable[None]]
