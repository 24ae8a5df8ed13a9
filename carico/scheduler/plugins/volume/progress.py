"""State of the volumes of a pod in flight, after its choice of volumes was written to the API server."""

from __future__ import annotations

import numpy as np

from carico.kube.storage import SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.plugins.volume.matching import Match
from carico.scheduler.plugins.volume.pod_volumes import bound_volume, reaches


def progress(snapshot: Snapshot, match: Match, node: str) -> str | None:
    """None while volumes are still pending, "" when all are bound, otherwise why the binding cannot succeed."""
    row = snapshot.rows.number.get(node)
    if row is None or not snapshot.present[row]:
        return f"node {node} was deleted"
    for claim, volume in match.static:
        if problem := _taken_back(snapshot.store.volumes.get(volume.name), volume.name, claim):
            return problem
    found = [_of_claim(snapshot, claim, row, "") for claim, _ in match.static]
    found += [_of_claim(snapshot, claim, row, node) for claim in match.dynamic]
    return next((problem for problem in found if problem), None if None in found else "")


def _of_claim(snapshot: Snapshot, chosen: PersistentVolumeClaim, row: int, provisioning_on: str) -> str | None:
    claim = snapshot.store.claims.get(chosen.key)
    if claim is None or claim.uid != chosen.uid:
        return f"claim {chosen.key} was deleted"
    # A provisioner that fails removes the selected node from the claim, so that the pod is scheduled again.
    selected = claim.metadata.annotations.get(SELECTED_NODE)
    if provisioning_on and not claim.bound and selected != provisioning_on:
        return f"provisioning of {claim.key} failed for node {provisioning_on}"
    volume = bound_volume(snapshot.store, claim)
    if volume is not None and not _usable(snapshot, volume, row):
        return f"volume {volume.name} of claim {claim.key} cannot be used from the node (node affinity)"
    return "" if claim.bound and volume is not None else None


def _taken_back(volume: PersistentVolume | None, name: str, claim: PersistentVolumeClaim) -> str:
    """What the volume controller did to a volume that was chosen for the claim; "" if it is still the claim's."""
    if volume is None:
        return f"volume {name} was deleted"
    ref = volume.spec.claim_ref
    if ref is None or not ref.uid:
        return f"the claimRef of volume {name} was reset"
    return "" if ref.uid == claim.uid else f"volume {name} was taken by claim {ref.namespace}/{ref.name}"


def _usable(snapshot: Snapshot, volume: PersistentVolume, row: int) -> bool:
    reached = reaches(snapshot, volume, np.array([row], dtype=np.intp))
    return reached is None or bool(reached[0])
