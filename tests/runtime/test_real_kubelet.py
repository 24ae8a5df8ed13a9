"""What a real kubelet writes into its sandboxes and cgroups is what the sources read."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carico.clock import SystemClock
from carico.pod_class import class_of
from carico.runtime import RuntimeSource, open_source
from carico.runtime.pods import STARTING_AT_MOST
from carico.settings import RuntimeSettings
from carico.types import ClassKey
from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import needs_node
from harness.cluster.runs import hierarchies
from harness.node.container_pods import eventually, following

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


async def counts(source: RuntimeSource, expected: set[str]) -> None:
    await eventually(lambda: source.table.counted() == expected, f"{source.name} counts {sorted(expected)}")


def test_the_sources_count_the_pods_of_the_api_server(node_cluster: Cluster) -> None:
    cgroups = next(top for top in hierarchies() if top.name in ("memory", "cgroup")) / node_cluster.run.cgroup
    socket = node_cluster.folder / "containerd.sock"

    def source(runtime: str) -> RuntimeSource:
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


def workloads() -> list[dict[str, Any]]:
    """One of each kind; the last one is a bare pod without labels."""
    sleep = pod("x", ["sleep", "100000"])["spec"]
    forever = sleep | {"restartPolicy": "Always"}
    labels = {"app": "web", "helm.sh/chart": "web-1.2.3"}
    web = {"metadata": {"labels": labels}, "spec": forever}
    db = {"metadata": {"labels": {"app": "db", "role": "primary"}}, "spec": forever}
    bare = pod(
        "bare", ["sleep", "100000"], initContainers=[sleep["containers"][0] | {"name": "first", "command": ["true"]}]
    )
    del bare["metadata"]["labels"]
    chosen = pod("chosen", ["sleep", "100000"])
    chosen["metadata"]["annotations"] = {"carico.dev/cost-class": "heavy"}

    indexed = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}

    def one(kind: str, name: str, group: str, **spec: Any) -> dict[str, Any]:
        return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}

    return [
        one("Deployment", "web", "apps/v1", selector={"matchLabels": {"app": "web"}}, template=web, replicas=2),
        one("StatefulSet", "db", "apps/v1", selector={"matchLabels": {"app": "db"}}, template=db, serviceName="db"),
        one("Job", "sum-29384760", "batch/v1", template={"spec": sleep}),
        one("Job", "parts", "batch/v1", template={"spec": sleep}, **indexed),
        chosen,
        bare,
    ]


FAMILIES = {"web": 2, "db.primary": 1, "job:sum": 1, "job:parts": 2, "heavy": 1, "image:busybox": 1}


def by_the_scheduler(item: dict[str, Any]) -> ClassKey:
    meta, spec = item["metadata"], item["spec"]
    images = [one["image"] for one in (*spec["containers"], *spec.get("initContainers", ()))]
    labels, annotations = meta.get("labels", {}), meta.get("annotations", {})
    return class_of(meta["namespace"], meta["name"], labels, annotations, images)


def test_classes_and_cgroups_of_pods_of_every_kind(node_cluster: Cluster) -> None:
    socket = node_cluster.folder / "containerd.sock"

    def source(runtime: str) -> RuntimeSource:
        settings = RuntimeSettings(runtime=runtime, containerd_socket=socket, cri_socket=socket)
        return open_source(settings, Path("/sys/fs/cgroup"), SystemClock())

    async def scenario(namespace: str) -> None:
        async with following(source("containerd")) as events, following(source("cri")) as cri:
            for item in workloads():
                node_cluster.create(item, namespace)
            await eventually(lambda: len(uids(node_cluster, namespace)) == 8, "all pods run")
            pods = node_cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
            expected = {item["metadata"]["uid"]: by_the_scheduler(item) for item in pods}
            names = Counter(key.family.removeprefix(f"{namespace}/").partition("~")[0] for key in expected.values())
            assert names == FAMILIES
            for one in (events, cri):
                await eventually(partial(gives_classes, one, expected), f"{one.name} gives the same classes")
                for uid in expected:
                    cgroup = one.table.workload()[uid].cgroup
                    assert cgroup is not None
                    assert cgroup.endswith(f"/pod{uid}")
                    assert any((top / cgroup[1:]).is_dir() for top in hierarchies())
                await eventually(
                    partial(says_that_all_run, one, expected),
                    f"{one.name} says that all run",
                )

    with node_cluster.namespace() as namespace:
        asyncio.run(scenario(namespace))


def gives_classes(source: RuntimeSource, expected: dict[str, ClassKey]) -> bool:
    return keys_of(source) >= expected.items()


def says_that_all_run(source: RuntimeSource, uids: Iterable[str]) -> bool:
    return all(source.table.workload()[uid].running for uid in uids)


def keys_of(source: RuntimeSource) -> set[tuple[str, ClassKey | None]]:
    return {(uid, one.key) for uid, one in source.table.workload().items()}


def test_a_pod_that_cannot_pull_its_image_is_counted_and_never_starts(node_cluster: Cluster) -> None:
    socket = node_cluster.folder / "containerd.sock"

    async def scenario(namespace: str) -> None:
        settings = RuntimeSettings(runtime="containerd", containerd_socket=socket)
        async with following(open_source(settings, Path("/sys/fs/cgroup"), SystemClock())) as source:
            stuck = pod("stuck", ["sleep", "100000"])
            stuck["spec"]["containers"][0]["image"] = "example.invalid/none:1"
            uid = node_cluster.create(stuck, namespace)["metadata"]["uid"]
            await eventually(lambda: uid in source.table.workload(), "its sandbox is counted")
            assert source.table.workload()[uid].started is None
            assert uid in source.table.counted()
            late = time.monotonic() + STARTING_AT_MOST
            assert source.table.count(late).unsettled == 0

    with node_cluster.namespace() as namespace:
        asyncio.run(scenario(namespace))
