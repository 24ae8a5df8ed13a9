"""VolumeZone plugin: volumes with a zone or region label can only be used from nodes of that zone or region."""

from __future__ import annotations

import numpy as np

from carico.kube.selectors import Requirement
from carico.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from carico.scheduler.cache.label_columns import MISSING
from carico.scheduler.cache.object_store import ObjectStore
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import OK, SKIP, Cycle, Filter, PreFilter, Reuse, Status, Verdict, unresolvable
from carico.scheduler.plugins.volume.pod_volumes import claim_uses, is_own_claim, missing

# Deprecated label → the label that replaced it.
TODAY = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
KEYS = (*TODAY, *TODAY.values())


def zones(volume: PersistentVolume) -> list[Requirement]:
    """Where the volume can be used, from its labels; several zones are written `a__b`."""
    found = []
    for key in KEYS:
        values = [value.strip() for value in volume.metadata.labels.get(key, "").split("__")]
        if key in volume.metadata.labels and all(values):
            found.append(Requirement(key, "In", frozenset(values)))
    return found


class VolumeZone(PreFilter, Filter):
    name = "VolumeZone"
    reuse = Reuse.NEVER  # claims and volumes change independently of nodes

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("StorageClass", Action.ADD, _waits_for_consumer),
            EventInterest("Node", Action.ADD | Action.NODE_LABEL),
            EventInterest("PersistentVolumeClaim", Action.ADD | Action.UPDATE, is_own_claim),
            EventInterest("PersistentVolume", Action.ADD | Action.UPDATE),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        wanted: list[Requirement] = []
        for use in claim_uses(cycle.pod):
            if use.ephemeral:
                continue
            claim = cycle.snapshot.store.claims.get(use.key)
            if claim is None:
                return unresolvable(missing(use))
            volume = cycle.snapshot.store.volumes.get(claim.spec.volume_name)
            if volume is None:
                problem = _unbound(claim, cycle.snapshot.store)
                if problem:
                    return unresolvable(problem)
            else:
                wanted += zones(volume)
        cycle.state[self.name] = wanted
        return OK if wanted else SKIP

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        """Nodes without any zone label are taken to reach every volume: single-zone clusters have none."""
        zoned = _zoned(cycle.snapshot, rows)
        refused = np.zeros(len(zoned), dtype=np.bool_)
        for wanted in cycle.state[self.name]:
            refused |= zoned & ~_within(cycle.snapshot, wanted, rows)
        return Verdict.refuse(refused, "node(s) had no available volume zone", unresolvable=True)


def _unbound(claim: PersistentVolumeClaim, store: ObjectStore) -> str:
    """Why a claim without a volume is a problem; empty if it may wait for its first consumer."""
    if claim.spec.volume_name:
        return f'persistentvolume "{claim.spec.volume_name}" not found'
    if not claim.class_name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = store.storage_classes.get(claim.class_name)
    if storage_class is None:
        return f'storageclass.storage.k8s.io "{claim.class_name}" not found'
    return "" if storage_class.volume_binding_mode == "WaitForFirstConsumer" else "PersistentVolume had no name"


def _zoned(snapshot: Snapshot, rows: RowArray | None) -> Mask:
    mask = np.zeros(len(snapshot) if rows is None else len(rows), dtype=np.bool_)
    for key in KEYS:
        mask |= snapshot.labels.codes(key, rows) != MISSING
    return mask


def _within(snapshot: Snapshot, wanted: Requirement, rows: RowArray | None) -> Mask:
    """Rows that match by the volume's own label or, if a row lacks that label, by the one that replaced it."""
    mask = snapshot.labels.matching([wanted], rows)
    today = TODAY.get(wanted.key)
    if today is not None:
        lacking = snapshot.labels.codes(wanted.key, rows) == MISSING
        mask |= lacking & snapshot.labels.matching([Requirement(today, "In", wanted.values)], rows)
    return mask


def _waits_for_consumer(pod: PodInfo, old: object, new: StorageClass) -> bool:
    return new.volume_binding_mode == "WaitForFirstConsumer"
