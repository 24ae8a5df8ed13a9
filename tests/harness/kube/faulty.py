"""A proxy in front of an API server that injects faults.

It uses plain HTTP to the client and TLS to the server, with the identity of a kubeconfig. A `fault` is called for every
request and decides: pass it on (None), answer it with a status, pass it on and drop the response (`LOSE`), or close the
connection at once (`CUT`). `replace` changes the text of responses, including watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from carico.kube import credentials
from carico.kube.identity import ClientIdentity
from harness.cluster.ports import free_port

LOSE = -1
CUT = -2
Fault = Callable[[str, str], int | None]


class FaultyServer:
    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._where = credentials.from_kubeconfig(kubeconfig)
        self.kubeconfig = folder / "faulty.kubeconfig"
        self.fault: Fault = lambda _method, _path: None
        self.replace: dict[bytes, bytes] = {}  # text in responses, by text of the same length
        self.seen: list[tuple[str, str]] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._port = free_port()  # not used for outgoing connections while this server is closed

    async def __aenter__(self) -> FaultyServer:
        await self.open()
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
            "users": [{"name": "u", "user": {}}],  # a client sends no token without TLS: the proxy adds it
        }
        self.kubeconfig.write_text(json.dumps(config))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def shut(self) -> None:
        """As if the API server had been killed: nothing listens, all open connections are closed."""
        assert self._server is not None
        self._server.close()
        while self._serving:  # a connection may just have been accepted
            self.cut()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await asyncio.sleep(0)

    def cut(self) -> None:
        """Close all connections, including watches."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._writers.add(writer)
        try:
            await self._converse(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client or server disconnected, or the test has ended
        finally:
            self._serving.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        identity = await self._where.identity()
        ours = "".join(f"{name}: {value}\r\n" for name, value in identity.headers).encode()
        up_reader, up_writer = await self._up(identity)
        self._writers.add(up_writer)
        losing = asyncio.Event()
        back = asyncio.create_task(self._back(up_reader, writer, losing))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                self.seen.append((method, path))
                verdict = self.fault(method, path)
                if verdict == CUT:
                    return
                if verdict is None or verdict == LOSE:
                    if verdict == LOSE:
                        losing.set()
                    first, _, rest = head.partition(b"\r\n")
                    up_writer.write(first + b"\r\n" + ours + rest + body)
                    await up_writer.drain()
                else:
                    writer.write(_answer(verdict))
                    await writer.drain()
        finally:
            back.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await back
            self._writers.discard(up_writer)
            up_writer.transport.abort()

    async def _up(self, identity: ClientIdentity) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server. If cancelled at the end of the handshake, asyncio would leave it half open."""
        opening = asyncio.create_task(
            asyncio.open_connection(
                self._where.host, self._where.port, ssl=identity.tls, server_hostname=self._where.host
            )
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            (await opening)[1].transport.abort()
            raise

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        rest = b""
        while data := await reader.read(1 << 16):
            if losing.is_set():
                writer.transport.abort()
                return
            data, rest = self._spoilt(rest + data)
            writer.write(data)
            await writer.drain()
        writer.write(rest)
        writer.transport.abort()

    def _spoilt(self, data: bytes) -> tuple[bytes, bytes]:
        """The data, and its end that must be held back because a text to be replaced may begin there."""
        for old, new in self.replace.items():
            assert len(old) == len(new), "the length of a chunk stands before it"
            data = data.replace(old, new)
        cut = max((_begun(data, old) for old in self.replace), default=0)
        return data[: len(data) - cut], data[len(data) - cut :]


def _begun(data: bytes, text: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `text`."""
    return next((length for length in range(len(text) - 1, 0, -1) if data.endswith(text[:length])), 0)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _answer(status: int) -> bytes:
    reasons = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid"}
    reason = (reasons | {429: "TooManyRequests", 500: "InternalError"})[status]
    body = json.dumps({"kind": "Status", "code": status, "reason": reason, "message": "made up by a test"}).encode()
    return (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )
