"""The embedded API server inside the process of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from carico.clock import Clock, SystemClock
from carico.embedded.apiserver.server import ApiServer
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.credentials import fixed


@asynccontextmanager
async def embedded_api_server(
    folder: Path, clock: Clock | None = None, *, tls: bool = False, history: int = 10_000
) -> AsyncIterator[tuple[ApiServer, Client]]:
    """A new API server for a test, and a client of it; writes the file `kubeconfig` in `folder`.

    >>> import asyncio, tempfile
    >>> import msgspec
    >>> async def nodes() -> bytes:
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         async with embedded_api_server(Path(folder)) as (_, client):
    ...             return await client.call("GET", "/api/v1/nodes")
    >>> msgspec.json.decode(asyncio.run(nodes()))["items"]
    []
    """
    async with ApiServer(clock or SystemClock(), tls=tls, history=history) as server:
        server.kubeconfig(folder / "kubeconfig")
        # A kubeconfig's token is not sent without TLS.
        known = credentials.from_kubeconfig(folder / "kubeconfig") if tls else fixed(server.address, server.token)
        client = Client(known)
        try:
            yield server, client
        finally:
            await client.close()
