"""The choice of volumes as changed objects, and the requests that write them to the API server."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from carico.kube.paths import segment
from carico.kube.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimRef,
    PersistentVolume,
    PersistentVolumeClaim,
)
from carico.scheduler.plugins.volume.matching import Match, reserved_for

MERGE_PATCH = "application/merge-patch+json"


class ApiCaller(Protocol):
    """The part of kube/client.py that binding volumes needs."""

    async def call(self, method: str, path: str, body: bytes = ..., content_type: str = ...) -> bytes: ...


async def write(client: ApiCaller, thing: PersistentVolume | PersistentVolumeClaim) -> None:
    if isinstance(thing, PersistentVolume):
        path, body = f"/api/v1/persistentvolumes/{segment(thing.name)}", _volume_patch(thing)
    else:
        path = f"/api/v1/namespaces/{segment(thing.namespace)}/persistentvolumeclaims/{segment(thing.name)}"
        body = {"metadata": {"annotations": {SELECTED_NODE: thing.metadata.annotations[SELECTED_NODE]}}}
    # The resourceVersion makes the API server reject the patch if the object was changed in the meantime.
    body["metadata"]["resourceVersion"] = thing.metadata.resource_version
    await client.call("PATCH", path, msgspec.json.encode(body), MERGE_PATCH)


def changed(match: Match, node: str) -> list[PersistentVolume | PersistentVolumeClaim]:
    """The objects as they will be once the match is written."""
    volumes = [_claimed(volume, claim) for claim, volume in match.static]
    return [*volumes, *(_selected(claim, node) for claim in match.dynamic)]


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


def _volume_patch(volume: PersistentVolume) -> dict[str, Any]:
    ref = volume.spec.claim_ref
    assert ref is not None
    notes = {
        key: volume.metadata.annotations[key] for key in (BOUND_BY_CONTROLLER,) if key in volume.metadata.annotations
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": ref.name,
        "namespace": ref.namespace,
        "uid": ref.uid,
    }
    return {"metadata": {"annotations": notes}, "spec": {"claimRef": claim}}
