"""The runaway train: a burst meets nodes whose telemetry is five seconds old.

Every node reports what it could take five seconds ago. A scheduler that relies on that alone puts pod after pod on the
node that looked empty; one that reserves room until the node itself counts the pod does not.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from carico.kube import credentials
from carico.kube.client import Client
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import AnyCluster
from harness.cluster.ports import free_port
from harness.embedded.embedded_cluster import EmbeddedCluster
from harness.scheduler.fleet import Fleet, SchedulerProcess

pytestmark = pytest.mark.slow

NODES, PODS, CAPACITY, LAG = 20, 500, 10, 5.0
ROOM = NODES * CAPACITY
# Short, so that a new leader comes within the test's time; long enough for a leader on a machine that stalls.
QUICK = (
    *("--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s"),
    "--leader-elect-retry-period=500ms",
)
PATIENT = ("--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s")


class Stage:
    def __init__(self, cluster: Cluster | EmbeddedCluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.ports = [free_port(), free_port()]
        self.started: list[SchedulerProcess] = []

    def scheduler(self, number: int = 0, *flags: str) -> SchedulerProcess:
        lease = (
            f"--leader-elect-resource-namespace={self.namespace}",
            "--leader-elect-resource-name=carico",
            f"--identity=s{len(self.started)}",
        )
        process = SchedulerProcess(self.cluster.kubeconfig, self.ports[number], "--validate", *lease, *QUICK, *flags)
        self.started.append(process)
        return process

    def burst(self, scheduler: str = "carico") -> None:
        pods = (pod(f"p-{i}", ["x"], schedulerName=scheduler) for i in range(PODS))
        self.cluster.api.post_all(f"/api/v1/namespaces/{self.namespace}/pods", pods)

    def burst_of_classes(self) -> None:
        """Every fifth pod needs ten times as much as the others; neither class has been measured before."""
        pods = []
        for i in range(PODS):
            made = pod(f"p-{i}", ["x"], schedulerName="carico")
            made["metadata"]["labels"] = {"app": "light" if i % 5 else "heavy"}
            pods.append(made)
        self.cluster.api.post_all(f"/api/v1/namespaces/{self.namespace}/pods", pods)

    def fleet(self, client: Client, **more: Any) -> Fleet:
        nodes = {f"kwok-{i:04d}": float(CAPACITY) for i in range(NODES)}
        return Fleet(client, nodes, [f"127.0.0.1:{port}" for port in self.ports], self.namespace, LAG, **more)


@pytest.fixture
def stage(any_cluster: AnyCluster) -> Iterator[Stage]:
    cluster = any_cluster(NODES)
    with cluster.namespace() as namespace, _ending(Stage(cluster, namespace)) as made:
        yield made
    _wait_until_empty(cluster)


@contextmanager
def _ending(stage: Stage) -> Iterator[Stage]:
    try:
        yield stage
    finally:
        for process in stage.started:
            process.stop(signal.SIGKILL)


def _wait_until_empty(cluster: Cluster | EmbeddedCluster) -> None:
    """The next test counts the same nodes' pods."""
    deadline = time.monotonic() + 120
    while cluster.api.get("/api/v1/pods?limit=1&labelSelector=app")["items"] and time.monotonic() < deadline:
        time.sleep(0.5)


def play(stage: Stage, act: Callable[[Fleet], object], scheduler: str = "carico") -> Fleet:
    """A burst with the fleet at work; `act` runs once a third of the room is taken."""

    async def scenario() -> Fleet:
        client = Client(credentials.from_kubeconfig(stage.cluster.kubeconfig))
        fleet = stage.fleet(client)
        async with fleet.at_work():
            await asyncio.to_thread(stage.burst, scheduler)
            await fleet.until(ROOM // 3)
            await asyncio.to_thread(act, fleet)
            await fleet.until(ROOM)
            await asyncio.sleep(LAG + 3)  # now every report has counted every pod: an overload would show here
        await client.close()
        return fleet

    return asyncio.run(scenario())


COSTS = {"light": (0.2, 0.1e9), "heavy": (2.0, 1e9)}  # 400 and 100 pods need 280 cores; the nodes have 200
OLDER = frozenset(f"kwok-{i:04d}" for i in range(0, NODES, 4))


def play_classes(
    stage: Stage, act: Callable[[Fleet], object], older: Collection[str] = (), *, enough: int = 400
) -> Fleet:
    """A burst of two classes on nodes that report room; `act` runs when the first of each have been measured."""

    async def scenario() -> Fleet:
        client = Client(credentials.from_kubeconfig(stage.cluster.kubeconfig))
        fleet = stage.fleet(client, costs=COSTS, older=older)
        async with fleet.at_work():
            await asyncio.to_thread(stage.burst_of_classes)
            await fleet.until(3 * NODES)
            await asyncio.to_thread(act, fleet)
            await fleet.until(enough, full=older)
            await asyncio.sleep(LAG + 3)  # now every report has counted every pod: an overload would show here
        await client.close()
        return fleet

    return asyncio.run(scenario())


def test_no_resource_is_overloaded_by_a_burst_of_two_classes(stage: Stage) -> None:
    stage.scheduler(0, *PATIENT)
    fleet = play_classes(stage, lambda _: None)
    assert fleet.worst_share <= 1.05
    assert fleet.share >= 0.75


def test_nor_when_the_leader_is_killed_between_the_classes(stage: Stage) -> None:
    first = stage.scheduler(0)
    first.wait_for("leads now", 60)
    second = stage.scheduler(1, *PATIENT)
    fleet = play_classes(stage, lambda _: first.stop(signal.SIGKILL))
    second.wait_for("leads now", 60)
    assert fleet.worst_share <= 1.05
    assert fleet.share >= 0.75
    assert all(len(nodes) == 1 for nodes in fleet.bound_to.values())


def test_nor_beside_nodes_of_older_agents(stage: Stage) -> None:
    """Every fourth node reports Pod-Capacity alone: ten pods go there, whatever their class."""
    stage.scheduler(0, *PATIENT)
    fleet = play_classes(stage, lambda _: None, OLDER, enough=250)  # the nodes that report room take about 300
    assert fleet.worst <= 0
    assert fleet.worst_share <= 1.05
    assert all(len(fleet.on(node)) == CAPACITY for node in OLDER)


def test_a_burst_never_overloads_a_node(stage: Stage) -> None:
    stage.scheduler(0, *PATIENT)
    fleet = play(stage, lambda _: None)
    assert fleet.worst <= 1
    assert fleet.bound == ROOM


def test_nor_when_the_scheduler_is_killed_in_the_middle(stage: Stage) -> None:
    first = stage.scheduler()

    def kill(_: Fleet) -> None:
        first.stop(signal.SIGKILL)
        stage.scheduler(0, *PATIENT)

    fleet = play(stage, kill)
    assert fleet.worst <= 1
    assert fleet.bound == ROOM
    assert all(len(nodes) == 1 for nodes in fleet.bound_to.values())


def test_nor_when_the_leader_of_two_is_killed(stage: Stage) -> None:
    first = stage.scheduler(0)
    first.wait_for("leads now", 60)
    second = stage.scheduler(1, *PATIENT)

    def kill(_: Fleet) -> None:
        first.stop(signal.SIGKILL)

    fleet = play(stage, kill)
    second.wait_for("leads now", 60)
    assert fleet.worst <= 1
    assert fleet.bound == ROOM
    assert all(len(nodes) == 1 for nodes in fleet.bound_to.values())


def test_nor_when_the_leader_hands_over(stage: Stage) -> None:
    """SIGTERM: bindings in flight are finished, the Lease is released, and the other replica need not wait for it."""
    first = stage.scheduler(0, *PATIENT)
    first.wait_for("leads now", 60)
    second = stage.scheduler(1, *PATIENT)
    took: list[float] = []

    def end(_: Fleet) -> None:
        began = time.monotonic()
        assert first.stop(signal.SIGTERM, 30) == 0
        second.wait_for("leads now", 60)
        took.append(time.monotonic() - began)

    fleet = play(stage, end)
    assert took[0] < 30  # its Lease would have lasted 60 s
    assert fleet.worst <= 1
    assert fleet.bound == ROOM
    assert all(len(nodes) == 1 for nodes in fleet.bound_to.values())


def test_the_older_rule_does_overload(stage: Stage, tmp_path: Path) -> None:
    config = tmp_path / "report.toml"
    config.write_text("[scheduler.profiles.report]\n")
    stage.scheduler(0, *PATIENT, "--config", str(config), "--startup-limit", "100", "--startup-limit-idle", "100")
    fleet = play(stage, lambda _: None, "report")
    assert fleet.worst > 1
