"""Clients with the credentials of a kubeconfig."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.identity import Credentials
from carico.testing import ManualClock
from harness.kube.recording import RecordingServer, write_kubeconfig


def known(
    path: Path, server: RecordingServer, user: dict[str, Any], clock: ManualClock, cluster: dict[str, Any] | None = None
) -> Credentials:
    entry = {"server": server.url, "certificate-authority": "pki/ca.pem"} | (cluster or {})
    return credentials.from_kubeconfig(write_kubeconfig(path / "config", entry, user), clock=clock)


async def with_client(who: Credentials, use: Callable[[Client], Awaitable[None]]) -> None:
    client = Client(who)
    try:
        await use(client)
    finally:
        await client.close()


async def ask(client: Client) -> None:
    await client.call("GET", "/version")
