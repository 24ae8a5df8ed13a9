"""containerd's own services with responses that a test sets, on a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from carico.runtime.api import containerd_containers_pb2 as containers_pb
from carico.runtime.api import containerd_containers_pb2_grpc as containers_grpc
from carico.runtime.api import containerd_subscribe_pb2_grpc as subscribe_grpc
from carico.runtime.api import containerd_task_pb2 as task_pb
from carico.runtime.api import containerd_tasks_pb2 as tasks_pb
from carico.runtime.api import containerd_tasks_pb2_grpc as tasks_grpc
from carico.runtime.api import containerd_types_pb2 as types_pb
from carico.runtime.containerd import KIND, NAMESPACE, SANDBOX_JSON


def sandbox(uid: str, stored: bytes | None = None) -> Any:
    container = containers_pb.Container(id=f"box-{uid}", labels={KIND: "sandbox"})
    metadata = {"Version": "v1", "Metadata": {"Config": {"metadata": {"uid": uid}}}}
    container.extensions[SANDBOX_JSON].value = json.dumps(metadata).encode() if stored is None else stored
    return container


class FakeContainerd(subscribe_grpc.EventsServicer, containers_grpc.ContainersServicer, tasks_grpc.TasksServicer):  # type: ignore[misc]
    def __init__(self, *running: Any) -> None:
        self.running = {container.id: container for container in running}
        self.events: asyncio.Queue[Any] = asyncio.Queue()

    def say(self, topic: str, event: Any, namespace: str = NAMESPACE) -> None:
        envelope = types_pb.Envelope(topic=topic, namespace=namespace)
        envelope.event.value = event if isinstance(event, bytes) else event.SerializeToString()
        self.events.put_nowait(envelope)

    async def Subscribe(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ARG002
        while True:
            yield await self.events.get()

    async def List(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        if isinstance(request, tasks_pb.ListTasksRequest):
            tasks = [task_pb.Process(id=id, status=task_pb.RUNNING) for id in self.running]
            return tasks_pb.ListTasksResponse(tasks=tasks)
        return containers_pb.ListContainersResponse(containers=self.running.values())

    async def Get(self, request: Any, context: Any) -> Any:
        if request.id not in self.running:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
        return containers_pb.GetContainerResponse(container=self.running[request.id])

    @asynccontextmanager
    async def on(self, path: Path) -> AsyncIterator[None]:
        server = grpc.aio.server()
        subscribe_grpc.add_EventsServicer_to_server(self, server)
        containers_grpc.add_ContainersServicer_to_server(self, server)
        tasks_grpc.add_TasksServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        yield
        await server.stop(grace=None)
