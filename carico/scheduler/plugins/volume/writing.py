"""The choice of volumes as changed objects, and their writes to the API server."""

from __future__ import annotations

import msgspec

from carico.kube import volumes
from carico.kube.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimRef,
    PersistentVolume,
    PersistentVolumeClaim,
)
from carico.scheduler.plugins.volume.matching import Match, reserved_for


async def write(client: volumes.ApiCaller, obj: PersistentVolume | PersistentVolumeClaim) -> None:
    if isinstance(obj, PersistentVolume):
        await volumes.reserve(client, obj)
    else:
        await volumes.select_node(client, obj)


def changed(match: Match, node: str) -> list[PersistentVolume | PersistentVolumeClaim]:
    """The objects as they will be once the match is written."""
    claimed = [_claimed(volume, claim) for claim, volume in match.static]
    return [*claimed, *(_selected(claim, node) for claim in match.dynamic)]


def _claimed(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    notes = volume.metadata.annotations
    if not reserved_for(volume, claim):
        notes = {**notes, BOUND_BY_CONTROLLER: "yes"}
    ref = ClaimRef(name=claim.name, namespace=claim.namespace, uid=claim.uid)
    return msgspec.structs.replace(
        volume,
        metadata=msgspec.structs.replace(volume.metadata, annotations=notes),
        spec=msgspec.structs.replace(volume.spec, claim_ref=ref),
    )


def _selected(claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    notes = {**claim.metadata.annotations, SELECTED_NODE: node}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=notes))
