"""One world written to the API server, kube-scheduler's feasible sets from it, and Carico's beside them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np

from carico.kube.objects import Node, Pod
from carico.scheduler.cache.object_store import KINDS
from carico.scheduler.cache.rows import RowIndex
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.framework.contract import Cycle
from carico.scheduler.framework.filtering import FilterRunner
from carico.scheduler.plugins import registry
from carico.testing import ManualClock
from carico.testing.random_cluster.cluster import RandomCluster
from carico.testing.random_cluster.nodes import Object
from carico.testing.random_cluster.pods import OVERHEAD_CLASS
from harness.cluster.api import Api, ApiError
from harness.cluster.errors import ClusterError

from .plane import Plane

PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Service": "/api/v1/services",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
}
LOOKS = 4  # times a difference must show, with pauses: kube-scheduler's caches may lag behind what was written
PATIENCE = 300.0  # s; on a busy machine


@dataclass
class Difference:
    pod: Object
    only_kube: set[str]
    only_carico: set[str]
    why: dict[str, Any]  # what Carico's plugins have against a node that kube-scheduler takes


@dataclass
class Result:
    pods: int = 0
    feasible_somewhere: int = 0
    differences: list[Difference] = field(default_factory=list)
    invalid: Counter[str] = field(default_factory=Counter)  # drawn, but refused by the API server, by reason
    decisive: Counter[str] = field(default_factory=Counter)  # pods for which a plugin alone refused some node

    def add(self, other: Result) -> None:
        self.pods += other.pods
        self.feasible_somewhere += other.feasible_somewhere
        self.differences += other.differences
        self.invalid += other.invalid
        self.decisive += other.decisive


def prepare(api: Api) -> None:
    """What all worlds share."""
    api.post(
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": OVERHEAD_CLASS},
            "handler": "sandboxed",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        },
    )


def write(plane: Plane, world: RandomCluster) -> None:
    """Kind by kind, and of each kind several objects at once."""
    for kind, objects in (
        ("Namespace", world.namespaces),
        ("Node", world.nodes),
        ("StorageClass", world.storage.classes),
        ("CSIDriver", world.storage.drivers),
        ("CSINode", world.storage.csi_nodes),
        ("CSIStorageCapacity", world.storage.capacities),
        ("PersistentVolume", world.storage.volumes),
        ("PersistentVolumeClaim", world.storage.claims),
        ("VolumeAttachment", world.storage.attachments),
    ):
        path = "/api/v1/nodes" if kind == "Node" else PATHS[kind]
        list(plane.threads.map(partial(create, plane.api, path), objects))
    list(plane.threads.map(partial(_create_running, plane.api), world.running))


def _create_running(api: Api, pod: Object) -> None:
    leaving = pod.pop("leaving")
    if create(api, "/api/v1/pods", pod) and leaving:
        space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        api.delete(f"/api/v1/namespaces/{space}/pods/{name}?gracePeriodSeconds=6000")


def create(api: Api, collection: str, thing: Object, invalid: list[str] | None = None) -> Object | None:
    """Create it and then its status, which creation drops; None if it is invalid, and `invalid` gets the cause."""
    space = thing["metadata"].get("namespace")
    if space:
        root, _, kind = collection.rpartition("/")
        collection = f"{root}/namespaces/{space}/{kind}"
    status = thing.get("status")
    try:
        made = api.post(collection, thing)
    except ApiError as error:
        if error.status == 422:
            if invalid is not None:
                invalid.append(_cause(error))
            return None
        raise
    if status and thing["kind"] != "Node":
        made = api.patch(f"{collection}/{thing['metadata']['name']}/status", {"status": status})
    return made


def _cause(error: ApiError) -> str:
    """The field and what is wrong with it, without the object's name."""
    return str(error).partition(" is invalid: ")[2][:100] or str(error)[:100]


def erase(api: Api, world: RandomCluster) -> None:
    """Namespaces stay (only a controller could end them), and are empty."""
    for space in world.namespaces:
        root = f"/api/v1/namespaces/{space['metadata']['name']}"
        api.delete(f"{root}/pods?gracePeriodSeconds=0")
        api.delete(f"{root}/persistentvolumeclaims")
    api.delete(f"{PATHS['CSIStorageCapacity'].replace('/v1/', '/v1/namespaces/default/')}")
    for path in ("/api/v1/nodes", "/api/v1/persistentvolumes"):
        api.delete(path)
    for kind in ("StorageClass", "CSINode", "CSIDriver", "VolumeAttachment"):
        api.delete(PATHS[kind])


def snapshot_of(api: Api) -> Snapshot:
    """The cluster as a scheduler that has just started reads it."""
    snapshot = Snapshot(RowIndex())
    for kind, path in PATHS.items():
        for thing in _list(api, path, KINDS[kind]):
            snapshot.put(thing)
    for node in _list(api, "/api/v1/nodes", Node):
        snapshot.set_node(node)
    for pod in _list(api, "/api/v1/pods", Pod):
        if pod.spec.node_name:
            snapshot.add_pod(snapshot.templates.info(pod), pod.spec.node_name)
    return snapshot


def _list(api: Api, path: str, kind: type[Any]) -> list[Any]:
    return [msgspec.convert(item, kind) for item in api.get(path)["items"]]


def filters(snapshot: Snapshot) -> FilterRunner:
    """Every filter but Pod-Capacity: as if it were without limit."""
    names = [name for name in registry.DEFAULT if name != "Capacity"]
    return FilterRunner(registry.make(names, registry.PluginTools(snapshot, ManualClock())))


def run(plane: Plane, world: RandomCluster, pods: Iterable[Object]) -> Result:
    """Both schedulers about each pod; differences that last."""
    api, result = plane.api, Result()
    invalid: list[str] = []
    drawn = list(plane.threads.map(partial(create, api, "/api/v1/pods", invalid=invalid), pods))
    result.invalid.update(invalid)
    created = [made for made in drawn if made is not None]
    decided(plane, world, created)
    snapshot = snapshot_of(api)
    ours = filters(snapshot)
    for made in created:
        result.pods += 1
        kube = plane.recorder.seen.get(made["metadata"]["uid"], frozenset())
        result.feasible_somewhere += bool(kube)
        result.decisive.update(_decisive(snapshot, ours, made))
        difference = _compared(snapshot, ours, made, kube)
        looks = 1
        while difference is not None and looks < LOOKS:
            looks += 1
            time.sleep(0.5 * looks)
            again = _again(plane, world, made, looks)
            difference = _compared(snapshot, ours, made, again)
        if difference is not None:
            result.differences.append(difference)
    return result


def _again(plane: Plane, world: RandomCluster, pod: Object, look: int) -> frozenset[str]:
    """The same pod once more, under another name."""
    name = f"{pod['metadata']['name']}-{look}"
    spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName",)}
    metadata = {"name": name, "namespace": pod["metadata"]["namespace"], "labels": pod["metadata"].get("labels", {})}
    made = plane.api.post(
        f"/api/v1/namespaces/{metadata['namespace']}/pods",
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    )
    decided(plane, world, [made])
    return plane.recorder.seen.get(made["metadata"]["uid"], frozenset())


def _compared(snapshot: Snapshot, ours: FilterRunner, made: Object, kube: frozenset[str]) -> Difference | None:
    info = snapshot.templates.info(msgspec.convert(made, Pod))
    found = ours.run(Cycle(info, snapshot), everywhere=True)
    carico = {snapshot.name(int(row)) for row in found.rows}
    if carico == kube:
        return None
    why: dict[str, Any] = {"status": found.status.message}
    for name in sorted(kube - carico)[:3]:
        if found.status.ok and name in snapshot.rows.number:
            why[name] = {plugin: [r.text for r in rs] for plugin, rs in found.why(snapshot.rows.number[name]).items()}
    return Difference(made, set(kube - carico), set(carico - kube), why)


def _decisive(snapshot: Snapshot, ours: FilterRunner, made: Object) -> set[str]:
    """The plugins without which the answer would have been another: a test of the tests."""
    found = ours.run(Cycle(snapshot.templates.info(msgspec.convert(made, Pod)), snapshot), everywhere=True)
    if not found.status.ok:
        return found.refusing
    refusals = {name: verdict.bits != 0 for name, verdict in found.verdicts}
    total = sum((mask.astype(int) for mask in refusals.values()), np.zeros(len(snapshot), dtype=int))
    return {name for name, mask in refusals.items() if (mask & (total == 1) & snapshot.present).any()}


def decided(plane: Plane, world: RandomCluster, pods: list[Object]) -> None:
    """Wait until kube-scheduler has decided about all of them: rejected by filters or by the recorder."""
    wanted = {pod["metadata"]["uid"] for pod in pods}
    deadline = time.monotonic() + PATIENCE
    while wanted:
        items = plane.api.get(f"/api/v1/namespaces/{world.namespace}/pods?fieldSelector=spec.nodeName%3D")["items"]
        wanted -= {item["metadata"]["uid"] for item in items if has_verdict(item)}
        plane.check()
        if wanted and time.monotonic() > deadline:
            raise ClusterError(
                f"kube-scheduler did not decide about {len(wanted)} pods:\n{plane.log('kube-scheduler')}"
            )
        if wanted:
            time.sleep(0.05 if len(pods) == 1 else 0.2)


def has_verdict(pod: Object) -> bool:
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in pod["status"].get("conditions", ()))
