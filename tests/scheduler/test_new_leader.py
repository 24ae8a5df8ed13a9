"""A replica that takes the Lease schedules at once, whatever the agents' streams are up to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
from grpc import aio

from carico.clock import SystemClock
from carico.embedded.apiserver.server import ApiServer
from carico.kube import credentials
from carico.kube.binding import rfc3339
from carico.kube.client import Client
from carico.scheduler.process import Scheduler
from carico.scheduler.queue.unschedulable import Diagnosis
from carico.settings import SchedulerSettings
from carico.testing import make_pod
from carico.wire.report_server import METHOD
from carico.wire.v1 import capacity_pb2 as pb
from harness.cluster.ports import free_port
from harness.scheduler.binding_world import BindingWorld
from harness.wire.report_streams import running

PODS = "/api/v1/namespaces/default/pods"
CONTAINER = {"name": "c", "image": "x"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
SMALL_WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)]


async def until(holds: Callable[[], object]) -> None:
    """Within the test's time."""
    while not holds():  # noqa: ASYNC110  (what is waited for has no event)
        await asyncio.sleep(0.02)


async def stuck(scheduler: Scheduler) -> None:
    """Until an answer has waited for a while."""
    refused = scheduler.parts.metrics.reports.labels("refused")._value
    seen, since = refused.get(), perf_counter()
    while not seen or perf_counter() - since < 0.5:
        await asyncio.sleep(0.02)
        if refused.get() != seen:
            seen, since = refused.get(), perf_counter()


async def flood(call: Any) -> None:
    """Reports that are refused: each gets an answer, and none is read."""
    while True:
        await call.write(pb.NodeReport(node="n1").SerializeToString())


@running
async def test_an_agent_that_does_not_read_keeps_no_leader_from_scheduling(tmp_path: Path) -> None:
    clock, kubeconfig = SystemClock(), tmp_path / "kubeconfig"
    settings = SchedulerSettings(
        kubeconfig=kubeconfig, listen="127.0.0.1:0", debug_listen="127.0.0.1:0",
        grpc_listen=f"127.0.0.1:{free_port()}", plaintext=True,
        on_stale="requests", leader_elect_retry_period=0.1, heartbeat=0.5,  # for which first reports are awaited
    )  # fmt: skip
    async with ApiServer(clock) as api:
        api.kubeconfig(kubeconfig)
        client = Client(credentials.from_kubeconfig(kubeconfig))
        before = {
            "holderIdentity": "the leader before",
            "leaseDurationSeconds": 3600,
            "renewTime": rfc3339(clock.wall()),
        }
        lease = {"metadata": {"name": settings.leader_elect_resource_name, "namespace": "kube-system"}, "spec": before}
        await client.call("POST", LEASES, msgspec.json.encode(lease))
        room = {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}}
        await client.call("POST", "/api/v1/nodes", msgspec.json.encode({"metadata": {"name": "n1"}, "status": room}))
        scheduler, end = Scheduler(settings), asyncio.Event()
        running = asyncio.create_task(scheduler.run(end))
        async with aio.insecure_channel(settings.grpc_listen, options=SMALL_WINDOW) as channel:
            stream: Any = channel.stream_stream
            call = stream(METHOD)(wait_for_ready=True)
            flooding = asyncio.create_task(flood(call))
            await stuck(scheduler)
            await client.call("DELETE", f"{LEASES}/{settings.leader_elect_resource_name}")  # it gave the Lease back
            pod = {"metadata": {"name": "p"}, "spec": {"schedulerName": "carico", "containers": [CONTAINER]}}
            await client.call("POST", PODS, msgspec.json.encode(pod))
            await until(lambda: scheduler.binder.bound == 1)
            call.cancel()
            await asyncio.gather(flooding, return_exceptions=True)
        end.set()
        await running
        await client.close()


def test_before_it_decides_it_lists_pods_again_awaits_reports_and_tries_every_pod() -> None:
    async def scenario() -> None:
        world, done = BindingWorld({"a": 5.0}, heartbeat=7.0), []
        scheduler, now = world.scheduler, world.clock.monotonic()
        world.see(make_pod("waits"))
        queued = world.queue.pop(now)
        assert queued is not None
        world.queue.fail(queued, Diagnosis(frozenset({"X"})), now)

        async def refresh() -> None:
            done.append("listed")
            assert world.place("waits") == "waiting"

        async def schedule() -> None:
            done.append("decides")
            assert world.ledger.is_expected(now + 6.9)
            assert not world.ledger.is_expected(now + 7.0)
            assert world.place("waits") == "active"

        scheduler.watches.pods.refresh = refresh  # type: ignore[method-assign]
        scheduler._schedule = schedule  # type: ignore[method-assign]
        await scheduler._led()
        assert done == ["listed", "decides"]
        await world.stop()

    asyncio.run(scenario())
