"""Pods from the Container Runtime Interface, for runtimes other than containerd (CRI-O above all).

Where the runtime streams container events (containerd since 1.7, CRI-O with `enable_pod_events`) they are followed, and
a listing every ten seconds mends what a full queue may have dropped. Where it does not, the listing alone comes every
second: pods are then counted up to a second late, and churn is seen after the fact.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from carico.clock import Clock
from carico.runtime.api import cri_pb2 as cri_pb
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceStub
from carico.runtime.channel import CALL_TIMEOUT, connected, hear
from carico.runtime.follow import Follower
from carico.runtime.pods import Listing, PodTable, Sandbox, is_workload


def cri(path: Path, table: PodTable, clock: Clock) -> Follower:
    @asynccontextmanager
    async def connect() -> AsyncIterator[CriConnection]:
        async with connected(path) as channel:
            yield CriConnection(channel, table, clock)

    return Follower("cri", path, connect, table, clock)


class CriConnection:
    relist_with_events = 10.0  # s
    relist_without_events = 1.0  # s

    def __init__(self, channel: grpc.aio.Channel, table: PodTable, clock: Clock) -> None:
        self.relist_every = self.relist_with_events
        self._runtime = RuntimeServiceStub(channel)
        self._table = table
        self._clock = clock
        self._listed_at = 0  # ns since the epoch

    def subscribe(self) -> AsyncGenerator[Any]:
        return self._hear_if_offered(hear(self._runtime.GetContainerEvents(cri_pb.GetEventsRequest())))

    async def _hear_if_offered(self, events: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
        try:
            async for event in events:
                yield event
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            self.relist_every = self.relist_without_events
            await asyncio.Event().wait()  # nothing will ever come

    async def relist(self) -> None:
        asked_at = int(self._clock.wall() * 1e9)
        sandboxes = await self._runtime.ListPodSandbox(cri_pb.ListPodSandboxRequest(), timeout=CALL_TIMEOUT)
        containers = await self._runtime.ListContainers(cri_pb.ListContainersRequest(), timeout=CALL_TIMEOUT)
        self._table.relisted(self._listing(sandboxes.items, containers.containers), self._clock.monotonic())
        self._listed_at = asked_at

    def _listing(self, sandboxes: Any, containers: Any) -> Listing:
        alive = [sandbox for sandbox in sandboxes if sandbox.state == cri_pb.SANDBOX_READY]
        alive += [container for container in containers if container.state == cri_pb.CONTAINER_RUNNING]
        now = self._clock.monotonic()
        since_epoch = self._clock.wall() - now
        return Listing(
            sandboxes={sandbox.id: sandbox_of(sandbox) for sandbox in sandboxes},
            containers={container.id: container.pod_sandbox_id for container in containers},
            running={one.id: min(one.created_at * 1e-9 - since_epoch, now) for one in alive},
        )

    async def handle(self, event: Any) -> None:
        # A runtime may send again what it kept while nobody listened; the listing knows better.
        if event.created_at < self._listed_at:
            return
        now, table, container = self._clock.monotonic(), self._table, event.container_id
        if event.HasField("pod_sandbox_status"):
            self._describe(container, event.pod_sandbox_status)
        match event.container_event_type:
            case cri_pb.CONTAINER_CREATED_EVENT:
                table.creating(container, now)
            case cri_pb.CONTAINER_STARTED_EVENT:
                table.started(container, now)
            case cri_pb.CONTAINER_STOPPED_EVENT:
                table.taken_down(container, now)  # no further event tells when that is done
            case cri_pb.CONTAINER_DELETED_EVENT:
                table.removed(container, now)

    def _describe(self, container: str, status: Any) -> None:
        if container == status.id:
            self._table.is_sandbox(container, sandbox_of(status))
        else:
            self._table.is_container(container, status.id)


def sandbox_of(sandbox: Any) -> Sandbox:
    """From a sandbox in a listing or its status in an event: both have these fields."""
    return Sandbox(sandbox.metadata.uid or sandbox.id, is_workload(sandbox.labels, sandbox.annotations))
