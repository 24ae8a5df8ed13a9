"""Requests for Nodes."""

from __future__ import annotations

from typing import Any

import msgspec

from carico.kube import calls
from carico.kube.client import MERGE_PATCH, STRATEGIC_PATCH, Client, Fence

NodeTree = dict[str, Any]  # a Node as decoded JSON


async def read(client: Client, name: str) -> NodeTree:
    return _tree(await client.call("GET", calls.GET_NODE.path(name=name)))


async def read_all(client: Client) -> list[NodeTree]:
    return _tree(await client.call("GET", calls.FOLLOW_NODES.list.path())).get("items") or []


async def create(client: Client, node: NodeTree) -> NodeTree:
    return _tree(await client.call("POST", calls.CREATE_NODE.path(), msgspec.json.encode(node)))


async def patch_status(client: Client, name: str, status: dict[str, Any]) -> None:
    body = msgspec.json.encode({"status": status})
    await client.call("PATCH", calls.PATCH_NODE_STATUS.path(name=name), body, STRATEGIC_PATCH)


async def annotate(client: Client, name: str, annotations: dict[str, str], *, fence: Fence) -> None:
    """Waits for no rate limit: the writer that calls it has waited already."""
    body = msgspec.json.encode({"metadata": {"annotations": annotations}})
    await client.call("PATCH", calls.PATCH_NODE.path(name=name), body, MERGE_PATCH, urgent=True, fence=fence)


def _tree(data: bytes) -> NodeTree:
    return msgspec.json.decode(data, type=dict[str, Any])
