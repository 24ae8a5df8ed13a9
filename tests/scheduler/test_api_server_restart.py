"""kube-apiserver itself is killed while hundreds of pods are being bound, and started again."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from carico.kube import credentials
from carico.kube.client import Client
from carico.scheduler.cycle.decision_log import load, replay
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_scale
from harness.cluster.ports import free_port
from harness.scheduler.fleet import Fleet, SchedulerProcess

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_scale]

NODES, PODS, CAPACITY = 10, 400, 60.0
BEFORE = PODS // 5  # pods that are bound when the API server dies
PATIENCE = 120.0  # s; an API server takes up to 30 s to come back on a busy machine
# The rate limit makes the bindings last longer than the blink of an eye, so that the kill comes in their midst.
SLOWLY = ("--qps", "60", "--burst", "20")
OPEN = ("--startup-limit", "1000", "--startup-limit-idle", "1000", "--validate")
# This leader outlives the absence …
LONG = ("--leader-elect-lease-duration=100s", "--leader-elect-renew-deadline=90s")
# … and this one must end.
SHORT = (
    *("--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s"),
    "--leader-elect-retry-period=500ms",
)


class Stage:
    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.ports = [free_port(), free_port()]
        self.started: list[SchedulerProcess] = []

    def scheduler(self, number: int, *flags: str) -> SchedulerProcess:
        lease = ("--leader-elect-resource-namespace", self.namespace, "--identity", f"s{len(self.started)}")
        process = SchedulerProcess(self.cluster.kubeconfig, self.ports[number], *OPEN, *lease, *flags)
        self.started.append(process)
        return process

    def create(self) -> None:
        pods = (pod(f"p-{i}", ["x"], schedulerName="carico") for i in range(PODS))
        self.cluster.api.post_all(f"/api/v1/namespaces/{self.namespace}/pods", pods)

    def events(self) -> list[str]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        return [e["regarding"]["name"] for e in self.cluster.api.get(path)["items"] if e["reason"] == "Scheduled"]


def page(process: SchedulerProcess, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{process.page_port}{path}", timeout=30) as answer:
        return bytes(answer.read())


def ledger(process: SchedulerProcess) -> dict[str, Any]:
    """What must be the same in any two replicas: not the ages."""
    rows = json.loads(page(process, "/debug/ledger"))["nodes"]
    return {
        node: [row[key] for key in ("capacity", "reserved", "free", "pods", "counted")] for node, row in rows.items()
    }


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A cluster of its own: other tests must not lose their API server."""
    with Cluster(NODES) as cluster, cluster.namespace() as namespace:
        made = Stage(cluster, namespace)
        try:
            yield made
        finally:
            for process in made.started:
                process.stop(signal.SIGKILL)


def restart_api_server(cluster: Cluster, meanwhile: Callable[[], object]) -> None:
    with cluster.without("kube-apiserver"):
        meanwhile()
    cluster.wait_for("the API server", lambda: _ready(cluster), PATIENCE)


def _ready(cluster: Cluster) -> bool:
    try:
        return cluster.api.is_ready()
    except OSError:
        return False


async def play(stage: Stage, flags: tuple[str, ...], *, ends: bool) -> None:
    client = Client(credentials.from_kubeconfig(stage.cluster.kubeconfig))
    nodes = {f"kwok-{i:04d}": CAPACITY for i in range(NODES)}
    fleet = Fleet(client, nodes, [f"127.0.0.1:{port}" for port in stage.ports], stage.namespace, lag=1.0)
    async with fleet.at_work():
        await asyncio.to_thread(stage.create)  # first: on a busy machine this takes longer than all the bindings
        leader = await asyncio.to_thread(stage.scheduler, 0, *SLOWLY, *flags)
        await fleet.until(BEFORE)
        at_kill = fleet.bound
        assert BEFORE <= at_kill < PODS, "the kill must come in the midst of the bindings"
        lost = partial(leader.wait_for, "the lease was lost", PATIENCE) if ends else bool
        await asyncio.to_thread(restart_api_server, stage.cluster, lost)
        if ends:
            leader = await asyncio.to_thread(stage.scheduler, 0, *LONG)
        await fleet.until(PODS, PATIENCE)
        assert fleet.bound == PODS
        assert all(len(found) == 1 for found in fleet.bound_to.values())
        fresh = await asyncio.to_thread(stage.scheduler, 1, *LONG)
        await _same(leader, fresh)
        assert replay(load(await asyncio.to_thread(page, leader, "/debug/decisions"))) == []
        if not ends:  # no Event is lost either; one that ends takes those with it that it could not send
            async with asyncio.timeout(PATIENCE):
                while len(await asyncio.to_thread(stage.events)) < PODS:  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
            assert len(set(stage.events())) == len(stage.events()) == PODS
        print(f"{at_kill} of {PODS} pods were bound when the API server was killed")
    await client.close()


async def _same(leader: SchedulerProcess, fresh: SchedulerProcess) -> None:
    """The ledger that lived through it equals one built from scratch, once the last report has reached both."""
    have, built = {}, {}
    for _ in range(300):
        have, built = await asyncio.to_thread(ledger, leader), await asyncio.to_thread(ledger, fresh)
        counted = sum(row[4] for row in built.values())
        if have == built and counted == PODS:
            return
        await asyncio.sleep(0.1)
    assert have == built
    raise AssertionError("not every pod was counted")


@pytest.mark.timeout(300)
def test_a_leader_that_lives_through_it(stage: Stage) -> None:
    asyncio.run(play(stage, LONG, ends=False))


@pytest.mark.timeout(300)
def test_a_leader_whose_lease_ran_out_meanwhile_and_the_one_after_it(stage: Stage) -> None:
    asyncio.run(play(stage, SHORT, ends=True))
