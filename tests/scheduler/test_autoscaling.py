"""scheduler/autoscaling: the script asks for a node when pods wait for capacity, in a way that an autoscaler sees."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from carico.kube import credentials
from carico.kube.client import Client
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_scale
from harness.cluster.ports import free_port
from harness.scheduler.fleet import Fleet, SchedulerProcess

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_scale]

ROOT = Path(__file__).parents[2]
HOME = ROOT / "scheduler/autoscaling"
NODES, EXTRA = 3, "kwok-extra"
NAMESPACE = "carico-system"


class World:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        (folder / "kubectl").symlink_to(cluster.kubectl_binary)

    def run_script(self, **environ: str) -> str:
        """As the CronJob does, with the rights of the administrator."""
        env = os.environ | {"KUBECONFIG": str(self.cluster.kubeconfig), "HOME": str(self.folder)}
        env |= {"PATH": f"{self.folder}:{os.environ['PATH']}", "WAITED": "0"} | environ
        done = subprocess.run(["sh", str(HOME / "nodes.sh")], capture_output=True, text=True, timeout=120, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wanted(self) -> int:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/carico-nodes"
        return int(self.cluster.api.get(path)["spec"]["replicas"])

    def placeholders(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def unschedulable(self) -> list[dict[str, Any]]:
        """What an autoscaler selects."""
        return [
            item
            for item in self.placeholders()
            for c in item["status"].get("conditions", ())
            if (c["type"], c["status"], c.get("reason")) == ("PodScheduled", "False", "Unschedulable")
        ]


@pytest.fixture
def world(scale_cluster: Callable[[int], Cluster], tmp_path: Path) -> Iterator[World]:
    cluster = scale_cluster(NODES)
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.kubectl("apply", "-f", str(ROOT / "scheduler/crd-nodecapacities.yaml"))
    cluster.kubectl("wait", "--for=condition=Established", "crd/nodecapacities.carico.dev", "--timeout=60s")
    cluster.kubectl("apply", "-k", str(HOME))
    cluster.kubectl("-n", NAMESPACE, "delete", "cronjob", "carico-nodes")  # this test runs its script
    try:
        yield World(cluster, tmp_path)
    finally:
        for what in ("clusterrole/carico-nodes", "clusterrolebinding/carico-nodes", f"namespace/{NAMESPACE}"):
            cluster.kubectl("delete", "--wait=false", what)
        cluster.kubectl("delete", "node", EXTRA, "--ignore-not-found")


def test_a_pod_that_waits_for_capacity_alone_gets_a_node(world: World) -> None:
    cluster, port, stop = world.cluster, free_port(), threading.Event()
    capacity = {f"kwok-{i:04d}": 2.0 for i in range(NODES)} | {EXTRA: 2.0}

    async def report() -> None:
        client = Client(credentials.from_kubeconfig(cluster.kubeconfig))
        async with Fleet(client, capacity, [f"127.0.0.1:{port}"], "", lag=0.5).at_work():
            await asyncio.to_thread(stop.wait)
        await client.close()

    agents = threading.Thread(target=lambda: asyncio.run(report()))
    flags = ("--leader-elect-resource-name", "autoscaling", "--heartbeat", "1")
    process = SchedulerProcess(cluster.kubeconfig, port, *flags)
    agents.start()
    try:
        with cluster.namespace() as namespace:
            for i in range(2 * NODES + 1):
                cluster.create(pod(f"p-{i}", ["x"], schedulerName="carico"), namespace)
            _a_node_is_wanted(world, namespace)
            _an_autoscaler_adds_it(world, namespace)
        _and_it_is_given_back(world)
    finally:
        stop.set()
        agents.join(timeout=60)
        process.stop(signal.SIGKILL)


def _without_node(cluster: Cluster, namespace: str) -> int:
    items = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sum("nodeName" not in item["spec"] for item in items)


def _a_node_is_wanted(world: World, namespace: str) -> None:
    cluster = world.cluster
    cluster.wait_for("all but one pod to be bound", lambda: _without_node(cluster, namespace) == 1)

    def waits() -> bool:
        return world.run_script(MOST=str(NODES + 1)).startswith("1 pods wait for capacity")

    cluster.wait_for("the condition of the pod that waits", waits)
    assert world.wanted() == NODES + 1
    cluster.wait_for("a placeholder that fits on no node", lambda: len(world.unschedulable()) == 1)
    assert len({item["spec"].get("nodeName") for item in world.placeholders()} - {None}) == NODES
    world.run_script(MOST=str(NODES + 1))
    assert world.wanted() == NODES + 1, "MOST is the limit"


def _an_autoscaler_adds_it(world: World, namespace: str) -> None:
    """A node like the others, as an autoscaler makes it from its template."""
    cluster = world.cluster
    item = cluster.api.get("/api/v1/nodes/kwok-0000")
    labels = item["metadata"]["labels"] | {"kubernetes.io/hostname": EXTRA}
    annotations = item["metadata"].get("annotations", {})
    meta = {"name": EXTRA, "labels": labels, "annotations": annotations}
    status = {key: item["status"][key] for key in ("capacity", "allocatable")}
    cluster.api.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})
    cluster.wait_for(
        "the placeholder to be bound", lambda: not world.unschedulable() and len(world.placeholders()) > NODES
    )
    cluster.wait_for("the pod that waited to be bound", lambda: _without_node(cluster, namespace) == 0)
    placed = {p["spec"]["nodeName"] for p in cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]}
    assert EXTRA in placed


def _and_it_is_given_back(world: World) -> None:
    """The pods are gone: the placeholders, which these agents count too, follow one each time."""

    def fewer() -> bool:
        world.run_script(SPARE=str(NODES), LEAST="2")
        return world.wanted() <= NODES

    world.cluster.wait_for("fewer placeholders", fewer)
    world.cluster.wait_for("LEAST", lambda: (world.run_script(SPARE="0", LEAST="2"), world.wanted())[1] == 2)
    world.run_script(SPARE="0", LEAST="2")
    assert world.wanted() == 2
