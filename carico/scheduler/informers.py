"""The watches of the scheduler: every kind of object that it follows, with the type it is decoded to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from carico.clock import Clock
from carico.kube import calls, objects, storage
from carico.kube.client import Client
from carico.kube.delivery import Change
from carico.kube.meta import NamedObject
from carico.kube.mirror import OnUndecodable, ignore
from carico.kube.watch import Reflector, WatchedResource
from carico.scheduler.cluster_cache import ClusterCache
from carico.scheduler.metrics import SchedulerMetrics

# Pods that have ended take no room: with this selector the API server sends a deletion event when a pod ends.
LIVE = "&fieldSelector=status.phase!=Succeeded,status.phase!=Failed"
PODS: WatchedResource[objects.Pod] = WatchedResource(calls.FOLLOW_PODS, objects.Pod, LIVE)
NODES: WatchedResource[objects.Node] = WatchedResource(calls.FOLLOW_NODES, objects.Node)
OTHERS: tuple[WatchedResource[Any], ...] = (
    WatchedResource(calls.FOLLOW_NAMESPACES, objects.Namespace),
    WatchedResource(calls.FOLLOW_SERVICES, objects.Service),
    WatchedResource(calls.FOLLOW_REPLICATION_CONTROLLERS, objects.ReplicationController),
    WatchedResource(calls.FOLLOW_REPLICA_SETS, objects.ReplicaSet),
    WatchedResource(calls.FOLLOW_STATEFUL_SETS, objects.StatefulSet),
    WatchedResource(calls.FOLLOW_DISRUPTION_BUDGETS, objects.PodDisruptionBudget),
    WatchedResource(calls.FOLLOW_DEVICE_CLASSES, objects.DeviceClass),
    WatchedResource(calls.FOLLOW_CLAIMS, storage.PersistentVolumeClaim),
    WatchedResource(calls.FOLLOW_VOLUMES, storage.PersistentVolume),
    WatchedResource(calls.FOLLOW_STORAGE_CLASSES, storage.StorageClass),
    WatchedResource(calls.FOLLOW_CSI_NODES, storage.CSINode),
    WatchedResource(calls.FOLLOW_CSI_DRIVERS, storage.CSIDriver),
    WatchedResource(calls.FOLLOW_STORAGE_CAPACITIES, storage.CSIStorageCapacity),
    WatchedResource(calls.FOLLOW_ATTACHMENTS, storage.VolumeAttachment),
)


STUCK_AFTER = 150.0  # s without event or bookmark; the API server sends a bookmark every minute

T = TypeVar("T", bound=NamedObject)


def counted_reflector(
    client: Client,
    resource: WatchedResource[T],
    on_change: Change[T],
    clock: Clock,
    metrics: SchedulerMetrics | None,
    *,
    on_undecodable: OnUndecodable = ignore,
) -> Reflector[T]:
    """A reflector whose errors are counted in the metrics."""
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
    """The lines of `/readyz?verbose` about each watch, in kube-apiserver's format."""
    for reflector in reflectors:
        name, age = reflector.resource.plural, now - reflector.progressed_at
        if not reflector.synced.is_set():
            yield f"[-]watch {name} failed: no list is complete yet"
        elif age > STUCK_AFTER:
            yield f"[-]watch {name} stuck: no event and no bookmark for {age:.0f} s"
        else:
            yield f"[+]watch {name} ok: {age:.0f} s since its last event or bookmark"


class Informers:
    """All reflectors of one scheduler."""

    def __init__(
        self,
        client: Client,
        cluster: ClusterCache,
        clock: Clock,
        metrics: SchedulerMetrics | None = None,
        *,
        registered: Iterable[WatchedResource[Any]] = (),
    ) -> None:
        """`registered`: kinds that plugins follow (framework/registrations.py)."""
        self._client, self._clock, self._metrics = client, clock, metrics
        self.pods = self._reflector(PODS, cluster.pod_changed, cluster.pod_undecodable)
        self.nodes = self._reflector(NODES, cluster.node_changed, cluster.node_undecodable)
        self.others = [self._reflector(resource, cluster.thing_changed) for resource in (*OTHERS, *registered)]

    @property
    def all(self) -> list[Reflector[Any]]:
        return [*self.others, self.nodes, self.pods]

    def _reflector(
        self, resource: WatchedResource[T], on_change: Change[T], on_undecodable: OnUndecodable = ignore
    ) -> Reflector[T]:
        return counted_reflector(
            self._client, resource, on_change, self._clock, self._metrics, on_undecodable=on_undecodable
        )

    async def run(self) -> None:
        """Runs all reflectors, indefinitely. Pods start last, when the objects that they refer to are known."""
        async with asyncio.TaskGroup() as group:
            for reflector in [*self.others, self.nodes]:
                group.create_task(reflector.run())
            for reflector in [*self.others, self.nodes]:
                await reflector.synced.wait()
            group.create_task(self.pods.run())

    async def wait_for_sync(self) -> None:
        for reflector in self.all:
            await reflector.synced.wait()

    @property
    def is_synced(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self.all)
