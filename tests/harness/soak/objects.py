"""The objects of faults: claims, namespaces that are deleted, excessive amounts, and corrupted watch events."""

from __future__ import annotations

import json
import random
from typing import Any

from harness.cluster.api import Object
from harness.soak.cluster import STORAGE_CLASS
from harness.soak.observer import PLAIN

HOLD = "soak.test/hold"  # a finalizer that keeps a pod, and with it its namespace

# Lists and maps that Go omits when they are empty, or sends as null: both mean the same.
NULLABLE: dict[str, tuple[tuple[str, ...], ...]] = {
    "Pod": (
        ("metadata", "finalizers"),
        ("metadata", "ownerReferences"),
        ("spec", "nodeSelector"),
        ("spec", "initContainers"),
        ("spec", "topologySpreadConstraints"),
        ("spec", "schedulingGates"),
        ("spec", "volumes"),
        ("spec", "overhead"),
        ("status", "conditions"),
        ("status", "containerStatuses"),
        ("status", "initContainerStatuses"),
    ),
    "Node": (
        ("metadata", "finalizers"),
        ("spec", "taints"),
        ("spec", "podCIDRs"),
        ("status", "images"),
        ("status", "volumesInUse"),
        ("status", "volumesAttached"),
    ),
}
WRONG: dict[str, tuple[tuple[tuple[str, ...], Any], ...]] = {
    "Pod": (
        (("status", "phase"), 7),
        (("status", "conditions"), "none"),
        (("spec", "containers"), {"a": 1}),
        (("spec", "priority"), "high"),
    ),
    "Node": (
        (("status", "allocatable"), "much"),
        (("spec", "taints"), 5),
        (("status", "images"), [{"names": "one"}]),
        (("metadata", "labels"), ["a"]),
    ),
}


def put(obj: Object, path: tuple[str, ...], value: Any, *, absent_only: bool) -> None:
    *way, last = path
    for step in way:
        obj = obj.setdefault(step, {})
    if not absent_only or not obj.get(last):
        obj[last] = value


def kind_of(path: str) -> str:
    """The kind of a watch's path; empty for kinds that are not corrupted.

    >>> kind_of("/api/v1/pods?watch=1"), kind_of("/api/v1/services?watch=1")
    ('Pod', '')
    """
    return {"/api/v1/pods": "Pod", "/api/v1/nodes": "Node"}.get(path.partition("?")[0], "")


def with_nulls(path: str, line: bytes) -> bytes:
    """The event with null for every empty list or map."""
    kind = kind_of(path)
    if not kind:
        return line
    event = json.loads(line)
    if event["type"] in ("ADDED", "MODIFIED"):
        for field in NULLABLE[kind]:
            put(event["object"], field, None, absent_only=True)
    return json.dumps(event).encode()


class TypeChanger:
    """Gives some events a value of a wrong type, and records of which objects."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self._rng, self._share = rng, share
        self.victims: set[str] = set()  # paths of the objects

    def __call__(self, path: str, line: bytes) -> bytes:
        kind = kind_of(path)
        if not kind or self._rng.random() > self._share:
            return line
        event = json.loads(line)
        if event["type"] not in ("ADDED", "MODIFIED"):
            return line
        where, value = self._rng.choice(WRONG[kind])
        put(event["object"], where, value, absent_only=False)
        self.victims.add(object_path(kind, event["object"]["metadata"]))
        return json.dumps(event).encode()


def object_path(kind: str, meta: Object) -> str:
    if kind == "Node":
        return f"/api/v1/nodes/{meta['name']}"
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def claim(name: str) -> Object:
    room = {"resources": {"requests": {"storage": "1Gi"}}}
    return {
        "metadata": {"name": name},
        "spec": {"storageClassName": STORAGE_CLASS, "accessModes": ["ReadWriteOnce"]} | room,
    }


def volume_for(found: Object, node: str) -> Object:
    """What a provisioner creates for a claim, on the node that the scheduler chose."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    meta = found["metadata"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": meta["namespace"], "name": meta["name"]}
    return {
        "metadata": {"name": f"pv-{meta['uid']}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference | {"uid": meta["uid"]},
            "local": {"path": "/nowhere"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    }


def bare_pod(name: str, cpu: str = "100m", grace: int = 1, **spec: Any) -> Object:
    """A pod that the benchmark does not judge."""
    room = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    container = {"name": "c", "image": "registry.invalid/none", "resources": room}
    whole = {"schedulerName": "carico", "terminationGracePeriodSeconds": grace, "containers": [container]}
    return {"metadata": {"name": name, "labels": {"kind": "fault"}}, "spec": whole | spec}


def plain_pod(name: str, cpu: str, **spec: Any) -> Object:
    made = bare_pod(name, cpu, 3, **spec)
    made["metadata"]["labels"][PLAIN] = "yes"
    return made


def huge_pods(tag: str, node: str) -> list[Object]:
    """Pods whose amounts do not fit into 64 bits: on no node, on a real one, and one that waits."""
    huge = [bare_pod(f"{tag}-nowhere", "10P", nodeName="nowhere"), bare_pod(f"{tag}-there", "10P", nodeName=node)]
    huge.append(bare_pod(f"{tag}-waits", "10P"))
    most = {"requests": {"cpu": "1m", "memory": "9223372036854775807"}}
    pair = [{"name": name, "image": "registry.invalid/none", "resources": most} for name in ("a", "b")]
    return [*huge, bare_pod(f"{tag}-sum", nodeName=node, containers=pair)]
