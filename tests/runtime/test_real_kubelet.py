"""What a real kubelet writes into its sandboxes and cgroups is what the sources read."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from cluster.cluster import Cluster, pod
from cluster.fixtures import needs_node
from cluster.runs import hierarchies

from carico.clock import SystemClock
from carico.runtime import Source, open_source
from carico.settings import RuntimeSettings
from runtime.real import eventually, following

pytestmark = [pytest.mark.cluster, needs_node]


def uids(cluster: Cluster, namespace: str) -> set[str]:
    pods = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {item["metadata"]["uid"] for item in pods if item["status"]["phase"] == "Running"}


def daemon_set() -> dict[str, Any]:
    template = pod("daemon", ["sleep", "100000"], restartPolicy="Always")
    labels = {"app": "daemon"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
    }
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "daemon"}, "spec": spec}


async def counts(source: Source, expected: set[str]) -> None:
    await eventually(lambda: source.table.counted() == expected, f"{source.name} counts {sorted(expected)}")


def test_the_sources_count_the_pods_of_the_api_server(node_cluster: Cluster) -> None:
    cgroups = next(top for top in hierarchies() if top.name in ("memory", "cgroup")) / node_cluster.run.cgroup
    socket = node_cluster.folder / "containerd.sock"

    def source(runtime: str) -> Source:
        settings = RuntimeSettings(runtime=runtime, containerd_socket=socket, cri_socket=socket)
        return open_source(settings, cgroups, SystemClock())

    async def scenario(namespace: str) -> None:
        async with (
            following(source("containerd")) as events,
            following(source("cri")) as cri,
            following(source("cgroup")) as cgroup,
        ):
            sources = (events, cri, cgroup)
            for one in sources:
                await counts(one, set())  # pods of earlier tests may still be going
            node_cluster.create(daemon_set(), namespace)
            node_cluster.create(pod("work", ["sleep", "100000"]), namespace)
            await eventually(lambda: len(uids(node_cluster, namespace)) == 2, "both pods run")
            for one in sources:
                await counts(one, uids(node_cluster, namespace))
            now = time.monotonic()
            assert [one.table.count(now).running for one in sources] == [1, 1, 2]

    with node_cluster.namespace() as namespace:
        asyncio.run(scenario(namespace))
