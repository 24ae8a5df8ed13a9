"""The part of the Container Runtime Interface that `carico agent --runtime cri` uses: lists, events and pod usage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from carico import __version__
from carico.embedded.node.runtime import (
    FirstProcess,
    LocalSandbox,
    Runtime,
    RuntimeContainer,
    RuntimeEvent,
    RuntimeEventKind,
    SandboxPhase,
)
from carico.embedded.node.usage import PodUsage
from carico.errors import CaricoError
from carico.runtime.api import cri_pb2 as cri_pb
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceServicer, add_RuntimeServiceServicer_to_server

EVENTS = {
    RuntimeEventKind.CREATED: cri_pb.CONTAINER_CREATED_EVENT,
    RuntimeEventKind.STARTED: cri_pb.CONTAINER_STARTED_EVENT,
    RuntimeEventKind.STOPPED: cri_pb.CONTAINER_STOPPED_EVENT,
    RuntimeEventKind.DELETED: cri_pb.CONTAINER_DELETED_EVENT,
}
STATES = {
    SandboxPhase.CREATED: cri_pb.CONTAINER_CREATED,
    SandboxPhase.RUNNING: cri_pb.CONTAINER_RUNNING,
    SandboxPhase.EXITED: cri_pb.CONTAINER_EXITED,
}


class CriServer:
    """Serves `runtime` on a unix socket that only its owner can use."""

    def __init__(self, runtime: Runtime, path: Path) -> None:
        self._runtime = runtime
        self._path = path
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.unlink(missing_ok=True)  # left by a node process that was killed
        self._server = grpc.aio.server()
        add_RuntimeServiceServicer_to_server(_Service(self._runtime), self._server)
        try:
            self._server.add_insecure_port(f"unix:{self._path}")
            await self._server.start()
        except RuntimeError as error:
            raise CaricoError(f"cannot listen on {self._path}: {error}; choose another --cri-socket") from error
        self._path.chmod(0o600)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)
        self._path.unlink(missing_ok=True)


class _Service(RuntimeServiceServicer):  # type: ignore[misc]
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._usage: dict[str, PodUsage] = {}  # by sandbox
        self._looking = asyncio.Lock()

    async def Version(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return cri_pb.VersionResponse(
            version="0.1.0", runtime_name="carico", runtime_version=__version__, runtime_api_version="v1"
        )

    async def ListPodSandbox(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return cri_pb.ListPodSandboxResponse(items=[_sandbox(one) for one in self._runtime.sandboxes.values()])

    async def PodSandboxStatus(self, request: Any, context: Any) -> Any:
        if (sandbox := self._runtime.sandboxes.get(request.pod_sandbox_id)) is not None:
            return cri_pb.PodSandboxStatusResponse(status=_sandbox(sandbox, cri_pb.PodSandboxStatus))
        return await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no sandbox {request.pod_sandbox_id}")

    async def ListContainers(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return cri_pb.ListContainersResponse(containers=[_container(c) for c in self._runtime.containers.values()])

    async def ListPodSandboxStats(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        async with self._looking:  # PodUsage is not safe for concurrent use
            stats = await asyncio.to_thread(self._stats, *self._running())
        return cri_pb.ListPodSandboxStatsResponse(stats=stats)

    def _running(self) -> tuple[list[LocalSandbox], dict[str, list[FirstProcess]]]:
        """The pods, and by sandbox the processes of their running containers."""
        sandboxes = [one for one in self._runtime.sandboxes.values() if one.ready]
        processes: dict[str, list[FirstProcess]] = {one.id: [] for one in sandboxes}
        for made in self._runtime.containers.values():
            if made.process is not None and made.sandbox in processes:
                processes[made.sandbox].append(made.process)
        return sandboxes, processes

    def _stats(self, sandboxes: list[LocalSandbox], processes: dict[str, list[FirstProcess]]) -> list[Any]:
        self._usage = {one.id: self._usage.get(one.id) or PodUsage() for one in sandboxes}
        return [_pod_stats(one, self._usage[one.id], processes[one.id]) for one in sandboxes]

    async def GetContainerEvents(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ARG002
        events: asyncio.Queue[RuntimeEvent] = asyncio.Queue()
        stop = self._runtime.listen(events.put_nowait)
        try:
            while True:
                yield _event(await events.get())
        finally:
            stop()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _sandbox(sandbox: LocalSandbox, kind: Any = cri_pb.PodSandbox) -> Any:
    """As an entry of a list, or as the status in an event: both have these fields."""
    return kind(
        id=sandbox.id,
        metadata=_metadata(sandbox),
        state=cri_pb.SANDBOX_READY if sandbox.ready else cri_pb.SANDBOX_NOTREADY,
        created_at=_nanoseconds(sandbox.created),
        labels=sandbox.labels,
        annotations=sandbox.annotations,
    )


def _metadata(sandbox: LocalSandbox) -> Any:
    return cri_pb.PodSandboxMetadata(name=sandbox.name, uid=sandbox.uid, namespace=sandbox.namespace)


def _container(made: RuntimeContainer) -> Any:
    return cri_pb.Container(
        id=made.id,
        pod_sandbox_id=made.sandbox,
        image=cri_pb.ImageSpec(image=made.image, user_specified_image=made.image),
        state=STATES[made.phase],
        created_at=_nanoseconds(made.created),
    )


def _pod_stats(sandbox: LocalSandbox, account: PodUsage, processes: list[FirstProcess]) -> Any:
    usage = account.look([process.pid for process in processes])
    now = time.time_ns()
    limits = [process.memory_limit for process in processes]
    limit = sum([one or 0 for one in limits]) if limits and all(limits) else 0
    return cri_pb.PodSandboxStats(
        attributes=cri_pb.PodSandboxAttributes(id=sandbox.id, metadata=_metadata(sandbox)),
        linux=cri_pb.LinuxPodSandboxStats(
            cpu=cri_pb.CpuUsage(
                timestamp=now,
                usage_core_nano_seconds=cri_pb.UInt64Value(value=_nanoseconds(usage.cpu)),
                psi=cri_pb.PsiStats(Some=cri_pb.PsiData(Total=_nanoseconds(usage.waited))),
            ),
            memory=cri_pb.MemoryUsage(
                timestamp=now,
                working_set_bytes=cri_pb.UInt64Value(value=usage.memory),
                available_bytes=cri_pb.UInt64Value(value=max(0, limit - usage.memory)),
            ),
            containers=[cri_pb.ContainerStats(swap=cri_pb.SwapUsage(swap_usage_bytes={"value": usage.swap}))],
        ),
    )


def _event(happened: RuntimeEvent) -> Any:
    event = cri_pb.ContainerEventResponse(
        container_id=happened.id, container_event_type=EVENTS[happened.what], created_at=_nanoseconds(happened.at)
    )
    if happened.sandbox is not None:
        event.pod_sandbox_status.CopyFrom(_sandbox(happened.sandbox, cri_pb.PodSandboxStatus))
    if happened.image:
        image_spec = cri_pb.ImageSpec(image=happened.image, user_specified_image=happened.image)
        event.containers_statuses.append(cri_pb.ContainerStatus(id=happened.id, image=image_spec))
    return event
