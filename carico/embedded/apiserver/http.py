"""HTTP/1.1 for one local user: short responses on persistent connections, and endless streams.

A request is answered as soon as it is complete, in the order of arrival. A client without the token is rejected after
its headers, before any of its data is kept. A connection that sends nothing is closed after STRANGER_PATIENCE, or when
there are more than STRANGERS of them. Headers are parsed by carico/http; bodies may also be chunked.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple, Protocol, cast

from carico.embedded.apiserver.status_error import StatusError
from carico.errors import RejectedRequest
from carico.http import head as heads
from carico.http.message import JSON, Page, encoded

log = logging.getLogger(__name__)

HEAD_LIMIT = 64 << 10  # bytes of request line and headers
BODY_LIMIT = 16 << 20  # bytes
STRANGERS = 600  # unauthenticated connections; a scheduler opens up to 512 at once
STRANGER_PATIENCE = 10.0  # s for a connection to authenticate
UNSENT = 1 << 20  # bytes buffered for a slow reader before its stream pauses
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")  # size and extensions


class ApiRequest(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # lower-case names
    body: bytes = b""
    keep: bool = True  # the client may send another request on this connection


class ApiResponse(NamedTuple):
    code: int
    body: bytes
    media: str = JSON


class ApiStream(Protocol):
    """A response that is sent in pieces."""

    media: str

    def begin(self, sink: StreamSink) -> None:
        """The headers were sent: pieces may follow."""

    def go_on(self) -> None:
        """The write buffer has drained: `sink.open` is true again."""

    def end(self) -> None:
        """The client disconnected, or `sink.finish` was called."""


class StreamSink(Protocol):
    """The connection as a stream sees it."""

    @property
    def open(self) -> bool: ...
    def send(self, piece: bytes) -> None: ...
    def finish(self) -> None: ...


Handler = Callable[[ApiRequest], ApiResponse | ApiStream]


class ApiConnection(asyncio.Protocol):
    def __init__(
        self,
        admits: Callable[[ApiRequest], bool],
        handle: Handler,
        everyone: set[ApiConnection],
        strangers: dict[ApiConnection, None],
    ) -> None:
        """`strangers` are the unauthenticated connections among `everyone`, the oldest first."""
        self._admits, self._handle, self._everyone, self._strangers = admits, handle, everyone, strangers
        self._buffer = bytearray()
        self._stream: ApiStream | None = None
        self._slow = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT)
        self._everyone.add(self)
        self._strangers[self] = None
        self._patience = asyncio.get_running_loop().call_later(STRANGER_PATIENCE, self.close)
        if len(self._strangers) > STRANGERS:
            next(iter(self._strangers)).close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._everyone.discard(self)
        self._mark_known()
        self._end_stream()

    def close(self) -> None:
        self._mark_known()
        self._transport.abort()

    def _mark_known(self) -> None:
        self._strangers.pop(self, None)
        self._patience.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while self._stream is None and not self._transport.is_closing() and self._next():
                pass
        except StatusError as refusal:
            self._answer(ApiResponse(refusal.code, refusal.encode()), last=True)
        except Exception:
            log.exception("a request failed")
            self._answer(
                ApiResponse(500, StatusError(500, "InternalError", "the log has the reason").encode()), last=True
            )

    def _next(self) -> bool:
        """Answer the request at the start of the buffer; False if it is not complete yet."""
        end = self._buffer.find(b"\r\n\r\n")
        if (len(self._buffer) if end < 0 else end) > HEAD_LIMIT:
            raise StatusError(431, "", "the headers are too long")
        if end < 0:
            return False
        request = parse(bytes(self._buffer[:end]))
        if not self._admits(request):
            raise StatusError(401, "Unauthorized", "Unauthorized")
        if self in self._strangers:
            self._mark_known()
        found = body(self._buffer, end + 4, request.headers)
        if found is None:
            return False
        content, used = found
        del self._buffer[:used]
        self._respond(request._replace(body=content))
        return True

    def _respond(self, request: ApiRequest) -> None:
        try:
            answer = self._handle(request)
        except StatusError as refusal:
            answer = ApiResponse(refusal.code, refusal.encode())
        if isinstance(answer, ApiResponse):
            self._answer(answer, last=not request.keep)
            return
        self._stream = answer
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {answer.media}\r\nTransfer-Encoding: chunked\r\n\r\n"
        self._transport.write(head.encode())
        answer.begin(self)

    def _answer(self, answer: ApiResponse, last: bool) -> None:
        page = Page(HTTPStatus(answer.code), answer.media, answer.body)
        self._transport.write(encoded(page, head_only=False, close=last))
        if last:
            self._transport.close()

    @property
    def open(self) -> bool:
        return not self._slow and not self._transport.is_closing()

    def send(self, piece: bytes) -> None:
        if piece:
            self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def finish(self) -> None:
        if self._stream is not None:
            self._transport.write(b"0\r\n\r\n")
            self._transport.close()
            self._end_stream()

    def pause_writing(self) -> None:
        self._slow = True

    def resume_writing(self) -> None:
        self._slow = False
        if self._stream is not None:
            self._stream.go_on()

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()


def parse(head: bytes) -> ApiRequest:
    """
    >>> parse(b"GET /api/v1/pods?limit=5 HTTP/1.1\\r\\nHost: x")
    ApiRequest(method='GET', path='/api/v1/pods', query={'limit': '5'}, headers={'host': 'x'}, body=b'', keep=True)
    """
    try:
        found = heads.parse(head)
    except RejectedRequest as refused:
        raise StatusError(400, "BadRequest", refused.reason) from refused
    return ApiRequest(found.method, found.path, found.query, found.headers, keep=found.keep)


def body(buffer: bytearray, start: int, headers: dict[str, str]) -> tuple[bytes, int] | None:
    """The request's body and where it ends; None while it is incomplete."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        if "content-length" in headers:  # another reader of these bytes could see another end
            raise StatusError(400, "BadRequest", "Content-Length and Transfer-Encoding exclude each other")
        return _chunks(buffer, start)
    try:
        length = heads.body_length(headers, needed=False)
    except RejectedRequest as refused:
        raise StatusError(refused.status, "BadRequest", refused.reason) from refused
    if length > BODY_LIMIT:
        raise StatusError(413, "RequestEntityTooLarge", f"a body has at most {BODY_LIMIT} bytes")
    end = start + length
    return (bytes(buffer[start:end]), end) if len(buffer) >= end else None


def _chunks(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    """Trailers are skipped.

    >>> _chunks(bytearray(b"3\\r\\nabc\\r\\n0\\r\\n\\r\\nnext"), 0)
    (b'abc', 13)
    >>> _chunks(bytearray(b"0\\r\\nX: y\\r\\n\\r\\nnext"), 0)
    (b'', 11)
    """
    parts: list[bytes] = []
    while True:
        line = buffer.find(b"\r\n", at)
        if len(buffer) - at > BODY_LIMIT or sum(map(len, parts)) > BODY_LIMIT:
            raise StatusError(413, "RequestEntityTooLarge", f"a body has at most {BODY_LIMIT} bytes")
        if line < 0:
            return None
        chunk_size = _CHUNK.fullmatch(buffer, at, line)
        if chunk_size is None:
            raise StatusError(400, "BadRequest", "a chunk does not start with its size")
        size = int(chunk_size[1], 16)
        if size == 0:
            end = buffer.find(b"\r\n\r\n", line)  # the trailers' end; without any, the end of this line
            return None if end < 0 else (b"".join(parts), end + 4)
        end = line + 2 + size
        if len(buffer) < end + 2:
            return None
        if buffer[end : end + 2] != b"\r\n":
            raise StatusError(400, "BadRequest", "a chunk is longer or shorter than its size")
        parts.append(bytes(buffer[line + 2 : end]))
        at = end + 2
