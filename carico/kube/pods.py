"""Requests for pods: read, create, bind, delete, evict, and writes of the status."""

from __future__ import annotations

from typing import Any

import msgspec

from carico.kube import calls, protobuf
from carico.kube.client import JSON, STRATEGIC_PATCH, Client, Fence
from carico.kube.decode import decode
from carico.kube.meta import NamedObject
from carico.kube.objects import Pod

DRY_RUN = "?dryRun=All"


async def read(client: Client, namespace: str, name: str) -> Pod:
    return decode(Pod, await client.call("GET", calls.GET_POD.path(namespace, name)))


async def create(client: Client, namespace: str, pod: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
    """The pod as it is stored, or as it would be."""
    path = calls.CREATE_POD.path(namespace) + (DRY_RUN if dry_run else "")
    stored: dict[str, Any] = msgspec.json.decode(await client.call("POST", path, msgspec.json.encode(pod)))
    return stored


async def bind(client: Client, pod: Pod, node: str, *, fence: Fence) -> None:
    """One attempt, which waits for no rate limit: binding.py has the retries."""
    meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    obj = {"metadata": meta, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
    path = calls.BIND_POD.path(pod.namespace, pod.name)
    await client.create(path, protobuf.BINDING, obj, urgent=True, fence=fence)


async def delete(client: Client, pod: NamedObject, *, grace: int | None = None, fence: Fence | None = None) -> None:
    """Deletes this pod, not one that was re-created under its name; `grace` in s, None: the pod's own."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions"} | _delete_options(pod, grace)
    path = calls.DELETE_POD.path(pod.namespace, pod.name)
    await client.call("DELETE", path, msgspec.json.encode(options), JSON, fence=fence)


async def delete_all(client: Client, namespace: str, selector: str) -> None:
    """Deletes the pods that match, e.g. `labelSelector=a%3Db`; an empty selector would match all of them."""
    assert selector
    await client.call("DELETE", f"{calls.DELETE_PODS.path(namespace)}?{selector}")


async def evict(
    client: Client, pod: Pod, *, grace: int | None = None, dry_run: bool = False, fence: Fence | None = None
) -> None:
    """One attempt; eviction.py reads what an ApiError means."""
    options = _delete_options(pod, grace) | ({"dryRun": ["All"]} if dry_run else {})
    meta = {"name": pod.name, "namespace": pod.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
    path = calls.EVICT_POD.path(pod.namespace, pod.name)
    await client.call("POST", path, msgspec.json.encode(body), fence=fence)


async def patch_status(
    client: Client,
    pod: NamedObject,
    status: dict[str, Any],
    content_type: str = STRATEGIC_PATCH,
    *,
    urgent: bool = False,
    fence: Fence | None = None,
) -> None:
    """Changes the status of this pod; 409 if there is another one of this name."""
    body = msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": status})
    path = calls.PATCH_POD_STATUS.path(pod.namespace, pod.name)
    await client.call("PATCH", path, body, content_type, urgent=urgent, fence=fence)


def _delete_options(pod: NamedObject, grace: int | None) -> dict[str, Any]:
    precondition = {"preconditions": {"uid": pod.uid}}
    return precondition if grace is None else precondition | {"gracePeriodSeconds": grace}
