"""A proxy between one replica and the API server: it injects faults, and records what passes.

harness/kube/faulty.py passes bytes on; this one also parses responses, so that it can change single events of a watch
and knows how the API server answered a Binding even when it drops that response. Plain HTTP to the client, which sends
no token without TLS; TLS and the token to the server.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from harness.cluster.ports import free_port

UID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LARGEST_LINE = 16 << 20  # bytes of one event


@dataclass(frozen=True)
class Request:
    replica: str
    method: str
    path: str  # with its query
    body: bytes

    @property
    def watches(self) -> bool:
        return "watch=1" in self.path or "watch=true" in self.path

    @property
    def binds(self) -> bool:
        return self.method == "POST" and self.path.endswith("/binding")

    @property
    def evicts(self) -> bool:
        return self.method == "DELETE" and "/pods/" in self.path

    @property
    def begins_eviction(self) -> bool:
        """Marks a pod in its status as a victim of preemption, or deletes it."""
        return self.evicts or (self.method == "PATCH" and b"PreemptionByScheduler" in self.body)

    @property
    def writes_event(self) -> bool:
        """Writes an Event."""
        return self.method in ("POST", "PATCH", "PUT") and "/events" in self.path


@dataclass(frozen=True)
class Refuse:
    """Answer in place of the API server."""

    status: int
    reason: str
    retry_after: int = 0  # s

    def encode(self) -> bytes:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.status}
        body = json.dumps(status | {"reason": self.reason, "message": "refused by the soak"}).encode()
        wait = f"Retry-After: {self.retry_after}\r\n" if self.retry_after else ""
        head = (
            f"HTTP/1.1 {self.status} X\r\nContent-Type: application/json\r\n{wait}Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass(frozen=True)
class Lose:
    """Pass the request on and close the connection instead of answering."""


@dataclass(frozen=True)
class Cut:
    """Close the connection at once."""


Verdict = Refuse | Lose | Cut
Rule = Callable[[Request], Verdict | None]
Rewriter = Callable[[str, bytes], bytes]  # path of the watch and one event


@dataclass
class Breakage:
    """The active faults, for all replicas."""

    rules: list[Rule] = field(default_factory=list)
    rewriters: list[Rewriter] = field(default_factory=list)

    def verdict(self, request: Request) -> Verdict | None:
        for rule in self.rules:
            if (verdict := rule(request)) is not None:
                return verdict
        return None

    def rewrite(self, path: str, line: bytes) -> bytes:
        for rewriter in self.rewriters:
            line = rewriter(path, line)
        return line


Asked = Callable[[Request], None]
Passed = Callable[[Request, int, float], None]  # the API server's status, 0 without one, and when it was sent


class Proxy:
    """One replica's connection to the API server."""

    def __init__(
        self, replica: str, kubeconfig: Path, folder: Path, breakage: Breakage, on_asked: Asked, on_passed: Passed
    ) -> None:
        config = json.loads(kubeconfig.read_text())
        self.replica, self._breakage = replica, breakage
        self._on_asked, self._on_passed = on_asked, on_passed
        self._server_address = urlsplit(config["clusters"][0]["cluster"]["server"])
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._token = config["users"][0].pop("user")["token"]
        self._port = free_port()
        self._open: set[asyncio.Task[None]] = set()
        self._watching: set[asyncio.StreamWriter] = set()
        self.kubeconfig = folder / f"{replica}.kubeconfig"
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self._port}"}
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(config))
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Proxy:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=LARGEST_LINE)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def cut_watches(self) -> int:
        """Break all watches as a network failure would; returns how many."""
        cut = list(self._watching)
        for writer in cut:
            writer.transport.abort()
        return len(cut)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        upstream = _Upstream(self._server_address.hostname or "", self._server_address.port or 443, self._tls)
        try:
            while await self._one(reader, writer, upstream):
                pass
        except (OSError, EOFError, ssl.SSLError, asyncio.CancelledError, ValueError):
            pass  # the client or server disconnected, or the soak has ended
        finally:
            self._open.discard(task)
            self._watching.discard(writer)
            upstream.close()
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: _Upstream) -> bool:
        """One request and its response; False when the connection ends."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(_header(head, b"content-length") or 0))
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        request = Request(self.replica, method, path, body)
        self._on_asked(request)
        verdict = self._breakage.verdict(request)
        if isinstance(verdict, Cut):
            return False
        if isinstance(verdict, Refuse):
            writer.write(verdict.encode())
            await writer.drain()
            return True
        sent_at = time.monotonic()
        try:
            answer = await upstream.ask(self._authorized(head) + body)
            status = int(answer.split(b" ", 2)[1])
            if request.watches and status == 200:
                await self._relay_watch(path, answer, writer, upstream)
                return False
            content = await upstream.body(answer)
        except (OSError, EOFError, ssl.SSLError):
            self._on_passed(request, 0, sent_at)
            raise
        self._on_passed(request, status, sent_at)
        if isinstance(verdict, Lose):
            return False
        writer.write(_with_length(answer, content) + content)
        await writer.drain()
        return True

    def _authorized(self, head: bytes) -> bytes:
        first, _, rest = head.partition(b"\r\n")
        return b"%b\r\nAuthorization: Bearer %b\r\n%b" % (first, self._token.encode(), rest)

    async def _relay_watch(self, path: str, answer: bytes, writer: asyncio.StreamWriter, upstream: _Upstream) -> None:
        self._watching.add(writer)
        writer.write(answer)
        rest = b""
        async for part in upstream.chunks():
            *lines, rest = (rest + part).split(b"\n")
            if lines:
                events = b"".join(self._breakage.rewrite(path, line) + b"\n" for line in lines if line)
                writer.write(b"%x\r\n%s\r\n" % (len(events), events))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


class _Upstream:
    """The server side of a client's connection, opened when first needed."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, message: bytes) -> bytes:
        """Send a request; returns the head of the response."""
        if self._writer is None:
            opened = asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=LARGEST_LINE)
            self._reader, self._writer = await opened
        assert self._reader is not None
        self._writer.write(message)
        await self._writer.drain()
        return await self._reader.readuntil(b"\r\n\r\n")

    async def body(self, head: bytes) -> bytes:
        assert self._reader is not None
        if b"chunked" in (_header(head, b"transfer-encoding") or b""):
            return b"".join([part async for part in self.chunks()])
        return await self._reader.readexactly(int(_header(head, b"content-length") or 0))

    async def chunks(self) -> AsyncIterator[bytes]:
        assert self._reader is not None
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readuntil(b"\r\n")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return None


def _with_length(head: bytes, content: bytes) -> bytes:
    """The head of a response whose chunks were joined."""
    lines = [
        line
        for line in head.rstrip().split(b"\r\n")
        if not line.lower().startswith((b"transfer-encoding:", b"content-length:"))
    ]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(content), b"", b""])
