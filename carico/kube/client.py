"""The one door to the API server: pooled connections, credentials, a rate limit, errors with the server's own words.

    client.call("GET", "/api/v1/nodes")            the body of the answer, or an ApiError
    client.create(path, protobuf.EVENT, {…})       a new object, of a kind that is written by the thousand
    client.open_stream("/api/v1/pods?watch=1")     an endless answer, on a connection of its own

A request that fails on a connection that had been idle, before any byte of the answer came, is sent again once on a
fresh one: the server may have closed the idle one at that very moment. Whoever posts must therefore bear that a post
arrives twice (binding.py does: the second one is a conflict that it looks into).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import msgspec

from carico import __version__
from carico.clock import Clock, SystemClock
from carico.errors import CaricoError
from carico.kube import protobuf
from carico.kube.chunked import HttpError
from carico.kube.http import Connection, Response
from carico.kube.identity import Credentials, Identity
from carico.kube.tunnel import open_through

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
UNAUTHORIZED = 401
UNKNOWN_MEDIA = 415
CONNECT_PATIENCE = 10.0  # s
ANSWER_PATIENCE = 30.0  # s for a whole answer; lists of 30,000 pods come in pages


# Asked right before a request is sent, when its connection is there: False keeps it from being sent.
Fence = Callable[[], bool]


class FencedError(CaricoError):
    """The request was not sent: this replica no longer leads."""

    def __init__(self) -> None:
        super().__init__("this replica no longer leads")


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


class ApiError(CaricoError):
    """The API server said no. `status` is HTTP's number, `reason` Kubernetes' word (Conflict, NotFound, …)."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"the API server answered {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after  # s


def api_error(response: Response) -> ApiError:
    said = _said(response)
    wait = response.headers.get(b"retry-after", b"0")
    return ApiError(response.status, said.reason, said.message, float(wait) if wait.isdigit() else 0.0)


def _said(response: Response) -> _Status:
    try:
        if response.body.startswith(protobuf.MAGIC):
            return _Status(*protobuf.read_status(response.body))
        return msgspec.json.decode(response.body, type=_Status)
    except (msgspec.DecodeError, CaricoError):
        return _Status(message=response.body[:200].decode(errors="replace").strip())


class RateLimit:
    """A bucket that fills with `qps` tokens a second and holds `burst`; qps 0 means no limit."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._qps, self._burst, self._clock = qps, float(burst), clock
        self._tokens, self._at = float(burst), clock.monotonic()

    async def take(self) -> None:
        if not self._qps:
            return
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps)
        self._at = now
        self._tokens -= 1
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._qps)


class Stream(NamedTuple):
    """An answer under way; `close` it when done."""

    connection: Connection
    parts: AsyncIterator[bytes]

    def close(self) -> None:
        self.connection.close()


class Client:
    def __init__(
        self,
        credentials: Credentials,
        *,
        qps: float = 0,
        burst: int = 100,
        connections: int = 64,
        clock: Clock | None = None,
        agent: str = "carico-scheduler",
    ) -> None:
        self._credentials = credentials
        self._limit = RateLimit(qps, burst, clock or SystemClock())
        self._places = asyncio.Semaphore(connections)
        self._idle: list[Connection] = []
        # Of the newest connection: a burst opens hundreds, and each whole handshake costs both sides a millisecond.
        self._session: ssl.SSLSession | None = None
        self._agent = f"{agent}/{__version__}"
        self._heads: dict[tuple[str, str], bytes] = {}
        self._identity: Identity | None = None  # of the requests and connections that are made now
        self._binary = True  # as far as we know, the server reads protobuf
        self.sent = 0  # requests, for tests and metrics

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = JSON,
        *,
        urgent: bool = False,
        fence: Fence | None = None,
    ) -> bytes:
        """The body of a good answer; ApiError for a bad one, HttpError or OSError when there was none.

        What is urgent does not wait for the rate limit. FencedError if `fence` says no when it could be sent.
        """
        response = await self.exchange(method, path, body, content_type, urgent=urgent, fence=fence)
        if response.status >= 400:
            raise api_error(response)
        return response.body

    async def turn(self) -> None:
        """Waits for the rate limit: for who must look round once more before something urgent is sent."""
        await self._limit.take()

    async def create(
        self,
        path: str,
        kind: protobuf.Kind,
        thing: dict[str, Any],
        *,
        urgent: bool = False,
        fence: Fence | None = None,
    ) -> None:
        """POST of an object; in binary, unless this server has said that it does not understand that."""
        if self._binary:
            body = protobuf.write(kind, thing)
            response = await self.exchange("POST", path, body, protobuf.MEDIA, urgent=urgent, fence=fence)
            if response.status < 400:
                return
            if response.status != UNKNOWN_MEDIA:
                raise api_error(response)
            self._binary = False
        await self.call("POST", path, msgspec.json.encode(thing), urgent=urgent, fence=fence)

    async def exchange(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = JSON,
        *,
        urgent: bool = False,
        fence: Fence | None = None,
    ) -> Response:
        if not urgent:
            await self.turn()
        identity = await self._present()
        response = await self._answer(self._message(method, path, body, content_type), fence)
        if response.status == UNAUTHORIZED and await self._credentials.renew(identity):
            await self._present()
            response = await self._answer(self._message(method, path, body, content_type), fence)
        return response

    async def _answer(self, message: bytes, fence: Fence | None) -> Response:
        async with self._places:
            while True:
                connection, fresh = await self._connection()
                if fence is not None and not fence():
                    self._keep(connection)
                    raise FencedError
                try:
                    self.sent += 1
                    async with asyncio.timeout(ANSWER_PATIENCE):
                        response = await connection.request(message)
                    break
                except (HttpError, OSError) as error:
                    connection.close()
                    if fresh or connection.answered or isinstance(error, TimeoutError):
                        raise
                except BaseException:
                    connection.close()
                    raise
            self._keep(connection)
            if fresh and connection.open:
                self._session = connection.session
        return response

    async def open_stream(self, path: str) -> Stream:
        """Streams have their own connections: they would starve the pool."""
        await self._limit.take()
        identity = await self._present()
        try:
            return await self._stream(path)
        except ApiError as error:
            if error.status != UNAUTHORIZED or not await self._credentials.renew(identity):
                raise
        await self._present()
        return await self._stream(path)

    async def _stream(self, path: str) -> Stream:
        connection = await self._connect()
        try:
            async with asyncio.timeout(ANSWER_PATIENCE):
                head, parts = await connection.stream(self._message("GET", path, b"", JSON))
            if head.status >= 400:
                raise api_error(Response(head.status, head.headers, b"".join([part async for part in parts])))
        except BaseException:
            connection.close()
            raise
        return Stream(connection, parts)

    async def close(self) -> None:
        self._close_idle()

    def _close_idle(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _present(self) -> Identity:
        """Who we are now. With another TLS context no connection and no session of the old one is used again."""
        identity, before = await self._credentials.identity(), self._identity
        if identity is not before:
            self._identity = identity
            self._heads.clear()
            if before is not None and before.tls is not identity.tls:
                self._close_idle()
                self._session = None
        return identity

    def _keep(self, connection: Connection) -> None:
        """For the next request, unless another TLS context has come meanwhile."""
        if self._identity is not None and connection.tls is not self._identity.tls:
            connection.close()
        elif connection.open:
            self._idle.append(connection)

    def _message(self, method: str, path: str, body: bytes, content_type: str) -> bytes:
        rest = self._heads.get((method, content_type))
        if rest is None:
            rest = self._heads[method, content_type] = self._head(content_type)
        start = f"{method} {self._credentials.prefix}{path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n".encode()
        return start + rest + body

    def _head(self, content_type: str) -> bytes:
        lines = [
            f"Host: {self._credentials.authority}",
            f"User-Agent: {self._agent}",
            f"Accept: {content_type if content_type == protobuf.MEDIA else JSON}",
            f"Content-Type: {content_type}",
        ]
        if self._identity is not None:
            lines += [f"{name}: {value}" for name, value in self._identity.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def _connection(self) -> tuple[Connection, bool]:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection, False
        return await self._connect(), True

    async def _connect(self) -> Connection:
        where, tls = self._credentials, self._identity.tls if self._identity is not None else None
        name = where.server_name if tls is not None else None
        try:
            async with asyncio.timeout(CONNECT_PATIENCE):
                return Connection(await open_through(where.proxy, where.host, where.port, tls, name, self._session))
        except (OSError, TimeoutError) as error:
            why = str(error) or "no answer"
            raise HttpError(f"the API server at {where.authority} cannot be reached: {why}") from error
