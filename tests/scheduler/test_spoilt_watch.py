"""A whole scheduler whose API server sends objects with values of a wrong type."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carico.http.message import Page, Request
from carico.scheduler.http import routes
from carico.scheduler.process import Scheduler
from carico.settings import SchedulerSettings
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import AnyCluster
from harness.embedded.embedded_cluster import EmbeddedCluster
from harness.kube.faulty import FaultyServer

NODES, PATIENCE = 5, 90.0
BAD_POD = {b'"schedulerName":"poisoned"': b'"schedulerName":1234567890'}
BAD_NODE = {b'"unschedulable":true': b'"unschedulable":"ab"'}


class Stage:
    def __init__(self, cluster: Cluster | EmbeddedCluster, namespace: str, proxy: FaultyServer) -> None:
        self.cluster, self.namespace, self.proxy = cluster, namespace, proxy
        settings = SchedulerSettings(
            kubeconfig=proxy.kubeconfig, listen="127.0.0.1:0", debug_listen="127.0.0.1:0",
            grpc_listen="127.0.0.1:0", plaintext=True, validate=True,
            on_stale="requests", heartbeat=0.5,  # for which first reports are awaited
            first_backoff=0.2, last_backoff=0.5, leader_elect=False,
        )  # fmt: skip
        self.scheduler = Scheduler(settings)

    async def create(self, name: str, scheduler: str = "carico", **spec: Any) -> None:
        item = pod(name, ["x"], schedulerName=scheduler, **spec)
        await asyncio.to_thread(self.cluster.create, item, self.namespace)

    async def patch(self, path: str, body: Any) -> None:
        await asyncio.to_thread(self.cluster.api.patch, path, body)

    async def pod(self, name: str) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        return await asyncio.to_thread(self.cluster.api.get, path)

    async def node_of(self, name: str) -> str:
        found = ""
        async with asyncio.timeout(PATIENCE):
            while not found:
                found = (await self.pod(name))["spec"].get("nodeName", "")
                await asyncio.sleep(0.02)
        return found

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - what is waited for is in another process
                await asyncio.sleep(0.02)

    def undecodable(self, kind: str) -> float:
        return float(self.scheduler.parts.metrics.undecodable.labels(kind)._value.get())

    def node(self, name: str) -> Any:
        return self.scheduler.watches.nodes.store[name]


@asynccontextmanager
async def at_work(stage: Stage) -> AsyncIterator[None]:
    end = asyncio.Event()
    running = asyncio.create_task(stage.scheduler.run(end))
    try:
        await asyncio.wait_for(stage.scheduler.watches.wait_for_sync(), PATIENCE)
        yield
        assert not running.done()
        ready = routes.open_routes(stage.scheduler)["/readyz"].answer(Request("GET", {"verbose": ""}, b""))
        assert isinstance(ready, Page)
        assert ready.status == 200, ready.body
    finally:
        end.set()
        await running


Scenario = Callable[[Stage], Awaitable[None]]


@pytest.fixture
def play(any_cluster: AnyCluster, tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        cluster = any_cluster(NODES)

        async def whole() -> None:
            async with FaultyServer(cluster.kubeconfig, tmp_path) as proxy:
                stage = Stage(cluster, namespace, proxy)
                async with at_work(stage):
                    await scenario(stage)

        with cluster.namespace() as namespace:
            asyncio.run(whole())

    return run


def test_a_bound_pod_of_a_wrong_type_closes_its_node_until_it_can_be_read(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        stage.proxy.replace = BAD_POD
        await stage.create("ghost", "poisoned", nodeName="kwok-0001")
        await stage.until(lambda: "kwok-0001" in stage.scheduler.parts.snapshot.unknown_pods.values())
        assert stage.undecodable("Pod") >= 1
        await stage.create("there", nodeSelector={"kubernetes.io/hostname": "kwok-0001"})
        await stage.create("anywhere")
        assert await stage.node_of("anywhere") != "kwok-0001"
        queue = stage.scheduler.parts.queue
        await stage.until(lambda: any(q.info.pod.name == "there" and q.attempts for q in queue.pods()))
        assert "nodeName" not in (await stage.pod("there"))["spec"]
        stage.proxy.replace = {}
        await stage.patch(f"/api/v1/namespaces/{stage.namespace}/pods/ghost", {"metadata": {"labels": {"a": "b"}}})
        assert await stage.node_of("there") == "kwok-0001"
        assert stage.scheduler.parts.snapshot.unknown_pods == {}

    play(scenario)


def test_a_node_of_a_wrong_type_stays_as_it_was_and_the_others_are_followed(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        stage.proxy.replace = BAD_NODE
        try:
            await stage.patch("/api/v1/nodes/kwok-0002", {"spec": {"unschedulable": True}})
            await stage.until(lambda: stage.undecodable("Node"))
            await stage.patch("/api/v1/nodes/kwok-0003", {"metadata": {"labels": {"seen": "yes"}}})
            await stage.until(lambda: stage.node("kwok-0003").metadata.labels.get("seen") == "yes")
            assert not stage.node("kwok-0002").spec.unschedulable
            assert stage.scheduler.watches.nodes.lists == 1
        finally:
            await stage.patch("/api/v1/nodes/kwok-0002", {"spec": {"unschedulable": None}})
            await stage.patch("/api/v1/nodes/kwok-0003", {"metadata": {"labels": {"seen": None}}})

    play(scenario)


def test_a_scheduler_starts_with_objects_that_it_cannot_read(play: Callable[[Scenario], None]) -> None:
    async def scenario(stage: Stage) -> None:
        stage.proxy.replace = BAD_POD
        await stage.create("ghost", "poisoned", nodeName="kwok-0001")
        await stage.until(lambda: stage.undecodable("Pod"))
        pods = stage.scheduler.watches.pods
        await pods.refresh()  # a list has it in the same form
        assert stage.scheduler.parts.snapshot.unknown_pods == {
            (await stage.pod("ghost"))["metadata"]["uid"]: "kwok-0001"
        }
        await stage.create("other")
        assert await stage.node_of("other") != "kwok-0001"
        await asyncio.to_thread(
            stage.cluster.api.delete, f"/api/v1/namespaces/{stage.namespace}/pods/ghost?gracePeriodSeconds=0"
        )
        await stage.until(lambda: not stage.scheduler.parts.snapshot.unknown_pods)

    play(scenario)
