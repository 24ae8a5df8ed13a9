"""The embedded API server as a whole: it listens locally and serves clients that have its token.

    async with ApiServer(SystemClock()) as server:
        server.kubeconfig(Path("kubeconfig"))

It uses TLS with a certificate that it generates, because kubectl sends no token without TLS. The CA certificate and the
token are in the kubeconfig, which only its owner can read: without that file a client has no access.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import ssl
import tempfile
from pathlib import Path
from typing import Any, Self

from carico.clock import Clock
from carico.embedded.apiserver.handlers import ApiHandlers
from carico.embedded.apiserver.http import STRANGERS, ApiConnection, ApiRequest
from carico.embedded.apiserver.logs import LogFile
from carico.embedded.apiserver.reviews import AccessReviews
from carico.embedded.apiserver.store import HISTORY, ApiStore
from carico.embedded.apiserver.verbs import ApiVerbs
from carico.http.address import split_address
from carico.http.listener import Listener
from carico.wire.certificates import Authority

NAME = "carico-embedded"  # of cluster, user and context in a kubeconfig


class ApiServer:
    """`tls=False` is for measurements and tests: no client sends the kubeconfig's token unencrypted by default."""

    def __init__(
        self,
        clock: Clock,
        listen: str = "127.0.0.1:0",
        token: str | None = None,
        *,
        tls: bool = True,
        history: int = HISTORY,
    ) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self._reviews = AccessReviews(self.token)
        self.verbs = ApiVerbs(clock, ApiStore(int(clock.wall() * 1000), history))
        self._answers = ApiHandlers(clock, self.verbs, self._reviews)
        context, self._authority = _certificate(split_address(listen)[0]) if tls else (None, b"")
        self._listener = Listener(listen, context, handshakes=STRANGERS)
        self._connections: set[ApiConnection] = set()
        self._strangers: dict[ApiConnection, None] = {}

    @property
    def logs(self) -> LogFile:
        """Maps a container to its log; set by the component that runs the containers."""
        return self._answers.logs

    @logs.setter
    def logs(self, where: LogFile) -> None:
        self._answers.logs = where

    @property
    def address(self) -> str:
        return f"{'https' if self._listener.tls else 'http'}://{self._listener.authority}"

    async def start(self) -> int:
        """Start to listen; returns the port."""
        return await self._listener.start(self._connection)

    async def stop(self) -> None:
        if self._listener.stop():
            for connection in list(self._connections):
                connection.close()
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _connection(self) -> ApiConnection:
        return ApiConnection(self._admits, self._answers, self._connections, self._strangers)

    def _admits(self, request: ApiRequest) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme == "Bearer" and self._reviews.has_token(token)

    def kubeconfig(self, path: Path) -> None:
        """Write what kubectl and Carico's processes need for access, readable only by the owner."""
        cluster: dict[str, Any] = {"server": self.address}
        if self._authority:
            cluster["certificate-authority-data"] = base64.b64encode(self._authority).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": NAME,
            "clusters": [{"name": NAME, "cluster": cluster}],
            "users": [{"name": NAME, "user": {"token": self.token}}],
            "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        }
        new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(content, indent=2) + "\n")  # JSON is valid YAML
        new.replace(path)


def _certificate(host: str) -> tuple[ssl.SSLContext, bytes]:
    """The server's TLS context, and the CA certificate by which clients verify it. No key is left on disk."""
    with tempfile.TemporaryDirectory(prefix="carico-") as folder:
        authority = Authority(Path(folder))
        pair = authority.issue("carico embedded API server", "localhost", "127.0.0.1", "::1", *_own_name(host))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        return context, authority.cert.read_bytes()


def _own_name(host: str) -> list[str]:
    return [host] if host not in ("", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::") else []
