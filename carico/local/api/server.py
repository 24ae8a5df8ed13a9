"""The embedded API server as a whole: it listens on this machine and answers those who have its token.

    async with ApiServer(SystemClock()) as server:
        server.kubeconfig(Path("kubeconfig"))

It speaks TLS under a certificate of its own making, because kubectl sends no token without it. The certificate's
authority and the token stand in the kubeconfig, which only its owner may read: who cannot read that cannot come in.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import secrets
import ssl
import tempfile
from pathlib import Path
from typing import Any, Self

from carico.clock import Clock
from carico.errors import CaricoError
from carico.http.address import split_address
from carico.local.api.answers import Answers
from carico.local.api.http import STRANGER_PATIENCE, Connection, Request
from carico.local.api.logs import LogFile
from carico.local.api.store import HISTORY, Store
from carico.local.api.verbs import Verbs
from carico.wire.certificates import Authority

NAME = "carico-embedded"  # of cluster, user and context in a kubeconfig


class ApiServer:
    """`tls=False` is for measurements and tests: no client sends the kubeconfig's token in clear by itself."""

    def __init__(
        self,
        clock: Clock,
        listen: str = "127.0.0.1:0",
        token: str | None = None,
        *,
        tls: bool = True,
        history: int = HISTORY,
    ) -> None:
        self._host, self._port = split_address(listen)
        self.token = token or secrets.token_urlsafe(32)
        self._welcome = f"Bearer {self.token}".encode()
        self.verbs = Verbs(clock, Store(int(clock.wall() * 1000), history))
        self._answers = Answers(clock, self.verbs)
        self._tls: ssl.SSLContext | None = None
        self._authority = b""
        if tls:
            self._tls, self._authority = _certificate(self._host)
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._strangers: dict[Connection, None] = {}

    @property
    def logs(self) -> LogFile:
        """Where a container's log is; to be set by whoever runs the containers."""
        return self._answers.logs

    @logs.setter
    def logs(self, where: LogFile) -> None:
        self._answers.logs = where

    @property
    def address(self) -> str:
        scheme = "https" if self._tls else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._port}"

    async def start(self) -> int:
        """Starts to listen and returns the port."""
        loop = asyncio.get_running_loop()
        try:
            patience = STRANGER_PATIENCE if self._tls is not None else None
            self._server = await loop.create_server(
                self._connection, self._host, self._port, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise CaricoError(f"cannot listen on {where}: {error.strerror}; choose another --listen") from error
        self._port = self._server.sockets[0].getsockname()[1]
        return self._port

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.close()
            # Not wait_closed(): since Python 3.12 it waits for clients in the middle of a TLS handshake, too.
            await asyncio.sleep(0)
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _connection(self) -> Connection:
        return Connection(self._admits, self._answers, self._connections, self._strangers)

    def _admits(self, request: Request) -> bool:
        return hmac.compare_digest(request.headers.get("authorization", "").encode(), self._welcome)

    def kubeconfig(self, path: Path) -> None:
        """Writes what kubectl and Carico's processes need to come in, for the eyes of its owner alone."""
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
            file.write(json.dumps(content, indent=2) + "\n")  # which is YAML too
        new.replace(path)


def _certificate(host: str) -> tuple[ssl.SSLContext, bytes]:
    """A server's side of TLS, and the authority by which others know it. No key stays on the disk."""
    with tempfile.TemporaryDirectory(prefix="carico-") as folder:
        authority = Authority(Path(folder))
        pair = authority.issue("carico embedded API server", "localhost", "127.0.0.1", "::1", *_own_name(host))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        return context, authority.cert.read_bytes()


def _own_name(host: str) -> list[str]:
    return [host] if host not in ("", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::") else []
