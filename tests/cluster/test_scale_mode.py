"""A control plane with many kwok nodes, for tests of size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from harness.cluster import kwok
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_scale

pytestmark = [pytest.mark.cluster, needs_scale]
PODS = 500


def test_the_stock_scheduler_binds_500_pods_over_1000_nodes() -> None:
    """A separate cluster, ended at once: its heartbeats would slow the other tests down."""
    with Cluster(nodes=1000) as cluster, cluster.namespace() as namespace:
        assert kwok.open_nodes(cluster.api) == 1000
        pods = (pod(f"pod-{number}", ["true"]) for number in range(PODS))
        cluster.api.post_all(f"/api/v1/namespaces/{namespace}/pods", pods)
        waiting = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName%3D"
        cluster.wait_for("binding", lambda: not cluster.api.get(waiting)["items"], 120)
        running = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=status.phase%3DRunning"
        cluster.wait_for("kwok", lambda: len(cluster.api.get(running)["items"]) == PODS, 60)
        items = cluster.api.get(running)["items"]
        assert {item["spec"]["schedulerName"] for item in items} == {"default-scheduler"}
        assert len({item["spec"]["nodeName"] for item in items}) > 100


def test_a_job_of_played_pods_completes(scale_cluster: Callable[[int], Cluster]) -> None:
    cluster = scale_cluster(5)
    template = {"metadata": {"annotations": {"carico.test/runs-for": "1s"}}, "spec": pod("played", ["true"])["spec"]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "played"},
        "spec": {"completions": 20, "parallelism": 10, "template": template},
    }
    with cluster.namespace() as namespace:
        cluster.create(job, namespace)
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/played"
        cluster.wait_for("the Job", lambda: cluster.api.get(path)["status"].get("succeeded") == 20)


def test_nodes_can_come_and_go(scale_cluster: Callable[[int], Cluster]) -> None:
    cluster = scale_cluster(5)
    cluster.api.post("/api/v1/nodes", kwok.node("late"))
    cluster.wait_for("the new node", lambda: kwok.open_nodes(cluster.api) == 6)
    cluster.api.delete("/api/v1/nodes/late")
    cluster.wait_for("its end", lambda: kwok.open_nodes(cluster.api) == 5)


@pytest.mark.needs("root")
def test_it_needs_no_power_of_root() -> None:
    """The same user without any capability: what any other user could do too."""
    owner = """from harness.cluster.cluster import Cluster
with Cluster(2) as cluster: print(len(cluster.api.get("/api/v1/nodes")["items"]))"""
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    command = [*powerless, sys.executable, "-c", owner]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == "2\n", done.stderr
