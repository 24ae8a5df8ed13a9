"""Pods from the Container Runtime Interface, for runtimes other than containerd (mainly CRI-O).

If the runtime streams container events (containerd since 1.7, CRI-O with `enable_pod_events`) they are used, and a
listing every ten seconds corrects what a full queue may have dropped. Otherwise there is only a listing every second:
pods are then counted up to a second late, and churn is detected after it happened.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/3386-kubelet-evented-pleg
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from carico.clock import Clock
from carico.runtime.api import cri_pb2 as cri_pb
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceStub
from carico.runtime.channel import CALL_TIMEOUT, connected, messages
from carico.runtime.list_watcher import ListWatcher
from carico.runtime.pod_cgroups import PodCgroups
from carico.runtime.pods import Member, PodListing, PodTable, Sandbox
from carico.runtime.traits import part, sandbox_from, specified_image, text


def cri(path: Path, table: PodTable, clock: Clock, cgroups: PodCgroups | None = None) -> ListWatcher:
    @asynccontextmanager
    async def connect() -> AsyncIterator[CriConnection]:
        async with connected(path) as channel:
            yield CriConnection(channel, table, clock, cgroups or PodCgroups())

    return ListWatcher("cri", path, connect, table, clock)


class CriConnection:
    relist_with_events = 10.0  # s
    relist_without_events = 1.0  # s

    def __init__(self, channel: grpc.aio.Channel, table: PodTable, clock: Clock, cgroups: PodCgroups) -> None:
        self.relist_every = self.relist_with_events
        self._runtime = RuntimeServiceStub(channel)
        self._table = table
        self._clock = clock
        self._cgroups = cgroups
        self._placed: dict[str, str | None] = {}  # sandbox → its pod's cgroup, once it was looked up
        self._listed_at = 0  # ns since the epoch

    def subscribe(self) -> AsyncGenerator[Any]:
        return self._events_if_supported(messages(self._runtime.GetContainerEvents(cri_pb.GetEventsRequest())))

    async def _events_if_supported(self, events: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
        try:
            async for event in events:
                yield event
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            self.relist_every = self.relist_without_events
            await asyncio.Event().wait()  # there will be no events: waits indefinitely

    async def relist(self) -> None:
        asked_at = int(self._clock.wall() * 1e9)
        sandboxes = await self._runtime.ListPodSandbox(cri_pb.ListPodSandboxRequest(), timeout=CALL_TIMEOUT)
        containers = await self._runtime.ListContainers(cri_pb.ListContainersRequest(), timeout=CALL_TIMEOUT)
        self._placed = {one.id: self._placed[one.id] for one in sandboxes.items if one.id in self._placed}
        self._table.replace_all(self._listing(sandboxes.items, containers.containers), self._clock.monotonic())
        self._listed_at = asked_at
        for sandbox in sandboxes.items:
            if sandbox.state == cri_pb.SANDBOX_READY:
                await self._place(sandbox)

    def _listing(self, sandboxes: Any, containers: Any) -> PodListing:
        alive = [sandbox for sandbox in sandboxes if sandbox.state == cri_pb.SANDBOX_READY]
        alive += [container for container in containers if container.state == cri_pb.CONTAINER_RUNNING]
        now = self._clock.monotonic()
        since_epoch = self._clock.wall() - now
        return PodListing(
            sandboxes={sandbox.id: self._sandbox(sandbox) for sandbox in sandboxes},
            containers={container.id: member_of(container) for container in containers},
            running={one.id: min(one.created_at * 1e-9 - since_epoch, now) for one in alive},
        )

    async def handle(self, event: Any) -> None:
        # A runtime may send events that it queued without a subscriber; the listing is newer.
        if event.created_at < self._listed_at:
            return
        now, table, container = self._clock.monotonic(), self._table, event.container_id
        if event.HasField("pod_sandbox_status"):
            self._describe(container, event)
        match event.container_event_type:
            case cri_pb.CONTAINER_CREATED_EVENT:
                table.creating(container, now)
            case cri_pb.CONTAINER_STARTED_EVENT:
                table.started(container, now)
                if container == event.pod_sandbox_status.id:
                    await self._place(event.pod_sandbox_status)
            case cri_pb.CONTAINER_STOPPED_EVENT:
                table.stopped(container, now)  # there is no further event when that is done
            case cri_pb.CONTAINER_DELETED_EVENT:
                table.removed(container, now)
                self._placed.pop(container, None)

    def _describe(self, container: str, event: Any) -> None:
        status = event.pod_sandbox_status
        if container == status.id:
            self._table.add_sandbox(container, self._sandbox(status))
            return
        # `image` may be an id of the runtime. Then the next listing provides the name.
        images = [one.image.user_specified_image for one in event.containers_statuses if one.id == container]
        self._table.add_container(container, status.id, *images)

    def _sandbox(self, sandbox: Any) -> Sandbox:
        ignored = self._table.settings.class_ignored_labels
        return sandbox_of(sandbox, ignored, self._placed.get(sandbox.id))

    async def _place(self, sandbox: Any) -> None:
        """Looks up the cgroup of a pod once: it is not in a listing, and it never changes."""
        if sandbox.id in self._placed:
            return
        request = cri_pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox.id, verbose=True)
        try:
            answer = await self._runtime.PodSandboxStatus(request, timeout=CALL_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED):
                raise
            self._placed[sandbox.id] = None  # it was removed already, or the runtime does not support it
            return
        parent, pid = cgroup_parent(dict(answer.info))
        self._placed[sandbox.id] = self._cgroups.find(sandbox.metadata.uid, parent, pid)
        if self._placed[sandbox.id] is not None:
            self._table.add_sandbox(sandbox.id, self._sandbox(sandbox))


def cgroup_parent(info: dict[str, str]) -> tuple[str, int]:
    """The sandbox's cgroup parent and its pid, from what containerd and CRI-O add to a verbose status.

    >>> cgroup_parent({"info": '{"pid": 7, "config": {"linux": {"cgroup_parent": "/kubepods/pod1"}}}'})
    ('/kubepods/pod1', 7)
    >>> spec = '{"runtimeSpec": {"annotations": {"io.kubernetes.cri-o.CgroupParent": "kubepods-pod1.slice"}}}'
    >>> cgroup_parent({"info": spec}), cgroup_parent({"info": "[]"}), cgroup_parent({})
    (('kubepods-pod1.slice', 0), ('', 0), ('', 0))
    """
    try:
        verbose = json.loads(info.get("info", "{}"))
    except ValueError:
        verbose = {}
    pid = verbose.get("pid") if isinstance(verbose, dict) else 0
    by_containerd = part(verbose, "config", "linux").get("cgroup_parent")
    by_crio = part(verbose, "runtimeSpec", "annotations").get("io.kubernetes.cri-o.CgroupParent")
    return text(by_containerd) or text(by_crio), pid if isinstance(pid, int) else 0


def sandbox_of(sandbox: Any, ignored: tuple[str, ...], cgroup: str | None) -> Sandbox:
    """Takes a sandbox of a listing or its status in an event: both have these fields."""
    return sandbox_from(
        uid=sandbox.metadata.uid or sandbox.id,
        namespace=sandbox.metadata.namespace,
        name=sandbox.metadata.name,
        labels=dict(sandbox.labels),
        annotations=dict(sandbox.annotations),
        cgroup=cgroup,
        ignored=ignored,
    )


def member_of(container: Any) -> Member:
    image = container.image
    return Member(container.pod_sandbox_id, specified_image(image.user_specified_image, image.image))
