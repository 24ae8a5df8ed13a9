"""The other objects of the cluster that decide about a placement, as the watches last told them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeVar

from carico.kube import objects, storage
from carico.kube.meta import KubeObject
from carico.kube.objects import (
    DeviceClass,
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from carico.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

T = TypeVar("T")

KINDS: dict[str, type[KubeObject]] = {
    kind.__name__: kind
    for kind in (
        objects.Namespace,
        objects.Service,
        objects.ReplicationController,
        objects.ReplicaSet,
        objects.StatefulSet,
        objects.PodDisruptionBudget,
        objects.DeviceClass,
        storage.PersistentVolumeClaim,
        storage.PersistentVolume,
        storage.StorageClass,
        storage.CSINode,
        storage.CSIDriver,
        storage.CSIStorageCapacity,
        storage.VolumeAttachment,
    )
}


class Store:
    """Objects by kind and key (`namespace/name`, or the name)."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        self.services: dict[str, Service] = {}
        self.replication_controllers: dict[str, ReplicationController] = {}
        self.replica_sets: dict[str, ReplicaSet] = {}
        self.stateful_sets: dict[str, StatefulSet] = {}
        self.disruption_budgets: dict[str, PodDisruptionBudget] = {}
        self.device_classes: dict[str, DeviceClass] = {}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.storage_classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.csi_drivers: dict[str, CSIDriver] = {}
        self.storage_capacities: dict[str, CSIStorageCapacity] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        self.services_in: defaultdict[str, dict[str, Service]] = defaultdict(dict)  # by namespace
        self.attachments_on: defaultdict[str, dict[str, VolumeAttachment]] = defaultdict(dict)  # by node
        self._real: dict[tuple[str, str], KubeObject] = {}  # what assumed objects stand in for, by kind and key
        self._tables: dict[str, dict[str, Any]] = {
            "Namespace": self.namespaces,
            "Service": self.services,
            "ReplicationController": self.replication_controllers,
            "ReplicaSet": self.replica_sets,
            "StatefulSet": self.stateful_sets,
            "PodDisruptionBudget": self.disruption_budgets,
            "DeviceClass": self.device_classes,
            "PersistentVolumeClaim": self.claims,
            "PersistentVolume": self.volumes,
            "StorageClass": self.storage_classes,
            "CSINode": self.csi_nodes,
            "CSIDriver": self.csi_drivers,
            "CSIStorageCapacity": self.storage_capacities,
            "VolumeAttachment": self.attachments,
        }

    def put(self, thing: KubeObject) -> None:
        kind = type(thing).__name__
        real = self._real.get((kind, thing.key))
        if real is not None:
            if real.metadata.resource_version == thing.metadata.resource_version:
                return  # the same old news: what was assumed since then stands
            del self._real[kind, thing.key]
        self._tables[kind][thing.key] = thing
        if isinstance(thing, Service):
            self.services_in[thing.namespace][thing.key] = thing
        elif isinstance(thing, VolumeAttachment):
            self.attachments_on[thing.spec.node_name][thing.key] = thing

    def remove(self, thing: KubeObject) -> None:
        self._real.pop((type(thing).__name__, thing.key), None)
        self._tables[type(thing).__name__].pop(thing.key, None)
        if isinstance(thing, Service):
            _drop(self.services_in, thing.namespace, thing.key)
        elif isinstance(thing, VolumeAttachment):
            _drop(self.attachments_on, thing.spec.node_name, thing.key)

    def assume(self, thing: KubeObject) -> None:
        """Act as if an update of this object had been made, until the watch brings news of it or it is restored."""
        kind = type(thing).__name__
        real = self._tables[kind].get(thing.key)
        if real is not None:
            self._real.setdefault((kind, thing.key), real)
            self._tables[kind][thing.key] = thing

    def restore(self, thing: KubeObject) -> None:
        """Undo `assume`; harmless when the watch was faster."""
        kind = type(thing).__name__
        real = self._real.pop((kind, thing.key), None)
        if real is not None:
            self._tables[kind][thing.key] = real

    def namespace_labels(self, name: str) -> dict[str, str]:
        namespace = self.namespaces.get(name)
        return {} if namespace is None else namespace.metadata.labels


def _drop(table: dict[str, dict[str, T]], where: str, key: str) -> None:
    """Namespaces and nodes come and go: an empty one leaves nothing behind."""
    if where in table:
        table[where].pop(key, None)
        if not table[where]:
            del table[where]
