"""A pod of higher priority among full nodes whose pods take their time to go, by kube-scheduler and by Carico.

Meanwhile other pods end, each of which may wake the one that waits. No pod may be evicted for it a second time.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from harness.cluster.api import Api
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_scale
from harness.cluster.played import nodes_played
from harness.cluster.ports import free_port
from harness.scheduler.fleet import SchedulerProcess

pytestmark = [pytest.mark.cluster, needs_scale]

NODES, CORES = 6, 4
GRACE = 8  # s that an evicted pod takes to go: time for several others to end
PATIENCE = 120.0  # s
PRIORITY = "urgent"


class Side:
    """One scheduler's own nodes, full of pods that each take a core."""

    def __init__(self, cluster: Cluster, scheduler: str, namespace: str) -> None:
        self.scheduler, self._api = scheduler, cluster.api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._here: dict[str, Any] = {"nodeSelector": {"side": scheduler}}
        self.victims: set[str] = set()
        self.ended = 0

    def node(self, number: int) -> str:
        return f"{self.scheduler}-{number}"

    def fill(self) -> None:
        spots = [(node, core) for node in range(NODES) for core in range(CORES)]
        low = (_pod(f"low-{node}-{core}", nodeName=self.node(node), grace=GRACE, cpu="1") for node, core in spots)
        self._api.post_all(self._pods, low)

    @property
    def full(self) -> bool:
        running = [item for item in self._items() if item["status"]["phase"] == "Running"]
        return len(running) == NODES * CORES

    def want(self) -> None:
        wanted = _pod("high", schedulerName=self.scheduler, priorityClassName=PRIORITY, cpu="2", **self._here)
        self._api.post(self._pods, wanted)

    def end_another(self) -> None:
        """A pod that has nothing to do with it comes and goes on one of the nodes."""
        name = f"other-{self.ended}"
        self._api.post(self._pods, _pod(name, nodeName=self.node(NODES - 1)))
        self._api.delete(f"{self._pods}/{name}?gracePeriodSeconds=0")
        self.ended += 1

    @property
    def done(self) -> bool:
        """Whether the pod has its node; notes who had to go."""
        items = {item["metadata"]["name"]: item for item in self._items()}
        self.victims |= {name for name, item in items.items() if _evicted(item)}
        return bool(items["high"]["spec"].get("nodeName"))

    def _items(self) -> list[dict[str, Any]]:
        return list(self._api.get(self._pods)["items"])


def _pod(name: str, grace: int = 0, cpu: str = "0", **spec: Any) -> dict[str, Any]:
    item = pod(name, ["x"], terminationGracePeriodSeconds=grace, **spec)
    item["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return item


def _evicted(item: dict[str, Any]) -> bool:
    conditions = item["status"].get("conditions", [])
    return any(c["type"] == "DisruptionTarget" and c["reason"] == "PreemptionByScheduler" for c in conditions)


def _make_priority(api: Api) -> None:
    api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": PRIORITY}, "value": 1000})


@pytest.fixture
def sides() -> Iterator[tuple[Cluster, list[Side]]]:
    """A cluster of its own: these nodes treat pods as kubelets do, those of the others do not."""
    with Cluster() as cluster, nodes_played(cluster) as nodes, cluster.namespace() as one, cluster.namespace() as two:
        _make_priority(cluster.api)
        made = [Side(cluster, "default-scheduler", one), Side(cluster, "carico", two)]
        for side in made:
            for number in range(NODES):
                room = {"cpu": str(CORES), "memory": "32Gi", "pods": "110"}
                nodes.add(side.node(number), room, {"side": side.scheduler})
        cluster.wait_for("the nodes", lambda: nodes.are_open(len(made) * NODES))
        carico = SchedulerProcess(cluster.kubeconfig, free_port(), "--no-leader-elect", "--on-stale", "requests")
        try:
            yield cluster, made
        finally:
            carico.stop(signal.SIGKILL)


def test_no_further_pod_is_evicted_while_the_victims_terminate(sides: tuple[Cluster, list[Side]]) -> None:
    cluster, both = sides
    for side in both:
        side.fill()
    cluster.wait_for("full nodes", lambda: all(side.full for side in both), PATIENCE)
    for side in both:
        side.want()
    waiting = list(both)

    def settled() -> bool:
        for side in waiting:
            side.end_another()
        waiting[:] = [side for side in waiting if not side.done]
        return not waiting

    cluster.wait_for("a node for the pods of higher priority", settled, PATIENCE)
    stock, ours = both
    print(f"others ended meanwhile: {stock.ended} and {ours.ended}; evicted: {stock.victims} and {ours.victims}")
    assert len(stock.victims) == 2
    assert len(ours.victims) == 2
