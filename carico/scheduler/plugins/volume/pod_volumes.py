"""Shared by the volume plugins: from a pod's volumes to claims, from claims to volumes, from volumes to nodes."""

from __future__ import annotations

from typing import NamedTuple

from carico.kube.objects import Pod, Volume
from carico.kube.storage import PersistentVolume, PersistentVolumeClaim
from carico.scheduler.cache.object_store import ObjectStore
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.plugins.node_affinity import NodeTerm, any_term, terms_of


class ClaimUse(NamedTuple):
    """A claim that a pod refers to."""

    key: str  # namespace/name
    ephemeral: bool  # made for this pod by the ephemeral volume controller


def claim_use(pod: Pod, volume: Volume) -> ClaimUse | None:
    if volume.persistent_volume_claim is not None:
        return ClaimUse(f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}", False)
    if volume.ephemeral is not None:
        return ClaimUse(f"{pod.namespace}/{pod.name}-{volume.name}", True)
    return None


def claim_uses(pod: PodInfo) -> list[ClaimUse]:
    if not pod.volumes:
        return []
    found = (claim_use(pod.pod, volume) for volume in pod.volumes)
    return [use for use in found if use is not None]


def made_for(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether the pod owns the claim; another claim of the same name must not be used."""
    owner = claim.metadata.controller
    return owner is not None and owner.uid == pod.uid


def missing(use: ClaimUse) -> str:
    name = use.key.partition("/")[2]
    if use.ephemeral:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
    return f'persistentvolumeclaim "{name}" not found'


def reaches(snapshot: Snapshot, volume: PersistentVolume, rows: RowArray | None) -> Mask | None:
    """The rows from which a volume can be used; None: all of them."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return None
    # A volume's node affinity considers labels only.
    terms: tuple[NodeTerm, ...] = terms_of(affinity.required, by_name=False)
    return any_term(terms, snapshot, rows)


def uses_claim(waiting: PodInfo, key: str) -> bool:
    return any(use.key == key for use in claim_uses(waiting))


def is_own_claim(pod: PodInfo, old: object, new: PersistentVolumeClaim) -> bool:
    """A queueing hint: the claim is one of the pod's."""
    return uses_claim(pod, new.key)


def bound_volume(store: ObjectStore, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    return store.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
