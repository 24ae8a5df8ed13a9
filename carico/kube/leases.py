"""Requests for Leases. A caller decodes what it needs of them: lease.py keeps exact records, others read two fields."""

from __future__ import annotations

from carico.kube import calls
from carico.kube.client import Client


async def read(client: Client, namespace: str, name: str) -> bytes:
    return await client.call("GET", calls.GET_LEASE.path(namespace, name))


async def create(client: Client, namespace: str, lease: bytes) -> None:
    await client.call("POST", calls.CREATE_LEASE.path(namespace), lease)


async def update(client: Client, namespace: str, name: str, lease: bytes) -> None:
    """409 if its resourceVersion is no longer the newest."""
    await client.call("PUT", calls.UPDATE_LEASE.path(namespace, name), lease)
