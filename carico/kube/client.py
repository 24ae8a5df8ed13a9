"""The API server's client: pooled connections, credentials, a rate limit, errors with the server's message.

    client.call("GET", "/api/v1/nodes")            the body of the response, or an ApiError
    client.create(path, protobuf.EVENT, {…})       a new object, of a kind that is written by the thousand
    client.open_stream("/api/v1/pods?watch=1")     an endless response, on a separate connection

A request that fails on a connection that was idle, before any byte of the response came, is sent once more, on a new
connection: the server may have closed the idle one at that moment. A caller that posts must therefore handle a post
that arrives twice (binding.py does: the second one is a conflict, after which it reads the pod). When the second one
fails too, the caller gets the error: sent on every idle connection, one request could arrive as often as there are of
them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import msgspec

from carico import __version__
from carico.clock import Clock, SystemClock
from carico.errors import ApiError, CaricoError, FencedError, HttpError
from carico.kube import protobuf
from carico.kube.decode import decode
from carico.kube.http import Response
from carico.kube.identity import ClientIdentity, Credentials
from carico.kube.network import Connect, NetworkConnection, over_sockets
from carico.kube.pool import ConnectionPool
from carico.kube.protobuf import StatusText

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
UNAUTHORIZED = 401
UNKNOWN_MEDIA = 415
CONNECT_PATIENCE = 10.0  # s
ANSWER_PATIENCE = 30.0  # s for a whole response; lists of 30,000 pods come in pages
RETRY_AFTER_LIMIT = 60.0  # s
_UNSAFE = re.compile(r"[^!-~]")  # what would end the request line, or be read differently by two servers


# Called right before a request is sent, when its connection is established: False stops it from being sent.
Fence = Callable[[], bool]


# Called for every request with its method, the status of the response (NO_ANSWER if none came), and its duration in s,
# None for a stream and for a request that got no connection.
Answered = Callable[[str, str, float | None], object]
NO_ANSWER = "<error>"  # client-go's value in its metrics


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] = []


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: _Details = msgspec.field(default_factory=_Details)


def is_good(status: int) -> bool:
    return 200 <= status < 300


def api_error(response: Response) -> ApiError:
    if response.status < 400:  # usually a proxy that requires a login
        where = response.headers.get(b"location", b"").decode("latin-1")[:200]
        return ApiError(response.status, "Redirect", f"no redirect is followed, nor is this one to {where!r}")
    status = _decode_status(response)
    wait = response.headers.get(b"retry-after", b"0")
    retry_after = min(float(wait), RETRY_AFTER_LIMIT) if wait.isdigit() else 0.0
    return ApiError(response.status, status.reason, status.message, retry_after, status.causes)


def _decode_status(response: Response) -> StatusText:
    try:
        if response.body.startswith(protobuf.MAGIC):
            return protobuf.read_status(response.body)
        status = decode(_Status, response.body)
    except (msgspec.DecodeError, CaricoError):
        return StatusText("", response.body[:200].decode(errors="replace").strip(), {})
    return StatusText(status.reason, status.message, {cause.reason: cause.message for cause in status.details.causes})


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


class ResponseStream(NamedTuple):
    """A response in progress; `close` it when done."""

    connection: NetworkConnection
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
        patience: float = ANSWER_PATIENCE,
        agent: str = "carico-scheduler",
        connect: Connect = over_sockets,
    ) -> None:
        """`patience` is the timeout for one whole response, s; `connect` is the network."""
        self._credentials, self._clock, self._patience = credentials, clock or SystemClock(), patience
        self._limit = RateLimit(qps, burst, self._clock)
        self._places = asyncio.Semaphore(connections)
        self._connect = connect
        self._pool = ConnectionPool(credentials, connections, min(CONNECT_PATIENCE, patience), self._clock, connect)
        self._agent = agent
        self._heads: dict[tuple[str, str], bytes] = {}
        self._identity: ClientIdentity | None = None  # of the requests and connections that are made now
        self._binary = True  # until the server answers 415 it is assumed to read protobuf
        self.sent = 0  # requests, for tests
        self.on_answer: Answered = _not_counted

    def apart(self, patience: float) -> Client:
        """A client for one purpose with its own connection, independent of the state of the others."""
        client = Client(
            self._credentials,
            connections=1,
            clock=self._clock,
            patience=patience,
            agent=self._agent,
            connect=self._connect,
        )
        client.on_answer = lambda *answer: self.on_answer(*answer)
        return client

    @property
    def host(self) -> str:
        return self._credentials.authority

    @property
    def namespace(self) -> str:
        """That of the pod, or of the kubeconfig's context."""
        return self._credentials.namespace

    def certificate(self) -> bytes:
        """The client certificate in PEM form, with its key; empty if there is none."""
        return self._credentials.certificate()

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
        """The body of a 2xx response; ApiError for another status, HttpError or OSError when there was no response.

        An urgent request waits neither for the rate limit nor for a slot among the `connections`. FencedError if
        `fence` returns False when the request could be sent.
        """
        response = await self.exchange(method, path, body, content_type, urgent=urgent, fence=fence)
        if not is_good(response.status):
            raise api_error(response)
        return response.body

    async def throttle(self) -> None:
        """Waits for the rate limit: for a caller that must check its state once more before an urgent request."""
        await self._limit.take()

    async def create(
        self,
        path: str,
        kind: protobuf.ProtobufKind,
        obj: dict[str, Any],
        *,
        urgent: bool = False,
        fence: Fence | None = None,
    ) -> None:
        """POST of an object; as protobuf, unless this server has rejected that media type."""
        if self._binary:
            body = protobuf.write(kind, obj)
            response = await self.exchange("POST", path, body, protobuf.MEDIA, urgent=urgent, fence=fence)
            if is_good(response.status):
                return
            if response.status != UNKNOWN_MEDIA:
                raise api_error(response)
            self._binary = False
        await self.call("POST", path, msgspec.json.encode(obj), urgent=urgent, fence=fence)

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
        """The response, whatever its status; that of a second attempt if a 401 led to other credentials."""
        if urgent:
            return await self._answer(method, path, body, content_type, fence)
        await self.throttle()
        async with self._places:
            return await self._answer(method, path, body, content_type, fence)

    async def _answer(self, method: str, path: str, body: bytes, content_type: str, fence: Fence | None) -> Response:
        response, identity = await self._send(method, path, body, content_type, fence)
        if response.status == UNAUTHORIZED and await self._credentials.renew(identity):
            response, _ = await self._send(method, path, body, content_type, fence)
        return response

    async def _send(
        self, method: str, path: str, body: bytes, content_type: str, fence: Fence | None
    ) -> tuple[Response, ClientIdentity]:
        """The response, and the identity of its request: credentials may change while a connection is made."""
        again = False
        while True:
            identity = await self._present()
            message = self._message(method, path, body, content_type)
            connection, fresh = await self._connection(method, new=again)
            if fence is not None and not fence():
                self._pool.put(connection)
                raise FencedError
            began = self._clock.monotonic()
            self.sent += 1
            try:
                response = await self._send_counted(method, connection, message, began)
            except (HttpError, OSError) as error:
                connection.close()
                late = isinstance(error, TimeoutError)
                if late or connection.timed_out:
                    self._pool.drop_older(began)
                if late or fresh or connection.answered:
                    raise
                again = True
            except BaseException:
                connection.close()
                raise
            else:
                self._pool.put(connection, fresh=fresh)
                return response, identity

    async def _connection(self, method: str, *, new: bool) -> tuple[NetworkConnection, bool]:
        """A connection, and whether it is a new one; always a new one if `new`."""
        try:
            return (await self._pool.connect(), True) if new else await self._pool.take()
        except (HttpError, OSError):
            self.on_answer(method, NO_ANSWER, None)
            raise

    async def _send_counted(self, method: str, connection: NetworkConnection, message: bytes, began: float) -> Response:
        code = NO_ANSWER
        try:
            async with asyncio.timeout(self._patience):
                response = await connection.request(message)
            code = str(response.status)
            return response
        finally:
            self.on_answer(method, code, self._clock.monotonic() - began)

    async def open_stream(self, path: str) -> ResponseStream:
        """A stream has its own connection: in the pool it would starve the other requests."""
        await self._limit.take()
        identity = await self._present()
        try:
            return await self._stream(path)
        except ApiError as error:
            if error.status != UNAUTHORIZED or not await self._credentials.renew(identity):
                raise
        await self._present()
        return await self._stream(path)

    async def _stream(self, path: str) -> ResponseStream:
        message = self._message("GET", path, b"", JSON)
        connection, code = None, NO_ANSWER
        try:
            connection = await self._pool.connect()
            async with asyncio.timeout(self._patience):
                head, parts = await connection.stream(message)
            code = str(head.status)
            if not is_good(head.status):
                raise api_error(Response(head.status, head.headers, b"".join([part async for part in parts])))
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        finally:
            self.on_answer("GET", code, None)
        return ResponseStream(connection, parts)

    async def close(self) -> None:
        self._pool.close()

    async def _present(self) -> ClientIdentity:
        """The current identity; requests and connections are made with it."""
        identity = await self._credentials.identity()
        if identity is not self._identity:
            self._identity = identity
            self._heads.clear()
            self._pool.use(identity.tls)
        return identity

    def _message(self, method: str, path: str, body: bytes, content_type: str) -> bytes:
        rest = self._heads.get((method, content_type))
        if rest is None:
            rest = self._heads[method, content_type] = self._head(content_type)
        if _UNSAFE.search(self._credentials.prefix + path):
            raise CaricoError(f"{path[:80]!r} cannot be sent: a path has visible ASCII characters only")
        start = f"{method} {self._credentials.prefix}{path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n".encode()
        return start + rest + body

    def _head(self, content_type: str) -> bytes:
        lines = [
            f"Host: {self._credentials.authority}",
            f"User-Agent: {self._agent}/{__version__}",
            f"Accept: {content_type if content_type == protobuf.MEDIA else JSON}",
            f"Content-Type: {content_type}",
        ]
        if self._identity is not None:
            lines += [f"{name}: {value}" for name, value in self._identity.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _not_counted(_method: str, _code: str, _seconds: float | None) -> None:
    """The default of `on_answer`: counts nothing."""
