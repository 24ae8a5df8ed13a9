"""NodeCapacity objects on API servers, as kubectl shows them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from carico.kube import credentials
from carico.kube.client import Client
from harness.cluster import builder
from harness.cluster.api import ApiError
from harness.cluster.cluster import Cluster
from harness.cluster.fixtures import AnyCluster, needs_scale, only_real
from harness.cluster.ports import free_port
from harness.embedded.embedded_cluster import EmbeddedCluster
from harness.scheduler.fleet import Fleet, SchedulerProcess

pytestmark = [pytest.mark.cluster, needs_scale]  # kubectl is built with the cluster

ROOT = Path(__file__).parents[2]
CRD = ROOT / "scheduler/crd-nodecapacities.yaml"
NODES = 3
COLLECTION = "/apis/carico.dev/v1alpha1/nodecapacities"
HEAD = "NAME POD-CAPACITY CPU MEMORY RESERVED PODS MODE STALE UPDATED AGE"


def kubectl(cluster: Cluster | EmbeddedCluster, home: Path, *argv: str, stdin: str = "", fails: bool = False) -> str:
    binary = builder.build(["kubectl"])["kubectl"]
    environ = os.environ | {"HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run([binary, *argv], input=stdin, capture_output=True, text=True, env=environ, timeout=120)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


@pytest.fixture(scope="module")
def cluster(any_cluster: AnyCluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster | EmbeddedCluster:
    made = any_cluster(NODES)
    if isinstance(made, Cluster):  # the embedded server has this kind from the start
        home = tmp_path_factory.mktemp("home")
        kubectl(made, home, "apply", "-f", str(CRD))
        kubectl(made, home, "wait", "--for=condition=Established", "crd/nodecapacities.carico.dev", "--timeout=60s")
        made.wait_for("the new kind's storage", lambda: _served(made))
    return made


def _served(cluster: Cluster) -> bool:
    try:
        cluster.api.get(COLLECTION)
    except ApiError as error:
        if error.status in (404, 429):  # 429: its storage is initialized
            return False
        raise
    return True


@pytest.fixture(scope="module")
def reporting(cluster: Cluster | EmbeddedCluster) -> Iterator[SchedulerProcess]:
    """A leader; agents of two nodes report room for pods, the third is silent."""
    port, stop = free_port(), threading.Event()

    async def report() -> None:
        client = Client(credentials.from_kubeconfig(cluster.kubeconfig))
        capacity = {"kwok-0000": 100.0, "kwok-0001": 7.0}
        async with Fleet(client, capacity, [f"127.0.0.1:{port}"], "", costs={"x": (1.0, 1e9)}).at_work():
            await asyncio.to_thread(stop.wait)
        await client.close()

    agents = threading.Thread(target=lambda: asyncio.run(report()))
    process = SchedulerProcess(
        cluster.kubeconfig, port, "--leader-elect-resource-name", "capacities", "--heartbeat", "1"
    )
    agents.start()
    try:
        yield process
    finally:
        stop.set()
        agents.join(timeout=60)
        process.stop(signal.SIGKILL)


def _written(cluster: Cluster | EmbeddedCluster) -> list[dict[str, Any]] | None:
    """All objects, once none lacks its figures."""
    items: list[dict[str, Any]] = cluster.api.get(COLLECTION)["items"]
    done = [
        item for item in items if "podCapacity" in item.get("status", {}) or item["metadata"]["name"] == "kwok-0002"
    ]
    return items if len(done) == NODES and all("status" in item for item in done) else None


@pytest.mark.usefixtures("reporting")
def test_kubectl_shows_a_table(cluster: Cluster | EmbeddedCluster, tmp_path: Path) -> None:
    cluster.wait_for("the objects", lambda: _written(cluster))
    head, *rows = (line.split() for line in kubectl(cluster, tmp_path, "get", "ncap").splitlines())
    assert head == HEAD.split()
    table = {row[0]: row[1:] for row in rows}
    assert table.keys() == {f"kwok-{i:04d}" for i in range(NODES)}
    for name in ("kwok-0000", "kwok-0001"):
        capacity, cpu, memory, reserved, pods, mode, stale, *ages = table[name]
        assert (capacity, cpu, memory, reserved, pods, mode, stale) == (
            "10",
            "10000m",
            "9536Mi",
            "0",
            "0",
            "Settled",
            "false",
        )
        assert all(re.fullmatch(r"\d+[smh].*", age) for age in ages)
    assert table["kwok-0002"][0] == "true", "an unknown figure is an empty cell"
    assert len(table["kwok-0002"]) == 3


@pytest.mark.usefixtures("reporting")
def test_an_object_goes_with_its_node(cluster: Cluster | EmbeddedCluster, tmp_path: Path) -> None:
    cluster.wait_for("the objects", lambda: _written(cluster))
    name = "extra"
    cluster.api.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    def names() -> list[str]:
        return [item["metadata"]["name"] for item in cluster.api.get(COLLECTION)["items"]]

    cluster.wait_for("its object", lambda: name in names())
    shown = kubectl(cluster, tmp_path, "get", "ncap", name, "-o", "jsonpath={.metadata.ownerReferences[0].name}")
    assert shown == name
    cluster.api.delete(f"/api/v1/nodes/{name}")
    cluster.wait_for("the garbage collector", lambda: name not in names())


@only_real
def test_the_schema_accepts_what_is_written_and_explains_it(cluster: Cluster, tmp_path: Path) -> None:
    text = kubectl(cluster, tmp_path, "explain", "ncap.status.podCapacity")
    assert "How many more pods of the usual kind fit on the node" in text
    item = {"apiVersion": "carico.dev/v1alpha1", "kind": "NodeCapacity", "metadata": {"name": "by-hand"}}
    cluster.api.post(COLLECTION, item)
    for status in ({"mode": "Other"}, {"podCapacity": -1}, {"room": {"cpu": "1"}}, {"updatedAt": "today"}):
        whole = {"stale": False, "updatedAt": "2026-01-01T00:00:00Z"} | status
        patch = yaml.safe_dump({"status": whole})
        said = kubectl(
            cluster,
            tmp_path,
            "patch",
            "ncap",
            "by-hand",
            "--subresource=status",
            "--type=merge",
            "-p",
            patch,
            fails=True,
        )
        assert "invalid" in said
    cluster.api.delete(f"{COLLECTION}/by-hand")
    conditions = cluster.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodecapacities.carico.dev")
    found = {c["type"]: c["status"] for c in conditions["status"]["conditions"]}
    assert found["Established"] == "True"
    assert "NonStructuralSchema" not in found
