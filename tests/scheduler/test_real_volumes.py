"""Volumes with the real volume controller; preemption of pods that fill a node by their requests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from harness.cluster.cluster import Cluster, pod
from harness.cluster.fixtures import AnyCluster, only_real
from harness.cluster.ports import free_port
from harness.embedded.embedded_cluster import EmbeddedCluster
from harness.scheduler.fleet import SchedulerProcess

NODES = 5
CLASS = "carico-local"


class Place:
    """A namespace with a scheduler that judges by requests: no agents report here."""

    def __init__(self, cluster: Cluster | EmbeddedCluster, namespace: str) -> None:
        self.cluster, self.namespace, self.api = cluster, namespace, cluster.api
        self.root = f"/api/v1/namespaces/{namespace}"

    def pod(self, name: str, **spec: Any) -> None:
        self.api.post(f"{self.root}/pods", pod(name, ["x"], schedulerName="carico", **spec))

    def node_of(self, name: str) -> str:
        def bound() -> Any:
            return self.api.get(f"{self.root}/pods/{name}")["spec"].get("nodeName")

        return str(self.cluster.wait_for(f"binding of {name}", bound, 180))

    def why(self, name: str, words: str) -> None:
        def said() -> bool:
            conditions = self.api.get(f"{self.root}/pods/{name}")["status"].get("conditions", [])
            return any(words in condition.get("message", "") for condition in conditions)

        self.cluster.wait_for(f"{words!r} of {name}", said, 180)

    def claim(self, name: str) -> None:
        spec = {"storageClassName": CLASS, "accessModes": ["ReadWriteOnce"]}
        body = {"metadata": {"name": name}, "spec": spec | {"resources": {"requests": {"storage": "1Gi"}}}}
        self.api.post(f"{self.root}/persistentvolumeclaims", body)

    def phase(self, claim: str) -> str:
        return str(self.api.get(f"{self.root}/persistentvolumeclaims/{claim}")["status"]["phase"])


def volume(name: str, node: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/nowhere"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    }


@pytest.fixture
def place(any_cluster: AnyCluster) -> Iterator[Place]:
    cluster = any_cluster(NODES)
    with cluster.namespace() as namespace:
        lease = ("--leader-elect-resource-namespace", namespace, "--leader-elect-resource-name", "carico")
        process = SchedulerProcess(cluster.kubeconfig, free_port(), *lease, "--on-stale", "requests")
        try:
            yield Place(cluster, namespace)
        finally:
            process.stop(signal.SIGKILL)


@only_real
def test_a_claim_gets_the_volume_of_the_chosen_node(place: Place) -> None:
    """The pod waits for a volume, is tried again when one comes, and is bound once the claim is."""
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    local = {"metadata": {"name": CLASS}, "provisioner": "kubernetes.io/no-provisioner"}
    place.api.post(classes, local | {"volumeBindingMode": "WaitForFirstConsumer"})
    name = f"volume-{place.namespace}"
    try:
        place.claim("data")
        place.pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
        place.why("p", "didn't find available persistent volumes to bind")
        place.api.post("/api/v1/persistentvolumes", volume(name, "kwok-0003"))
        assert place.node_of("p") == "kwok-0003"
        # The volume controller writes the claim's phase after the binding itself, which is what the pod waits for.
        place.cluster.wait_for("the claim's phase", lambda: place.phase("data") == "Bound")
    finally:
        place.api.delete(f"/api/v1/persistentvolumes/{name}")
        place.api.delete(f"{classes}/{CLASS}")


def test_a_pod_of_higher_priority_gets_room(place: Place) -> None:
    name = f"urgent-{place.namespace}"
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    place.api.post(classes, {"metadata": {"name": name}, "value": 1000})
    try:
        room = place.api.get("/api/v1/nodes/kwok-0001")["status"]["allocatable"]["cpu"]
        here = {"nodeSelector": {"kubernetes.io/hostname": "kwok-0001"}}
        all_of_it = {"resources": {"requests": {"cpu": room}}}
        place.pod("low", **here, **all_of_it)
        assert place.node_of("low") == "kwok-0001"
        place.pod("high", priorityClassName=name, **here, **all_of_it)
        assert place.node_of("high") == "kwok-0001"
        pods = {item["metadata"]["name"] for item in place.api.get(f"{place.root}/pods")["items"]}
        assert pods == {"high"}
    finally:
        place.api.delete(f"{classes}/{name}")
