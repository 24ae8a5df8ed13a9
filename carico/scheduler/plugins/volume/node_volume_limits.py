"""NodeVolumeLimits plugin: how many volumes of a CSI driver a node can attach."""

from __future__ import annotations

from collections import Counter

import numpy as np

from carico.kube.objects import Pod
from carico.kube.storage import CSINode, PersistentVolumeClaim
from carico.scheduler.cache.object_store import ObjectStore
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo, relevant_volumes
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import (
    OK,
    SKIP,
    CostlyFilter,
    Cycle,
    PreFilter,
    Reason,
    Reuse,
    Status,
    Verdict,
    error,
    unresolvable,
)
from carico.scheduler.plugins.volume.pod_volumes import (
    bound_volume,
    claim_uses,
    is_own_claim,
    made_for,
    missing,
)

EXCEEDED = Reason("node(s) exceed max volume count")

Attachments = dict[tuple[str, str], str]  # (driver, volume) to driver


class NodeVolumeLimits(PreFilter, CostlyFilter):
    name = "NodeVolumeLimits"
    reuse = Reuse.NEVER
    costly = True

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("CSINode", Action.ADD),
            EventInterest("CSINode", Action.UPDATE, _raised),
            EventInterest("Pod", Action.DELETE, _detached),
            EventInterest("PersistentVolumeClaim", Action.ADD, is_own_claim),
            EventInterest("VolumeAttachment", Action.DELETE, _has_claims),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        uses = claim_uses(cycle.pod)
        if not uses:
            return SKIP
        for use in uses:
            claim = cycle.snapshot.store.claims.get(use.key)
            if claim is None:
                return unresolvable(missing(use))
            if use.ephemeral and not made_for(cycle.pod.pod, claim):
                return error(f"PVC {use.key} was not created for pod {cycle.pod.pod.key} (pod is not owner)")
        wanted = attachments(cycle.pod, cycle.snapshot.store)
        cycle.state[self.name] = wanted
        return OK if wanted else SKIP

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        candidates = cycle.snapshot.all_rows() if rows is None else rows
        wanted: Attachments = cycle.state[self.name]
        refused = np.array([_exceeds(cycle.snapshot, int(row), wanted) for row in candidates], dtype=np.bool_)
        return Verdict(refused.view(np.uint8), (EXCEEDED,))


def attachments(pod: PodInfo, store: ObjectStore) -> Attachments:
    """The volumes that a pod needs attached; claims that do not exist are not counted."""
    found: Attachments = {}
    for use in claim_uses(pod):
        claim = store.claims.get(use.key)
        if claim is None or (use.ephemeral and not made_for(pod.pod, claim)):
            continue
        driver, handle = _driver(claim, store)
        if driver:
            found[driver, handle] = driver
    return found


def _driver(claim: PersistentVolumeClaim, store: ObjectStore) -> tuple[str, str]:
    volume = bound_volume(store, claim)
    if volume is not None:
        return (volume.spec.csi.driver, volume.spec.csi.volume_handle) if volume.spec.csi is not None else ("", "")
    storage_class = store.storage_classes.get(claim.class_name)
    # Not provisioned yet: the claim itself represents the future volume.
    return (storage_class.provisioner, f"claim {claim.key}") if storage_class is not None else ("", "")


def _exceeds(snapshot: Snapshot, row: int, wanted: Attachments) -> bool:
    csi_node = snapshot.store.csi_nodes.get(snapshot.name(row))
    limits = csi_node.limits() if csi_node is not None else {}
    least = min((limits[driver] for driver in wanted.values() if driver in limits), default=None)
    if least is None or _at_most(snapshot, row) + len(wanted) <= least:
        return False
    used: Attachments = {}
    for uid in snapshot.with_volumes.get(row, ()):
        used.update(attachments(snapshot.on[row][uid], snapshot.store))
    attached = Counter((used | _attached(snapshot.store, snapshot.name(row))).values())
    new = Counter(driver for volume, driver in wanted.items() if volume not in used)
    return any(driver in limits and attached[driver] + count > limits[driver] for driver, count in new.items())


def _at_most(snapshot: Snapshot, row: int) -> int:
    """An upper bound on the volumes used or attached there, of any driver: cheap, and usually enough to decide."""
    used = sum(len(snapshot.on[row][uid].volumes) for uid in snapshot.with_volumes.get(row, ()))
    return used + len(snapshot.store.attachments_on.get(snapshot.name(row), ()))


def _attached(store: ObjectStore, node: str) -> Attachments:
    """What is attached already, including volumes of pods that have just ended."""
    found: Attachments = {}
    for attachment in store.attachments_on.get(node, {}).values():
        volume = store.volumes.get(attachment.spec.source.persistent_volume_name or "")
        if attachment.spec.attacher and volume is not None and volume.spec.csi is not None:
            found[attachment.spec.attacher, volume.spec.csi.volume_handle] = attachment.spec.attacher
    return found


def _raised(pod: PodInfo, old: CSINode, new: CSINode) -> bool:
    before = old.limits()
    return any(limit > before.get(driver, 0) for driver, limit in new.limits().items())


def _detached(pod: PodInfo, old: Pod, new: object) -> bool:
    claims = (v for v in relevant_volumes(old.spec) if v.persistent_volume_claim is not None or v.ephemeral is not None)
    return bool(old.spec.node_name) and any(True for _ in claims)


def _has_claims(pod: PodInfo, old: object, new: object) -> bool:
    return bool(claim_uses(pod))
