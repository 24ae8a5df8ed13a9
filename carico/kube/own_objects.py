"""Secrets and ConfigMaps of Carico's own, in its own namespace: read and written whole, by resourceVersion."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from carico.errors import ApiError
from carico.kube import calls
from carico.kube.calls import ApiCall
from carico.kube.client import Client, Fence

LABELS = {"app.kubernetes.io/part-of": "carico", "app.kubernetes.io/managed-by": "carico-scheduler"}


class OwnObject(NamedTuple):
    """`metadata` as it was read; empty for an object that is to be created."""

    data: Mapping[str, str]
    metadata: Mapping[str, Any]


async def read_secret(client: Client, namespace: str, name: str) -> OwnObject | None:
    """None if there is none. An entry that is not text is left out."""
    found = await _read(client, calls.GET_SECRET, namespace, name)
    if found is None:
        return None
    return OwnObject({key: text for key, value in _data(found).items() if (text := _decoded(value))}, _metadata(found))


async def read_config_map(client: Client, namespace: str, name: str) -> OwnObject | None:
    found = await _read(client, calls.GET_CONFIG_MAP, namespace, name)
    if found is None:
        return None
    return OwnObject({k: v for k, v in _data(found).items() if isinstance(v, str)}, _metadata(found))


async def write_secret(
    client: Client,
    namespace: str,
    name: str,
    kind: str,
    data: Mapping[str, str],
    before: OwnObject | None,
    fence: Fence,
) -> None:
    """409 if it was changed, made or deleted since `before` was read; `kind` as in `type`, which cannot be changed."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "type": kind, "data": encoded}
    await _write(client, (calls.CREATE_SECRET, calls.UPDATE_SECRET), namespace, name, body, before, fence)


async def write_config_map(
    client: Client, namespace: str, name: str, data: Mapping[str, str], before: OwnObject | None, fence: Fence
) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": dict(data)}
    await _write(client, (calls.CREATE_CONFIG_MAP, calls.UPDATE_CONFIG_MAP), namespace, name, body, before, fence)


async def _read(client: Client, call: ApiCall, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(await client.call("GET", call.path(namespace, name)), type=dict[str, Any])
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def _write(
    client: Client,
    ways: tuple[ApiCall, ApiCall],
    namespace: str,
    name: str,
    body: dict[str, Any],
    before: OwnObject | None,
    fence: Fence,
) -> None:
    create, update = ways
    if before is None:
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": LABELS}
        content = msgspec.json.encode(body | {"metadata": metadata})
        await client.call("POST", create.path(namespace), content, fence=fence)
        return
    content = msgspec.json.encode(body | {"metadata": dict(before.metadata)})
    await client.call("PUT", update.path(namespace, name), content, fence=fence)


def _data(found: dict[str, Any]) -> dict[str, Any]:
    data = found.get("data")
    return data if isinstance(data, dict) else {}


def _metadata(found: dict[str, Any]) -> dict[str, Any]:
    """With its resourceVersion, labels and annotations, which belong to others too."""
    return {key: value for key, value in found["metadata"].items() if key != "managedFields"}


def _decoded(value: object) -> str:
    try:
        return base64.b64decode(value, validate=True).decode() if isinstance(value, str) else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""
