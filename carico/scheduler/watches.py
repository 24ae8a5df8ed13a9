"""Every kind of object that the scheduler follows, and where the API server has it."""

from __future__ import annotations

import asyncio
from typing import Any

from carico.clock import Clock
from carico.kube import objects, storage
from carico.kube.client import Client
from carico.kube.watch import Reflector, Resource
from carico.scheduler.cluster import Cluster

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


class Watches:
    """All reflectors of one scheduler."""

    def __init__(self, client: Client, cluster: Cluster, clock: Clock) -> None:
        self.pods = Reflector(client, PODS, cluster.pod_changed, clock=clock)
        self.nodes = Reflector(client, NODES, cluster.node_changed, clock=clock)
        self.others = [Reflector(client, resource, cluster.thing_changed, clock=clock) for resource in OTHERS]

    @property
    def all(self) -> list[Reflector[Any]]:
        return [*self.others, self.nodes, self.pods]

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
