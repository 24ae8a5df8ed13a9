"""The embedded API server through Carico's own client: who may come in, and what the demo is built on."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import msgspec
import pytest

from carico.clock import SystemClock
from carico.kube import credentials
from carico.kube.client import ApiError, Client
from carico.local.api.server import ApiServer


@pytest.mark.parametrize("tls", [True, False])
def test_only_who_can_read_the_kubeconfig_comes_in(tmp_path: Path, tls: bool) -> None:
    async def scenario() -> None:
        async with ApiServer(SystemClock(), tls=tls) as server:
            path = tmp_path / "kubeconfig"
            server.kubeconfig(path)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            known = credentials.from_kubeconfig(path) if tls else credentials.fixed(server.address, server.token)
            owner = Client(known)
            assert msgspec.json.decode(await owner.call("GET", "/api/v1/nodes"))["items"] == []
            if tls:  # without it nobody sends the right token in clear either
                path.write_text(path.read_text().replace(server.token, "guessed"))
            stranger = Client(credentials.from_kubeconfig(path))
            for where in ("/api/v1/nodes", "/version", "/nowhere"):
                with pytest.raises(ApiError, match="401 Unauthorized"):
                    await stranger.call("GET", where)
            await owner.close()
            await stranger.close()

    asyncio.run(scenario())
