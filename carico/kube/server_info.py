"""Which API server answers, and what time it has."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from carico.kube.calls import VERSION_PATH
from carico.kube.client import Client


class ServerInfo(NamedTuple):
    version: str
    date: str  # the Date header of its response


async def read(client: Client) -> ServerInfo:
    answer = await client.exchange("GET", VERSION_PATH)
    version = msgspec.json.decode(answer.body, type=dict[str, Any]).get("gitVersion", "of unknown version")
    return ServerInfo(version, answer.headers.get(b"date", b"").decode("latin-1"))
