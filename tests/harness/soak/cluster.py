"""The cluster of a soak: 50 nodes in four pools, priorities, the class of a hung provisioner, Carico's account."""

from __future__ import annotations

import asyncio
import http.client
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from harness.cluster.api import ApiError, Object
from harness.cluster.cluster import Cluster
from harness.cluster.daemons import ended_mark
from harness.cluster.errors import ClusterError
from harness.cluster.inner import FAILED
from harness.cluster.played import Nodes

NAMESPACE = "soak"
ACCOUNT = "carico-scheduler"
CARICO = f"system:serviceaccount:kube-system:{ACCOUNT}"
STORAGE_CLASS = "hung"
POLICY = "soak-refuses-bindings"
PRIORITIES = {"high": 1000, "middle": 100, "stock": 1}
ZONES = 5
PATIENCE = 180.0  # s for which a request is retried while the API server is unavailable

T = TypeVar("T")


def sizes() -> dict[str, tuple[str, int, float]]:
    """Node to its pool, its cores, and the units that it can really take.

    Pods wait for requests in pool `full`, for Pod-Capacity in pool `tight`, and rarely in pool `open`. On the one node
    of pool `pulls` most pods wait for their images indefinitely.
    """
    pools = [("open", 16, 24.0)] * 24 + [("full", 4, 30.0)] * 12 + [("tight", 32, 4.0)] * 13 + [("pulls", 64, 80.0)]
    return {f"kwok-{number:04d}": pool for number, pool in enumerate(pools)}


SIZES = sizes()


def labels_of(node: str) -> dict[str, str]:
    number = int(node.removeprefix("kwok-"))
    return {"pool": SIZES[node][0], "topology.kubernetes.io/zone": f"z{number % ZONES}"}


def add_node(nodes: Nodes, name: str) -> None:
    size = {"cpu": str(SIZES[name][1]), "memory": "256Gi", "pods": "110"}
    nodes.add(name, size, labels_of(name))


def prepare(cluster: Cluster, nodes: Nodes) -> Path:
    """Create everything that exists before the first pod; returns the kubeconfig of Carico's account."""
    api = cluster.api
    for name in SIZES:
        add_node(nodes, name)
    api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for name, value in PRIORITIES.items():
        policy = "Never" if name == "stock" else "PreemptLowerPriority"
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    late = {"provisioner": "soak.test/provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    api.post("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": STORAGE_CLASS}} | late)
    api.post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", _policy())
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", _lease_role())
    roles = ("system:kube-scheduler", "system:volume-scheduler", "soak-leases")
    kubeconfig = cluster.kubeconfig_of_account(ACCOUNT, *roles)
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    cluster.wait_for("the nodes", lambda: nodes.are_open(len(SIZES)))
    cluster.wait_for("the service account", lambda: cluster._has(account))
    return kubeconfig


def _lease_role() -> Object:
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    return {"metadata": {"name": "soak-leases"}, "rules": [rule]}


def _policy() -> Object:
    """Rejects Carico's bindings while a binding of the policy exists."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    ours = {"name": "carico", "expression": f"request.userInfo.username == '{CARICO}'"}
    refusal = {"expression": "false", "message": "no bindings for a while", "reason": "Forbidden"}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [ours],
        "validations": [refusal],
    }
    return {"metadata": {"name": POLICY}, "spec": spec}


class ComponentSupervisor:
    """Restarts Kubernetes components that exit, as a kubelet would, and raises if the cluster has failed.

    kube-scheduler exits when a pod was re-created under its name while its watch was cut ("cache is corrupted").
    """

    PARTS = ("kube-scheduler", "kube-controller-manager")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.restarts: Counter[str] = Counter()

    async def run(self) -> None:
        for part in self.PARTS:
            (self._cluster.run.held / part).touch()  # its exit is not a failure
        while True:
            await asyncio.to_thread(self._look)
            await asyncio.sleep(1)

    def _look(self) -> None:
        if (last := self._cluster.steps()[-1][1]).startswith(FAILED):
            raise ClusterError(last)
        for part in self.PARTS:
            if ended_mark(self._cluster.run.held, part).exists():
                self.restarts[part] += 1
                self._start(part)

    def _start(self, part: str) -> None:
        held = self._cluster.run.held / part
        held.unlink()
        try:
            self._cluster.wait_for(part, lambda: not ended_mark(self._cluster.run.held, part).exists())
        finally:
            held.touch()


async def attempt(call: Callable[..., T], *arguments: Any) -> T | None:
    """One request in a thread; None if the API server is unavailable or rejects it."""
    try:
        return await asyncio.to_thread(call, *arguments)
    except (OSError, http.client.HTTPException, ValueError):
        return None


async def insist(call: Callable[..., T], *arguments: Any) -> T | None:
    """Retry until the API server has accepted it; None if the object does not exist (any more) or exists already."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await asyncio.to_thread(call, *arguments)
            except ApiError as error:
                if error.status in (404, 409):
                    return None
            except (OSError, http.client.HTTPException, ValueError):
                pass
            await asyncio.sleep(0.3)
