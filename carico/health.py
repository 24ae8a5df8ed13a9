"""A very small HTTP server: /metrics, /healthz, /readyz and whatever pages a process adds.

One request per connection, and it gives up on a slow or talkative client: it runs inside an agent that may not cost
anything. Pages without arguments answer GET only; a process that is asked for more adds pages that see the request.
Such a page may answer with a `Stream`, which goes on until one of the two sides has had enough, or be a coroutine,
which takes its own time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry

from carico import metrics
from carico.errors import CaricoError, UsageError

log = logging.getLogger(__name__)

REQUEST_LIMIT = 8192  # bytes of request line and headers
BODY_LIMIT = 16 << 20  # bytes: what a scheduler sends an extender about 5,000 nodes
PATIENCE = 5.0  # s for one request


class Request(NamedTuple):
    method: str
    query: dict[str, str]
    body: bytes


Headers = tuple[tuple[str, str], ...]


class Page(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Headers = ()


class Stream(NamedTuple):
    """An answer without an end of its own: `follow` writes until it returns, or until the client goes."""

    content_type: str
    follow: Callable[[asyncio.StreamWriter], Awaitable[None]]
    headers: Headers = ()


Answer = Page | Stream
Asked = Callable[[Request], Answer | Awaitable[Answer]]


def text(status: HTTPStatus, message: str) -> Page:
    return Page(status, "text/plain; charset=utf-8", f"{message}\n".encode())


def probe(why_not: Callable[[], str | None]) -> Callable[[], Page]:
    """A health page out of a function that says what is wrong, or None."""

    def answer() -> Page:
        problem = why_not()
        return text(HTTPStatus.SERVICE_UNAVAILABLE, problem) if problem else text(HTTPStatus.OK, "ok")

    return answer


def verbose_probe(name: str, why_not: Callable[[], str | None], lines: Callable[[], Iterable[str]]) -> Asked:
    """The same, which says more to `?verbose`, as Kubernetes' own probes do: `lines`, then the outcome."""
    plain = probe(why_not)

    def answer(request: Request) -> Page:
        if request.method != "GET":
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered here")
        page = plain()
        if "verbose" not in request.query:
            return page
        outcome = "passed" if page.status is HTTPStatus.OK else f"failed: {why_not()}"
        return text(page.status, "\n".join([*lines(), f"{name} check {outcome}"]))

    return answer


class HealthServer:
    """Serves `pages`, by path, at `address` (host:port; port 0 takes a free one)."""

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        pages: Mapping[str, Callable[[], Page]],
        asked: Mapping[str, Asked] | None = None,
    ) -> None:
        self._host, self._port = split_address(address)
        exposition: Callable[[], Page] = lambda: Page(HTTPStatus.OK, metrics.PAGE_TYPE, metrics.page(registry))  # noqa: E731
        self._pages = {"/metrics": exposition, **pages}
        self._asked = dict(asked or {})
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Starts to listen and returns the port."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=REQUEST_LIMIT)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise CaricoError(f"cannot listen on {where}: {error.strerror}; choose another --listen") from error
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for client in self._clients:  # or a slow one would keep the process for its whole patience
                client.cancel()
            # Not wait_closed(): since Python 3.12 it waits for clients that have only just been accepted, too.
            await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A task of its own: the server's would call a cancelled one a fault."""
        client = asyncio.create_task(self._talk(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)
        client.add_done_callback(lambda _: writer.close())  # one that is cancelled before it starts never gets there

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                body = await _body(head, reader) if self._asked else b""
            answer = await self._answer(head, body)
            async with asyncio.timeout(PATIENCE):
                writer.write(_response(answer) if isinstance(answer, Page) else _opening(answer))
                await writer.drain()
            if isinstance(answer, Stream):
                await self._follow(answer, reader, writer)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client's own fault, and nothing that anyone could act on
        finally:
            writer.close()

    async def _follow(self, stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client that has nothing to say any more has gone: its end of the connection is what is waited for."""
        following = asyncio.ensure_future(stream.follow(writer))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            following.cancel()
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await following
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await leaving

    async def _answer(self, head: bytes, body: bytes) -> Answer:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered here")
        path, _, query = words[1].partition("?")
        page = self._pages.get(path)
        try:
            if path in self._asked:
                answer = self._asked[path](Request(words[0], dict(parse_qsl(query, keep_blank_values=True)), body))
                return await answer if isinstance(answer, Awaitable) else answer
            if page is None:
                known = sorted([*self._pages, *self._asked])
                return text(HTTPStatus.NOT_FOUND, f"pages here: {' '.join(known)}")
            if words[0] != "GET":
                return text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered here")
            return page()
        except Exception:
            log.exception("page %s failed", words[1])
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; the log says why")


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return await reader.readexactly(min(int(value), BODY_LIMIT))
    return b""


def split_address(address: str) -> tuple[str, int]:
    """
    >>> split_address("127.0.0.1:80"), split_address("[::1]:80"), split_address(":80")
    (('127.0.0.1', 80), ('::1', 80), ('', 80))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{address!r} is not of the form host:port, e.g. 127.0.0.1:9464")
    return host.strip("[]"), int(port)


def _response(page: Page) -> bytes:
    return _head(page.status, page.content_type, (("Content-Length", str(len(page.body))), *page.headers)) + page.body


def _opening(stream: Stream) -> bytes:
    """No length: the end of the connection is the end of the answer."""
    return _head(HTTPStatus.OK, stream.content_type, (("Cache-Control", "no-store"), *stream.headers))


def _head(status: HTTPStatus, content_type: str, headers: Headers) -> bytes:
    fixed = (("Content-Type", content_type), ("X-Content-Type-Options", "nosniff"), ("Connection", "close"))
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in (*fixed, *headers))]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
