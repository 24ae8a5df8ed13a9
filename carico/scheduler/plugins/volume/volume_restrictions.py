"""VolumeRestrictions plugin: disks that only one pod at a time may write, and claims for a single pod."""

from __future__ import annotations

import numpy as np

from carico.kube.objects import Pod, Volume
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo, relevant_volumes
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import (
    OK,
    SKIP,
    Cycle,
    Filter,
    PreFilter,
    PreFilterExtensions,
    Reason,
    Reuse,
    Status,
    Verdict,
    unresolvable,
)
from carico.scheduler.plugins.volume.pod_volumes import claim_use, claim_uses, is_own_claim, missing, uses_claim

CONFLICT = Reason("node(s) had no available disk")
SINGLE_POD = Reason(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def exclusive(volume: Volume) -> bool:
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.iscsi is not None
        or volume.rbd is not None
    )


def conflict(a: Volume, b: Volume) -> bool:
    """Whether two pods with these volumes cannot share a node: the same disk, and at least one of them writes."""
    if a.gce_persistent_disk and b.gce_persistent_disk:
        same = a.gce_persistent_disk.pd_name == b.gce_persistent_disk.pd_name
        return same and not (a.gce_persistent_disk.read_only and b.gce_persistent_disk.read_only)
    if a.aws_elastic_block_store and b.aws_elastic_block_store:
        return a.aws_elastic_block_store.volume_id == b.aws_elastic_block_store.volume_id
    if a.iscsi and b.iscsi:
        return a.iscsi.iqn == b.iscsi.iqn and not (a.iscsi.read_only and b.iscsi.read_only)
    if a.rbd and b.rbd:
        same = a.rbd.pool == b.rbd.pool and a.rbd.image == b.rbd.image
        shared = not set(a.rbd.monitors).isdisjoint(b.rbd.monitors)
        return same and shared and not (a.rbd.read_only and b.rbd.read_only)
    return False


class VolumeRestrictions(PreFilter, PreFilterExtensions, Filter):
    name = "VolumeRestrictions"
    reuse = Reuse.NEVER  # a claim may be in use anywhere

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("Pod", Action.DELETE, _freed),
            EventInterest("Node", Action.ADD),
            EventInterest("PersistentVolumeClaim", Action.ADD, is_own_claim),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        disks = [v for v in cycle.pod.volumes if exclusive(v)]
        single: list[str] = []
        for use in claim_uses(cycle.pod):
            claim = cycle.snapshot.store.claims.get(use.key)
            if use.ephemeral:
                continue
            if claim is None:
                return unresolvable(missing(use))
            if "ReadWriteOncePod" in claim.spec.access_modes:
                single.append(use.key)
        in_use = sum(1 for key in single if cycle.snapshot.claim_in_use(key))
        if not disks and not in_use:
            return SKIP
        cycle.state[self.name] = [disks, set(single), in_use]
        return OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        disks, _, in_use = cycle.state[self.name]
        snapshot = cycle.snapshot
        clash = np.zeros(len(snapshot), dtype=np.bool_)
        for row, users in snapshot.with_volumes.items() if disks else ():
            clash[row] = any(conflict(a, b) for a in disks for uid in users for b in snapshot.on[row][uid].volumes)
        bits = (clash if rows is None else clash[rows]).astype(np.uint8)
        if in_use > 0:
            bits |= np.uint8(2)
        return Verdict(bits, (CONFLICT, SINGLE_POD))

    def add_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        cycle.state[self.name][2] += _sharing(cycle, pod, cycle.state[self.name][1])

    def remove_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        cycle.state[self.name][2] -= _sharing(cycle, pod, cycle.state[self.name][1])


def _sharing(cycle: Cycle, pod: PodInfo, single: set[str]) -> int:
    return sum(1 for use in claim_uses(pod) if not use.ephemeral and use.key in single)


def _freed(pod: PodInfo, old: Pod, new: object) -> bool:
    if old.namespace != pod.pod.namespace:
        return False
    theirs = relevant_volumes(old.spec)
    if any(conflict(a, b) for a in pod.volumes for b in theirs):
        return True
    return any(use is not None and uses_claim(pod, use.key) for use in (claim_use(old, v) for v in theirs))
