"""The Container Runtime Interface, as far as `carico agent --runtime cri` asks for it: a list, and what happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from carico import __version__
from carico.errors import CaricoError
from carico.local.node.runtime import Happened, Made, Phase, Runtime, Sandbox, What
from carico.runtime.api import cri_pb2 as cri_pb
from carico.runtime.api.cri_pb2_grpc import RuntimeServiceServicer, add_RuntimeServiceServicer_to_server

EVENTS = {
    What.CREATED: cri_pb.CONTAINER_CREATED_EVENT,
    What.STARTED: cri_pb.CONTAINER_STARTED_EVENT,
    What.STOPPED: cri_pb.CONTAINER_STOPPED_EVENT,
    What.DELETED: cri_pb.CONTAINER_DELETED_EVENT,
}
STATES = {
    Phase.CREATED: cri_pb.CONTAINER_CREATED,
    Phase.RUNNING: cri_pb.CONTAINER_RUNNING,
    Phase.EXITED: cri_pb.CONTAINER_EXITED,
}


class CriServer:
    """Serves `runtime` on a unix socket that only its owner can use."""

    def __init__(self, runtime: Runtime, path: Path) -> None:
        self._runtime = runtime
        self._path = path
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.unlink(missing_ok=True)  # of a node that was killed
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

    async def Version(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return cri_pb.VersionResponse(
            version="0.1.0", runtime_name="carico", runtime_version=__version__, runtime_api_version="v1"
        )

    async def ListPodSandbox(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return cri_pb.ListPodSandboxResponse(items=[_sandbox(one) for one in self._runtime.sandboxes.values()])

    async def ListContainers(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return cri_pb.ListContainersResponse(containers=[_container(c) for c in self._runtime.containers.values()])

    async def GetContainerEvents(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ARG002
        events: asyncio.Queue[Happened] = asyncio.Queue()
        stop = self._runtime.listen(events.put_nowait)
        try:
            while True:
                yield _event(await events.get())
        finally:
            stop()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _sandbox(sandbox: Sandbox, kind: Any = cri_pb.PodSandbox) -> Any:
    """As an entry of a list, or as the status in an event: both have these fields."""
    return kind(
        id=sandbox.id,
        metadata=cri_pb.PodSandboxMetadata(name=sandbox.name, uid=sandbox.uid, namespace=sandbox.namespace),
        state=cri_pb.SANDBOX_READY if sandbox.ready else cri_pb.SANDBOX_NOTREADY,
        created_at=_nanoseconds(sandbox.created),
        labels=sandbox.labels,
        annotations=sandbox.annotations,
    )


def _container(made: Made) -> Any:
    return cri_pb.Container(
        id=made.id, pod_sandbox_id=made.sandbox, state=STATES[made.phase], created_at=_nanoseconds(made.created)
    )


def _event(happened: Happened) -> Any:
    event = cri_pb.ContainerEventResponse(
        container_id=happened.id, container_event_type=EVENTS[happened.what], created_at=_nanoseconds(happened.at)
    )
    if happened.sandbox is not None:
        event.pod_sandbox_status.CopyFrom(_sandbox(happened.sandbox, cri_pb.PodSandboxStatus))
    return event
