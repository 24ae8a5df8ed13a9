"""Which volume, or which provisioner, can serve a claim that waits for its first consumer, and from which nodes.

Each claim has candidate volumes (each reaches certain rows) and may have a provisioner (which serves certain rows).
Rows that the same candidates reach share one result, so the matching runs once per pattern, not per node.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1472-storage-capacity-tracking
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from carico.kube import quantity
from carico.kube.selectors import Requirement, from_selector
from carico.kube.storage import (
    NO_PROVISIONER,
    SELECTED_NODE,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from carico.scheduler.cache.object_store import ObjectStore
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.plugins.volume.pod_volumes import reaches

STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class VolumeCandidate:
    volume: PersistentVolume
    size: Fraction  # bytes
    reached: Mask | None  # which of the requested rows; None: all
    reserved: bool  # its claimRef names this claim


@dataclass(frozen=True, slots=True)
class UnboundClaim:
    """A claim without a volume, and what could give it one."""

    claim: PersistentVolumeClaim
    candidates: tuple[VolumeCandidate, ...]  # smallest first; the one reserved for the claim, if any, before all others
    at: Mask | None  # rows that its provisioner must use; None: no node was selected yet
    provisionable: Mask  # rows where a new volume could be made
    roomy: Mask  # rows where there is room for it


@dataclass(frozen=True, slots=True)
class Match:
    """How the claims of a pod would be served on a node."""

    static: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    dynamic: tuple[PersistentVolumeClaim, ...] = ()
    served: bool = True
    room: bool = True


def wish(snapshot: Snapshot, claim: PersistentVolumeClaim, rows: RowArray) -> UnboundClaim:
    storage_class = snapshot.store.storage_classes[claim.class_name]
    selected = claim.metadata.annotations.get(SELECTED_NODE)
    at = None if selected is None else np.asarray(rows == snapshot.rows.number.get(selected, -1))
    candidates = tuple(sorted(_candidates(snapshot, claim, rows), key=lambda c: (not c.reserved, c.size)))
    return UnboundClaim(
        claim,
        candidates,
        at,
        _provisionable(snapshot, storage_class, rows),
        _roomy(snapshot, claim, storage_class, rows),
    )


def size_of(claim: PersistentVolumeClaim) -> Fraction:
    return quantity.parse(claim.spec.resources.requests.get(STORAGE, "0"))


def _candidates(snapshot: Snapshot, claim: PersistentVolumeClaim, rows: RowArray) -> Iterator[VolumeCandidate]:
    wanted = size_of(claim)
    selector = None if claim.spec.selector is None else from_selector(claim.spec.selector)
    for volume in snapshot.store.volumes.values():
        size = _offered(volume.spec.capacity.get(STORAGE, "0"))
        if size < wanted or not _usable(volume, claim):
            continue
        reserved = volume.spec.claim_ref is not None
        if not reserved:
            if volume.status.phase != "Available" or not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
                continue
            if selector is not None and not selector.matches(volume.metadata.labels):
                continue
        yield VolumeCandidate(volume, size, reaches(snapshot, volume, rows), reserved)


def _offered(text: str) -> Fraction:
    """An amount that cannot be parsed counts as nothing: one bad volume must not hide the others."""
    try:
        return quantity.parse(text)
    except ValueError:
        return Fraction(-1)


def _usable(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.class_name == claim.class_name
        and (volume.spec.claim_ref is None or reserved_for(volume, claim))
        and volume.spec.volume_mode == claim.spec.volume_mode
        and (volume.spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def reserved_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume's claimRef names this claim; a claimRef without UID was written by a person."""
    ref = volume.spec.claim_ref
    return ref is not None and (ref.name, ref.namespace) == (claim.name, claim.namespace) and ref.uid in ("", claim.uid)


def _provisionable(snapshot: Snapshot, storage_class: StorageClass, rows: RowArray) -> Mask:
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return np.zeros(len(rows), dtype=np.bool_)
    mask = np.full(len(rows), not storage_class.allowed_topologies, dtype=np.bool_)
    for term in storage_class.allowed_topologies:
        if term.match_label_expressions:
            wanted = [Requirement(e.key, "In", frozenset(e.values)) for e in term.match_label_expressions]
            mask |= snapshot.labels.matching(wanted, rows)
    return mask


def _roomy(snapshot: Snapshot, claim: PersistentVolumeClaim, storage_class: StorageClass, rows: RowArray) -> Mask:
    """Only drivers that publish their capacity are checked for it."""
    driver = snapshot.store.csi_drivers.get(storage_class.provisioner)
    checked = driver is not None and driver.spec.storage_capacity and STORAGE in claim.spec.resources.requests
    mask = np.full(len(rows), not checked, dtype=np.bool_)
    if checked:
        wanted = quantity.ceiling(size_of(claim))
        for capacity in _pools(snapshot.store, storage_class.name):
            if _holds(capacity, wanted) and capacity.node_topology is not None:
                mask |= snapshot.labels.selected(from_selector(capacity.node_topology), rows)
    return mask


def _pools(store: ObjectStore, class_name: str) -> list[CSIStorageCapacity]:
    return [pool for pool in store.storage_capacities.values() if pool.storage_class_name == class_name]


def _holds(pool: CSIStorageCapacity, size: int) -> bool:
    limit = pool.maximum_volume_size if pool.maximum_volume_size is not None else pool.capacity
    return limit is not None and _offered(limit) >= size


def patterns(wishes: list[UnboundClaim], count: int) -> Iterator[tuple[int, Mask]]:
    """Groups of rows that every mask of the wishes treats alike: the index of one of them, and the mask of all."""
    found = (m for w in wishes for m in (*(c.reached for c in w.candidates), w.at, w.provisionable, w.roomy))
    masks = [mask for mask in found if mask is not None]
    table = np.array(masks, dtype=np.bool_).reshape(len(masks), count)
    packed = np.packbits(table, axis=0).T
    _, first, group = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    for number, index in enumerate(first):
        yield int(index), np.asarray(group.ravel() == number)


def match(wishes: list[UnboundClaim], index: int) -> Match:
    """How the row at this index serves all wishes; small claims go first, each gets the smallest volume that fits."""
    if any(w.at is not None and not w.at[index] for w in wishes):
        return Match(served=False)
    chosen: dict[str, tuple[PersistentVolumeClaim, PersistentVolume]] = {}
    open_ = [w for w in wishes if w.at is not None]
    for w in sorted((w for w in wishes if w.at is None), key=lambda w: size_of(w.claim)):
        volume = _choose(w, index, chosen)
        if volume is None:
            open_.append(w)
        else:
            chosen[volume.name] = (w.claim, volume)
    for w in open_:
        if not w.provisionable[index]:
            return Match(served=False)
        if not w.roomy[index]:
            return Match(room=False)
    return Match(tuple(chosen.values()), tuple(w.claim for w in open_))


def _choose(
    w: UnboundClaim, index: int, taken: dict[str, tuple[PersistentVolumeClaim, PersistentVolume]]
) -> PersistentVolume | None:
    for candidate in w.candidates:
        if candidate.volume.name in taken:
            continue
        within = candidate.reached is None or bool(candidate.reached[index])
        if candidate.reserved:
            # A volume reserved for this claim is used; if it is out of reach, no other volume may be used.
            return candidate.volume if within else None
        if within:
            return candidate.volume
    return None
