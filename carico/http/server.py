"""Connections, their limits and their timeouts.

Path and method are known before any of a body is read, and a body is read only up to its route's limit. While all
slots are taken, a new client replaces the one that the server has waited for longest, whether it sends no request,
does not send its body or does not read its response: silent connections cannot block a probe.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus

from carico.errors import RejectedRequest
from carico.http.address import is_loopback
from carico.http.foreign import SHOWN, foreign_host, foreign_origin
from carico.http.head import HEAD_LIMIT, RequestHead, body_length, parse
from carico.http.listener import Listener
from carico.http.message import JSON, Answer, Headers, Page, Request, Stream, encoded, text
from carico.http.refusals import Refusals
from carico.http.routes import Access, Route

log = logging.getLogger(__name__)

CONNECTIONS = 64
BODIES_LIMIT = 64 << 20  # bytes of all bodies that are read at once
HEAD_PATIENCE = 5.0  # s for the first request of a connection
IDLE = 120.0  # s until the next one; longer than Go's clients keep an idle connection, or they would lose a POST
BODY_PATIENCE = 10.0  # s
ANSWER_PATIENCE = 5.0  # s for a client to read its response
LINGER = 1.0  # s in which further data of a rejected client is discarded, so that it reads the reason

Checked = Callable[[RequestHead], Awaitable[None]]  # raises RejectedRequest for a caller without permission


async def anybody(_: RequestHead) -> None:
    """Every client that reaches the address is allowed."""


class HttpServer:
    """Serves `routes`, by path, at `address` (host:port; port 0 takes a free one)."""

    def __init__(
        self,
        address: str,
        routes: Mapping[str, Route],
        *,
        name: str = "listen",
        tls: ssl.SSLContext | None = None,
        connections: int = CONNECTIONS,
        check: Checked = anybody,
        count: Callable[[str, int], None] = lambda _name, _status: None,
    ) -> None:
        """`name` is that of the setting which holds the address; `count` gets it with the status of each response."""
        self._listener, self.name = Listener(address, tls, name, connections), name
        self._routes, self._connections, self._check, self._count = dict(routes), connections, check, count
        self._refusals = Refusals(name)
        self._clients: set[asyncio.Task[None]] = set()
        self._slow: dict[asyncio.Task[None], None] = {}  # those that the server waits for, the longest first
        self._bodies = 0  # bytes

    async def start(self) -> int:
        """Starts to listen and returns the port."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            reader = asyncio.StreamReader(limit=HEAD_LIMIT, loop=loop)
            return asyncio.StreamReaderProtocol(reader, self._serve, loop=loop)

        return await self._listener.start(protocol)

    async def stop(self) -> None:
        if self._listener.stop():
            for client in self._clients:  # or a slow one would delay the process's end by its whole timeout
                client.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)

    # --- connections ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Starts a separate task: the server would report a cancelled one as an error."""
        if len(self._clients) >= self._connections and not self._drop_slowest():
            page = text(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections", (("Retry-After", "1"),))
            writer.write(encoded(page, head_only=False, close=True))
            self._count_rejection(page.status, _caller(writer), "a connection", f"all {self._connections} are in use")
            writer.close()
            return
        client = asyncio.create_task(self._talk(reader, writer))
        self._clients.add(client)
        self._slow[client] = None  # before it has run at all: many may arrive in one iteration of the event loop
        client.add_done_callback(lambda _: self._on_leave(client, writer))

    def _on_leave(self, client: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        self._clients.discard(client)
        self._slow.pop(client, None)
        if client.cancelled() or writer.transport.get_write_buffer_size():
            writer.transport.abort()  # close() would wait until the client reads what is left
        else:
            writer.close()

    def _drop_slowest(self) -> bool:
        slowest = next(iter(self._slow), None)
        if slowest is None:
            return False
        del self._slow[slowest]
        self._clients.discard(slowest)
        slowest.cancel()
        return True

    @contextlib.asynccontextmanager
    async def _client_turn(self, seconds: float) -> AsyncIterator[None]:
        """While the server waits for the client."""
        task = asyncio.current_task()
        assert task is not None
        self._slow[task] = None
        try:
            async with asyncio.timeout(seconds):
                yield
        finally:
            self._slow.pop(task, None)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        patience = HEAD_PATIENCE
        writer.transport.set_write_buffer_limits(high=0)  # drain() returns once all of a response is sent
        try:
            while await self._exchange(reader, writer, patience):
                patience = IDLE
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass  # an error of the client, and not actionable

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> bool:
        """One request and its response; returns whether there may be another."""
        what = "a connection"
        try:
            block = await self._block(reader, patience)
            head = parse(block)
            what = f"{head.method} {head.path[:SHOWN]!r}"
            request, route = await self._request(head, reader, writer)
        except RejectedRequest as refused:
            self._count_rejection(refused.status, _caller(writer), what, refused.reason)
            await self._refuse(refused, reader, writer)
            return False
        answer = await self._answer(route, request, head.path)
        self._count(self.name, answer.status if isinstance(answer, Page) else HTTPStatus.OK)
        only = head.method == "HEAD"
        async with self._client_turn(ANSWER_PATIENCE):
            writer.write(encoded(answer, head_only=only, close=not head.keep))
            await writer.drain()
        if isinstance(answer, Stream):
            if not only:
                await _follow(answer, reader, writer)
            return False
        return head.keep

    def _count_rejection(self, status: HTTPStatus, caller: str, what: str, reason: str) -> None:
        self._count(self.name, status)
        self._refusals.note(status, caller, what, reason)

    async def _refuse(self, why: RejectedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encoded(text(why.status, why.reason, why.headers), head_only=False, close=True))
        with contextlib.suppress(TimeoutError):
            async with self._client_turn(LINGER):
                await writer.drain()
                if writer.can_write_eof():
                    writer.write_eof()
                while await reader.read(HEAD_LIMIT):
                    pass

    # --- one request ---

    async def _block(self, reader: asyncio.StreamReader, patience: float) -> bytes:
        try:
            async with self._client_turn(patience):
                return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise RejectedRequest(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEAD_LIMIT} bytes of headers"
            ) from None

    async def _request(
        self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Request, Route]:
        route = self._routes.get(head.path)
        access = Access.PRIVATE if route is None else route.access
        if access is Access.LOCAL and not is_loopback(_caller(writer)):
            raise RejectedRequest(
                HTTPStatus.FORBIDDEN, "only for clients on its machine, e.g. of `kubectl port-forward`"
            )
        if (self._listener.loopback or access is Access.LOCAL) and (problem := foreign_host(head.headers)):
            raise RejectedRequest(HTTPStatus.FORBIDDEN, problem)
        browsed = access in (Access.PRIVATE, Access.LOCAL)
        if browsed and (problem := foreign_origin(head.method, head.headers)):
            raise RejectedRequest(HTTPStatus.FORBIDDEN, problem)
        if access is not Access.PROBE:
            await self._check(head)
        if route is None:
            raise RejectedRequest(HTTPStatus.NOT_FOUND, f"pages here: {' '.join(sorted(self._routes))}")
        if head.method not in route.methods:
            allow = ", ".join(route.methods)
            raise RejectedRequest(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allow} here", (("Allow", allow),))
        body = await self._body(head, route, reader, writer)
        method = "GET" if head.method == "HEAD" else head.method
        return Request(method, head.query, body, head.headers), route

    async def _body(
        self, head: RequestHead, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        posts = head.method == "POST"
        length, limit = body_length(head.headers, needed=posts), route.body_limit if posts else 0
        if posts and head.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise RejectedRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"only {JSON} is taken")
        if length > limit:
            most = f"at most {limit} bytes of a body are" if limit else f"no body of a {head.method} is"
            raise RejectedRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{most} taken")
        if self._bodies + length > BODIES_LIMIT:
            again: Headers = (("Retry-After", "1"),)
            raise RejectedRequest(HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests at once", again)
        expected = head.headers.get("expect", "").lower()
        if expected not in ("", "100-continue"):
            raise RejectedRequest(HTTPStatus.EXPECTATION_FAILED, "only 100-continue can be expected")
        self._bodies += length
        try:
            async with self._client_turn(BODY_PATIENCE):
                if expected and length:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    await writer.drain()
                return await reader.readexactly(length)
        finally:
            self._bodies -= length

    async def _answer(self, route: Route, request: Request, path: str) -> Answer:
        try:
            answer = route.answer(request)
            return await answer if isinstance(answer, Awaitable) else answer
        except Exception:
            log.exception("page %s failed", path)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; the log has the reason")


async def _follow(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Runs the stream until it ends, or the client closes its end of the connection or sends anything."""
    following = asyncio.ensure_future(stream.follow(writer))
    leaving = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (following, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await task


def _caller(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else "an unknown client"
