"""Credential plugins that are real programs, and clients that run them."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from carico.embedded.apiserver.server import ApiServer
from carico.errors import CredentialError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.identity import Credentials
from carico.testing import ManualClock, embedded_api_server
from harness.kube.recording import write_kubeconfig

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


def program(folder: Path, body: str, name: str = "plugin") -> Path:
    """A program in Python. `answer(**status)` prints, `run` is the number of this run."""
    lines = f"""\
        #!{sys.executable} -IS
        import json, os, pathlib, sys, time
        folder = pathlib.Path({str(folder)!r})
        with (folder / "runs").open("a") as runs: runs.write("x")
        run = (folder / "runs").stat().st_size
        def answer(version={V1!r}, **status):
            print(json.dumps({{"apiVersion": version, "kind": "ExecCredential", "status": status}}))
        """
    path = folder / name
    path.write_text(textwrap.dedent(lines) + textwrap.dedent(body))
    path.chmod(0o755)
    return path


def runs(folder: Path) -> int:
    return (folder / "runs").stat().st_size if (folder / "runs").exists() else 0


def stamp(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def known(folder: Path, cluster: dict[str, Any], clock: ManualClock | None = None, **entry: Any) -> Credentials:
    user = {"exec": {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"} | entry}
    return credentials.from_kubeconfig(write_kubeconfig(folder / "config", cluster, user), clock=clock)


def of_embedded(folder: Path) -> dict[str, Any]:
    """The cluster in the kubeconfig that the embedded API server wrote."""
    cluster: dict[str, Any] = json.loads((folder / "kubeconfig").read_text())["clusters"][0]["cluster"]
    return cluster


Use = Callable[[ApiServer, Client], Awaitable[None]]


def against_embedded(folder: Path, use: Use, clock: ManualClock | None = None, **entry: Any) -> None:
    async def scenario() -> None:
        async with embedded_api_server(folder, tls=True) as (server, _):
            (folder / "right").write_text(server.token)
            client = Client(known(folder, of_embedded(folder), clock, **entry))
            try:
                await use(server, client)
            finally:
                await client.close()

    asyncio.run(scenario())


def sentence(folder: Path, **entry: Any) -> str:
    """The message when the credentials cannot be had."""
    who = known(folder, {"server": "https://x"}, **entry)
    with pytest.raises(CredentialError) as caught:
        asyncio.run(who.identity())
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{folder / 'config'}: user 'u': the credential plugin ")
    return str(caught.value)
