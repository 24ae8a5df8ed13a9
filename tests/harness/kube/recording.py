"""An HTTPS server for tests that answers every request and records it, and kubeconfigs for it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from carico.kube.identity import ClientIdentity, Credentials
from carico.wire.certificates import Pair


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 - what is waited for is in another process or thread
        await asyncio.sleep(0.01)


async def another(who: Credentials, old: ClientIdentity) -> ClientIdentity:
    """The identity that replaces `old`."""
    while (present := await who.identity()) is old:  # noqa: ASYNC110 - it is made in a thread
        await asyncio.sleep(0.01)
    return present


class Asked(NamedTuple):
    line: str
    headers: list[tuple[str, str]]  # in their order, names unchanged
    client: str  # common name in the client's certificate

    def all(self, name: str) -> list[str]:
        return [value for other, value in self.headers if other.lower() == name.lower()]


class RecordingServer:
    """`status` sets the status of a response. With `client_authority` it requires a client certificate."""

    def __init__(self, pair: Pair | None, client_authority: Path | None = None) -> None:
        self._tls = _context(pair, client_authority) if pair is not None else None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self.status: Callable[[Asked], int] = lambda _: 200
        self.asked: list[Asked] = []
        self.connections = 0
        self.port = 0
        self.name = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.name}:{self.port}"

    async def __aenter__(self) -> RecordingServer:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client disconnected
        finally:
            self._serving.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip()
        line, *rest = head.split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (text.partition(":") for text in rest)]
        asked = Asked(line, headers, _common_name(writer))
        await reader.readexactly(int(next(iter(asked.all("content-length")), "0")))
        self.asked.append(asked)
        body = b'{"gitVersion": "v1.36.0"}'
        status = f"HTTP/1.1 {self.status(asked)} X\r\nContent-Type: application/json\r\n"
        writer.write(f"{status}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()


def _context(pair: Pair, client_authority: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    if client_authority is not None:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _common_name(writer: asyncio.StreamWriter) -> str:
    shown = writer.get_extra_info("peercert") or {}
    return next((value for part in shown.get("subject", ()) for name, value in part if name == "commonName"), "")


def write_kubeconfig(path: Path, cluster: dict[str, Any], user: dict[str, Any], namespace: str = "") -> Path:
    context = {"cluster": "k", "user": "u"} | ({"namespace": namespace} if namespace else {})
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": context}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(config))
    return path
