"""The cache of the other objects that scheduling depends on, as last delivered by the watches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
K = TypeVar("K", bound=KubeObject)

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


class ObjectStore:
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
        # By kind and key: the last object of the watch, and the objects that are assumed instead, the newest last.
        self._assumed: dict[tuple[str, str], tuple[KubeObject, list[KubeObject]]] = {}
        self._listeners: dict[tuple[str, str], list[Callable[[], None]]] = {}  # by kind and key
        self.on_restore: Callable[[KubeObject, KubeObject], object] = _ignore  # what was assumed, and what is again
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

    def has_kind(self, kind: str) -> bool:
        return kind in self._tables

    def table(self, kind: type[K]) -> dict[str, K]:
        """The objects of a kind that a plugin has registered, by key."""
        return self._tables.setdefault(kind.__name__, {})

    def put(self, obj: KubeObject) -> None:
        kind = type(obj).__name__
        assumed = self._assumed.get((kind, obj.key))
        if assumed is not None:
            if assumed[0].metadata.resource_version == obj.metadata.resource_version:
                return  # the version before the assumption: what was assumed since then stays
            del self._assumed[kind, obj.key]
        self._tables[kind][obj.key] = obj
        if isinstance(obj, Service):
            self.services_in[obj.namespace][obj.key] = obj
        elif isinstance(obj, VolumeAttachment):
            self.attachments_on[obj.spec.node_name][obj.key] = obj
        self._notify(obj)

    def remove(self, obj: KubeObject) -> None:
        self._assumed.pop((type(obj).__name__, obj.key), None)
        self._tables[type(obj).__name__].pop(obj.key, None)
        if isinstance(obj, Service):
            _drop(self.services_in, obj.namespace, obj.key)
        elif isinstance(obj, VolumeAttachment):
            _drop(self.attachments_on, obj.spec.node_name, obj.key)
        self._notify(obj)

    @contextmanager
    def listening(self, names: Iterable[tuple[str, str]], on_change: Callable[[], None]) -> Iterator[None]:
        """Calls back on every watch event of these objects (kind, key); an event of a volume counts for its claim too.

        The callback must not raise: it runs inside the delivery of the event.
        """
        names = list(names)
        for name in names:
            self._listeners.setdefault(name, []).append(on_change)
        try:
            yield
        finally:
            for name in names:
                self._listeners[name].remove(on_change)
                if not self._listeners[name]:
                    del self._listeners[name]

    def assume(self, obj: KubeObject) -> None:
        """Assumes an update of this object, until the watch delivers a new version or `restore` is called."""
        kind = type(obj).__name__
        present = self._tables[kind].get(obj.key)
        if present is not None:
            self._assumed.setdefault((kind, obj.key), (present, []))[1].append(obj)
            self._tables[kind][obj.key] = obj

    def restore(self, obj: KubeObject) -> None:
        """Undoes `assume` of this object, and of no other; no effect if a watch event came first."""
        name = type(obj).__name__, obj.key
        real, assumed = self._assumed.get(name, (obj, []))
        if obj in assumed:
            assumed.remove(obj)
            present = self._tables[name[0]][obj.key] = assumed[-1] if assumed else real
            if not assumed:
                del self._assumed[name]
            self.on_restore(obj, present)

    def _notify(self, obj: KubeObject) -> None:
        if not self._listeners:
            return
        concerned = [(type(obj).__name__, obj.key)]
        if isinstance(obj, PersistentVolume) and (ref := obj.spec.claim_ref) is not None:
            concerned.append(("PersistentVolumeClaim", f"{ref.namespace}/{ref.name}"))
        for name in concerned:
            for on_change in list(self._listeners.get(name, ())):
                on_change()

    def namespace_labels(self, name: str) -> dict[str, str]:
        namespace = self.namespaces.get(name)
        return {} if namespace is None else namespace.metadata.labels


def _ignore(*_: object) -> None:
    """The default callback."""


def _drop(table: dict[str, dict[str, T]], where: str, key: str) -> None:
    """Removes the key, and the entry of a namespace or node that becomes empty."""
    if where in table:
        table[where].pop(key, None)
        if not table[where]:
            del table[where]
