"""Requests for NodeCapacity objects (scheduler/crd-nodecapacities.yaml): what `kubectl get ncap` shows."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from carico.errors import ApiError, CaricoError
from carico.kube import calls
from carico.kube.client import MERGE_PATCH, Client, Fence
from carico.kube.quantity import as_bytes, as_cores

NOT_FOUND, FORBIDDEN, CONFLICT = 404, 403, 409
GROUP_VERSION = f"{calls.NODE_CAPACITY_OBJECTS.group}/{calls.NODE_CAPACITY_OBJECTS.version}"
MOST_REQUESTS = 3  # of one write: the object is missing, is created, and its status is written


class NotServed(CaricoError):
    """The cluster has no such kind of object, or this process may not write it."""


class Owner(NamedTuple):
    """The Node that the object goes with."""

    name: str
    uid: str


class Figures(NamedTuple):
    """What is known about a node; None: not known."""

    pod_capacity: float | None  # pods
    reserved: float | None  # pods
    pods: int | None  # workload pods that the node's report counts
    room_cores: float | None  # of demand
    room_bytes: float | None
    churn: bool | None
    stale: bool
    sampled: str | None  # RFC 3339
    written: str  # RFC 3339

    def as_status(self) -> dict[str, Any]:
        """Unknown figures are null, which removes them from the stored object.

        >>> Figures(7.25, 0.5, 3, 1.25, 2.0**30, False, False, None, "2026-01-01T00:00:00Z").as_status()["room"]
        {'cpu': '1250m', 'memory': '1024Mi'}
        """
        return {
            "podCapacity": None if self.pod_capacity is None else round(self.pod_capacity, 1),
            "reserved": None if self.reserved is None else round(max(0.0, self.reserved), 1),
            "pods": self.pods,
            "room": {
                "cpu": None if self.room_cores is None else as_cores(self.room_cores),
                "memory": None if self.room_bytes is None else as_bytes(self.room_bytes),
            },
            "mode": None if self.churn is None else "Churn" if self.churn else "Settled",
            "stale": self.stale,
            "sampledAt": self.sampled,
            "updatedAt": self.written,
        }


class Outcome(NamedTuple):
    requests: int
    owned: bool  # by this Node; otherwise by a former one of its name: the garbage collector deletes the object soon


async def write(client: Client, owner: Owner, figures: Figures, fence: Fence) -> Outcome:
    """Writes the status, and creates the object first where there is none. NotServed if no later attempt can help."""
    body = msgspec.json.encode({"status": figures.as_status()})
    try:
        try:
            return Outcome(1, await _patch(client, owner, body, fence))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        await _create(client, owner, fence)
        return Outcome(MOST_REQUESTS, await _patch(client, owner, body, fence))
    except ApiError as error:
        if error.status in (FORBIDDEN, NOT_FOUND):
            raise NotServed(error.message) from error
        raise


async def _create(client: Client, owner: Owner, fence: Fence) -> None:
    """Without `blockOwnerDeletion`, which would need further rights, and for which there is no reason."""
    references = [{"apiVersion": "v1", "kind": "Node", "name": owner.name, "uid": owner.uid}]
    labels = {"app.kubernetes.io/managed-by": "carico-scheduler"}
    body = {
        "apiVersion": GROUP_VERSION,
        "kind": "NodeCapacity",
        "metadata": {"name": owner.name, "ownerReferences": references, "labels": labels},
    }
    path = calls.CREATE_NODE_CAPACITY.path()
    try:
        await client.call("POST", path, msgspec.json.encode(body), urgent=True, fence=fence)
    except ApiError as error:
        if error.status != CONFLICT:  # otherwise it was created by a request whose response was lost
            raise


async def _patch(client: Client, owner: Owner, body: bytes, fence: Fence) -> bool:
    """Whether this Node owns the object."""
    path = calls.PATCH_NODE_CAPACITY_STATUS.path(name=owner.name)
    stored = await client.call("PATCH", path, body, MERGE_PATCH, urgent=True, fence=fence)
    references = msgspec.json.decode(stored, type=_Stored).metadata.owner_references
    return any(reference.uid == owner.uid for reference in references)


class _Reference(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    owner_references: list[_Reference] = []


class _Stored(msgspec.Struct):
    metadata: _Metadata
