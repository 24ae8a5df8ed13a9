"""Finds the pod that leads: the holder of a Lease."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from carico.errors import ApiError
from carico.kube import calls, leases, pods
from carico.kube.client import Client
from carico.kube.paths import segment

FORBIDDEN, NOT_FOUND = 403, 404


class Leader(NamedTuple):
    holder: str  # identity in the Lease; empty: it has no holder
    namespace: str = ""  # of its pod; empty if the holder is not a pod
    pod: str = ""


async def find(client: Client, namespace: str, lease: str) -> Leader | None:
    """None if there is no such Lease. A replica's identity is `<pod name>_<unique suffix>`."""
    try:
        spec = msgspec.json.decode(await leases.read(client, namespace, lease), type=dict[str, Any]).get("spec") or {}
    except ApiError as error:
        if error.status == NOT_FOUND:
            return None
        raise
    holder = str(spec.get("holderIdentity") or "")
    name = holder.rpartition("_")[0]
    if not name:
        return Leader(holder)
    found = await _namespace_of(client, name, namespace)
    return Leader(holder, found, name) if found else Leader(holder)


async def _namespace_of(client: Client, pod: str, likely: str) -> str:
    """The namespace of a pod, which may differ from that of its Lease; empty if there is none."""
    query = f"?fieldSelector=metadata.name%3D{segment(pod)}"
    try:
        listed = await client.call("GET", calls.FOLLOW_PODS.list.path() + query)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        try:
            return (await pods.read(client, likely, pod)).namespace
        except ApiError:
            return ""
    found = msgspec.json.decode(listed, type=dict[str, Any]).get("items") or []
    return str(found[0]["metadata"]["namespace"]) if len(found) == 1 else ""
