"""Every kind of object that the scheduler follows, and where the API server has it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from carico.clock import Clock
from carico.kube import objects, storage
from carico.kube.client import Client
from carico.kube.delivery import Change
from carico.kube.meta import NamedObject
from carico.kube.mirror import Undecodable, ignore
from carico.kube.watch import Reflector, Resource
from carico.scheduler.cluster import Cluster
from carico.scheduler.metrics import SchedulerMetrics

# Pods that have ended take no room: the API server need not send them, and tells of the ending as of a deletion.
LIVE = "&fieldSelector=status.phase!=Succeeded,status.phase!=Failed"
PODS: Resource[objects.Pod] = Resource("/api/v1/pods", objects.Pod, LIVE)
NODES: Resource[objects.Node] = Resource("/api/v1/nodes", objects.Node)
OTHERS: tuple[Resource[Any], ...] = (
    Resource("/api/v1/namespaces", objects.Namespace),
    Resource("/api/v1/services", objects.Service),
    Resource("/api/v1/replicationcontrollers", objects.ReplicationController),
    Resource("/apis/apps/v1/replicasets", objects.ReplicaSet),
    Resource("/apis/apps/v1/statefulsets", objects.StatefulSet),
    Resource("/apis/policy/v1/poddisruptionbudgets", objects.PodDisruptionBudget),
    Resource("/apis/resource.k8s.io/v1/deviceclasses", objects.DeviceClass, optional=True),
    Resource("/api/v1/persistentvolumeclaims", storage.PersistentVolumeClaim),
    Resource("/api/v1/persistentvolumes", storage.PersistentVolume),
    Resource("/apis/storage.k8s.io/v1/storageclasses", storage.StorageClass),
    Resource("/apis/storage.k8s.io/v1/csinodes", storage.CSINode),
    Resource("/apis/storage.k8s.io/v1/csidrivers", storage.CSIDriver),
    Resource("/apis/storage.k8s.io/v1/csistoragecapacities", storage.CSIStorageCapacity),
    Resource("/apis/storage.k8s.io/v1/volumeattachments", storage.VolumeAttachment),
)


STUCK_AFTER = 150.0  # s without event or bookmark; the API server sends a bookmark every minute

T = TypeVar("T", bound=NamedObject)


def counted_reflector(
    client: Client,
    resource: Resource[T],
    on_change: Change[T],
    clock: Clock,
    metrics: SchedulerMetrics | None,
    *,
    on_undecodable: Undecodable = ignore,
) -> Reflector[T]:
    """A reflector whose troubles are in the metrics."""
    if metrics is None:
        return Reflector(client, resource, on_change, on_undecodable=on_undecodable, clock=clock)
    return Reflector(
        client,
        resource,
        on_change,
        on_undecodable=on_undecodable,
        count_undecodable=metrics.undecodable.labels(resource.kind).inc,
        count_handler_error=metrics.handler_errors.labels(resource.kind).inc,
        clock=clock,
    )


def progress_lines(reflectors: Iterable[Reflector[Any]], now: float) -> Iterator[str]:
    """What `/readyz?verbose` says of each watch, in kube-apiserver's form."""
    for reflector in reflectors:
        name, age = reflector.resource.plural, now - reflector.progressed_at
        if not reflector.synced.is_set():
            yield f"[-]watch {name} failed: no list is complete yet"
        elif age > STUCK_AFTER:
            yield f"[-]watch {name} stuck: no event and no bookmark for {age:.0f} s"
        else:
            yield f"[+]watch {name} ok: {age:.0f} s since its last event or bookmark"


class Watches:
    """All reflectors of one scheduler."""

    def __init__(self, client: Client, cluster: Cluster, clock: Clock, metrics: SchedulerMetrics | None = None) -> None:
        self._client, self._clock, self._metrics = client, clock, metrics
        self.pods = self._reflector(PODS, cluster.pod_changed, cluster.pod_undecodable)
        self.nodes = self._reflector(NODES, cluster.node_changed)
        self.others = [self._reflector(resource, cluster.thing_changed) for resource in OTHERS]

    @property
    def all(self) -> list[Reflector[Any]]:
        return [*self.others, self.nodes, self.pods]

    def _reflector(
        self, resource: Resource[T], on_change: Change[T], on_undecodable: Undecodable = ignore
    ) -> Reflector[T]:
        return counted_reflector(
            self._client, resource, on_change, self._clock, self._metrics, on_undecodable=on_undecodable
        )

    async def run(self) -> None:
        """Follows everything, for ever. Pods come last: what they refer to is known by then."""
        async with asyncio.TaskGroup() as group:
            for reflector in [*self.others, self.nodes]:
                group.create_task(reflector.run())
            for reflector in [*self.others, self.nodes]:
                await reflector.synced.wait()
            group.create_task(self.pods.run())

    async def synced(self) -> None:
        for reflector in self.all:
            await reflector.synced.wait()

    @property
    def is_synced(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self.all)
