"""Writes of the scheduler's choice of volumes.

Each carries the resourceVersion that the choice was made with: the API server rejects it if the object has changed.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from carico.kube import calls
from carico.kube.client import MERGE_PATCH
from carico.kube.storage import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim


class ApiCaller(Protocol):
    """The part of the client that plugins use."""

    async def call(self, method: str, path: str, body: bytes = ..., content_type: str = ...) -> bytes: ...


async def reserve(client: ApiCaller, volume: PersistentVolume) -> None:
    """Writes which claim the volume is reserved for."""
    await _patch(client, calls.PATCH_VOLUME.path(name=volume.name), volume, _reservation(volume))


async def select_node(client: ApiCaller, claim: PersistentVolumeClaim) -> None:
    """Writes the node for which a volume is to be provisioned."""
    body = {"metadata": {"annotations": {SELECTED_NODE: claim.metadata.annotations[SELECTED_NODE]}}}
    await _patch(client, calls.PATCH_CLAIM.path(claim.namespace, claim.name), claim, body)


async def _patch(
    client: ApiCaller, path: str, obj: PersistentVolume | PersistentVolumeClaim, body: dict[str, Any]
) -> None:
    body["metadata"]["resourceVersion"] = obj.metadata.resource_version
    await client.call("PATCH", path, msgspec.json.encode(body), MERGE_PATCH)


def _reservation(volume: PersistentVolume) -> dict[str, Any]:
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
