"""Pods from containerd's API (1.6 to 2.x): its events arrive before the resource spike of the pod.

Events contain ids only, so a new container is looked up. Its labels show whether it is a sandbox; the pod, and whether
it is static, is in the JSON that the CRI plugin stores with it. Exec probes inside a container end with an exit event
too; its id is not the container's.

Not supported: sandboxes of a runtime without a sandbox container (`sandboxer = "shim"`); the CRI source lists them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from carico.clock import Clock
from carico.runtime.api import containerd_containers_pb2 as containers_pb
from carico.runtime.api import containerd_events_pb2 as events_pb
from carico.runtime.api import containerd_subscribe_pb2 as subscribe_pb
from carico.runtime.api import containerd_task_pb2 as task_pb
from carico.runtime.api import containerd_tasks_pb2 as tasks_pb
from carico.runtime.api.containerd_containers_pb2_grpc import ContainersStub
from carico.runtime.api.containerd_subscribe_pb2_grpc import EventsStub
from carico.runtime.api.containerd_tasks_pb2_grpc import TasksStub
from carico.runtime.channel import CALL_TIMEOUT, connected, messages
from carico.runtime.list_watcher import ListWatcher
from carico.runtime.pod_cgroups import PodCgroups
from carico.runtime.pods import Member, PodListing, PodTable, Sandbox
from carico.runtime.traits import part, sandbox_from, specified_image, text, texts

NAMESPACE = "k8s.io"  # of the CRI plugin
METADATA = (("containerd-namespace", NAMESPACE),)
KIND = "io.cri-containerd.kind"
SANDBOX_JSON = "io.cri-containerd.sandbox.metadata"
CONTAINER_JSON = "io.cri-containerd.container.metadata"
UID_LABEL = "io.kubernetes.pod.uid"
NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
ALIVE = (task_pb.RUNNING, task_pb.PAUSED, task_pb.PAUSING)
PAYLOADS = {
    "/containers/create": events_pb.ContainerCreate,
    "/containers/delete": events_pb.ContainerDelete,
    "/tasks/start": events_pb.TaskStart,
    "/tasks/exit": events_pb.TaskExit,
    "/tasks/delete": events_pb.TaskDelete,
}
# Filtered by containerd, so that the many events of images, snapshots and probes do not wake up the agent.
FILTERS = [f'namespace=="{NAMESPACE}",topic=="{topic}"' for topic in PAYLOADS]


def containerd(path: Path, table: PodTable, clock: Clock, cgroups: PodCgroups | None = None) -> ListWatcher:
    @asynccontextmanager
    async def connect() -> AsyncIterator[ContainerdConnection]:
        async with connected(path) as channel:
            yield ContainerdConnection(channel, table, clock, cgroups or PodCgroups())

    return ListWatcher("containerd", path, connect, table, clock)


class ContainerdConnection:
    relist_every = 300.0

    def __init__(self, channel: grpc.aio.Channel, table: PodTable, clock: Clock, cgroups: PodCgroups) -> None:
        self._events = EventsStub(channel)
        self._containers = ContainersStub(channel)
        self._tasks = TasksStub(channel)
        self._table = table
        self._clock = clock
        self._cgroups = cgroups
        self._unplaced: dict[str, Sandbox] = {}  # id → sandbox whose cgroup is only known once its process runs

    def subscribe(self) -> AsyncGenerator[Any]:
        return messages(self._events.Subscribe(subscribe_pb.SubscribeRequest(filters=FILTERS), metadata=METADATA))

    async def relist(self) -> None:
        request = containers_pb.ListContainersRequest()
        containers = await self._containers.List(request, metadata=METADATA, timeout=CALL_TIMEOUT)
        tasks = await self._tasks.List(tasks_pb.ListTasksRequest(), metadata=METADATA, timeout=CALL_TIMEOUT)
        running = {task.id: task.pid for task in tasks.tasks if task.status in ALIVE}
        self._table.replace_all(self._listing(containers.containers, running), self._clock.monotonic())

    def _listing(self, containers: Iterable[Any], running: dict[str, int]) -> PodListing:
        listing = PodListing(sandboxes := {}, members := {}, starts := {})
        self._unplaced = {}
        since_epoch = self._clock.wall() - self._clock.monotonic()
        for container in containers:
            if (sandbox := self._sandbox(container, running.get(container.id, 0))) is not None:
                sandboxes[container.id] = sandbox
            elif (member := member_of(container)) is not None:
                members[container.id] = member
            if container.id in running:  # created and started in the same second: Kubernetes starts none twice
                created = container.created_at.seconds + container.created_at.nanos * 1e-9
                starts[container.id] = min(created - since_epoch, self._clock.monotonic())
        return listing

    async def handle(self, envelope: Any) -> None:
        payload = PAYLOADS.get(envelope.topic)
        if payload is None or envelope.namespace != NAMESPACE:
            return
        event = payload.FromString(envelope.event.value)
        now = self._clock.monotonic()
        match envelope.topic:
            case "/containers/create":
                self._table.creating(event.id, now)
                await self._fetch(event.id)
            case "/containers/delete":
                self._unplaced.pop(event.id, None)
                self._table.removed(event.id, now)
            case "/tasks/start":
                self._place(event.container_id, event.pid)
                self._table.started(event.container_id, now)
            case "/tasks/exit" if event.id == event.container_id:
                self._table.exited(event.container_id, now)
            case "/tasks/delete" if event.id in ("", event.container_id):
                self._table.stopped(event.container_id, now)

    async def _fetch(self, container_id: str) -> None:
        request = containers_pb.GetContainerRequest(id=container_id)
        try:
            answer = await self._containers.Get(request, metadata=METADATA, timeout=CALL_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:  # not found: it was removed already
                raise
            return
        if (sandbox := self._sandbox(answer.container)) is not None:
            self._table.add_sandbox(container_id, sandbox)
        elif (member := member_of(answer.container)) is not None:
            self._table.add_container(container_id, *member)

    def _sandbox(self, container: Any, pid: int = 0) -> Sandbox | None:
        """The pod of a sandbox container; None where it is another container."""
        if container.labels.get(KIND) != "sandbox":
            return None
        config = part(_stored(container, SANDBOX_JSON), "Config")
        sandbox = sandbox_of(container, config, self._table.settings.class_ignored_labels)
        parent = text(part(config, "linux").get("cgroup_parent"))
        cgroup = self._cgroups.find(sandbox.uid, parent, pid)
        if cgroup is None and not pid:
            self._unplaced[container.id] = sandbox
        return sandbox._replace(cgroup=cgroup)

    def _place(self, container_id: str, pid: int) -> None:
        sandbox = self._unplaced.pop(container_id, None)
        if sandbox is not None and (cgroup := self._cgroups.find(sandbox.uid, "", pid)) is not None:
            self._table.add_sandbox(container_id, sandbox._replace(cgroup=cgroup))


def sandbox_of(container: Any, config: dict[str, Any], ignored: tuple[str, ...]) -> Sandbox:
    meta = part(config, "metadata")
    # The container's labels include those of the pause image.
    labels = texts(config.get("labels")) or dict(container.labels)
    return sandbox_from(
        uid=text(meta.get("uid")) or labels.get(UID_LABEL) or container.id,
        namespace=text(meta.get("namespace")) or labels.get(NAMESPACE_LABEL, ""),
        name=text(meta.get("name")),
        labels=labels,
        annotations=texts(config.get("annotations")),
        cgroup=None,
        ignored=ignored,
    )


def member_of(container: Any) -> Member | None:
    """A container of a pod; None if it does not belong to a pod."""
    if container.labels.get(KIND) != "container":
        return None
    stored = _stored(container, CONTAINER_JSON)
    sandbox_id = stored.get("SandboxID")
    image = part(stored, "Config", "image")
    specified = specified_image(text(image.get("user_specified_image")), text(image.get("image")))
    return Member(sandbox_id, specified) if isinstance(sandbox_id, str) else None


def _stored(container: Any, key: str) -> dict[str, Any]:
    """What the CRI plugin stores with a container, in {"Version": "v1", "Metadata": {…}}; {} where unreadable."""
    if key not in container.extensions:
        return {}
    try:
        stored = json.loads(container.extensions[key].value)
    except ValueError:
        return {}
    return part(stored, "Metadata")
