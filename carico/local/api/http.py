"""HTTP/1.1 for one owner on one machine: short answers on connections that stay, and endless streams.

A request is answered as soon as it is whole, in the order in which it came. A caller without the token is turned away
at its headers, before anything that it sends is kept; one who says nothing is turned away too, after a while or when
there are many. Heads are parsed as everywhere in Carico (carico/http), bodies may also come in chunks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple, Protocol, cast

from carico.http import head as heads
from carico.http.message import JSON, Page, RefusedError, encoded
from carico.local.api.refusal import Refusal

log = logging.getLogger(__name__)

HEAD_LIMIT = 64 << 10  # bytes of request line and headers
BODY_LIMIT = 16 << 20  # bytes
STRANGERS = 600  # connections that have not shown the token; a scheduler opens up to 512 in a moment
STRANGER_PATIENCE = 10.0  # s for them to do so
UNSENT = 1 << 20  # bytes that wait for a slow reader before its stream pauses


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # lower-case names
    body: bytes = b""


class Answer(NamedTuple):
    code: int
    body: bytes
    media: str = JSON


class Stream(Protocol):
    """An answer that comes in pieces."""

    media: str

    def begin(self, door: Door) -> None:
        """The headers are out: pieces may follow."""

    def go_on(self) -> None:
        """The reader has caught up: `door.open` is true again."""

    def end(self) -> None:
        """The reader is gone, or `door.finish` was called."""


class Door(Protocol):
    """What a stream sees of its connection."""

    @property
    def open(self) -> bool: ...
    def send(self, piece: bytes) -> None: ...
    def finish(self) -> None: ...


Handler = Callable[[Request], Answer | Stream]


class Connection(asyncio.Protocol):
    def __init__(
        self,
        admits: Callable[[Request], bool],
        handle: Handler,
        everyone: set[Connection],
        strangers: dict[Connection, None],
    ) -> None:
        """`strangers` are those of `everyone` that have not shown the token, the oldest first."""
        self._admits, self._handle, self._everyone, self._strangers = admits, handle, everyone, strangers
        self._buffer = bytearray()
        self._stream: Stream | None = None
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
        self._known()
        self._end_stream()

    def close(self) -> None:
        self._known()
        self._transport.abort()

    def _known(self) -> None:
        self._strangers.pop(self, None)
        self._patience.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while self._stream is None and self._next():
                pass
        except Refusal as refusal:
            self._answer(Answer(refusal.code, refusal.encode()), last=True)
        except Exception:
            log.exception("a request failed")
            self._answer(Answer(500, Refusal(500, "InternalError", "the log says why").encode()), last=True)

    def _next(self) -> bool:
        """Answers the request at the head of the buffer; False when it is not whole yet."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise Refusal(431, "", "the headers are too long")
            return False
        request = parse(bytes(self._buffer[:end]))
        if not self._admits(request):
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if self in self._strangers:
            self._known()
        found = body(self._buffer, end + 4, request.headers)
        if found is None:
            return False
        content, used = found
        del self._buffer[:used]
        self._respond(request._replace(body=content))
        return True

    def _respond(self, request: Request) -> None:
        try:
            answer = self._handle(request)
        except Refusal as refusal:
            answer = Answer(refusal.code, refusal.encode())
        if isinstance(answer, Answer):
            self._answer(answer, last=request.headers.get("connection", "").lower() == "close")
            return
        self._stream = answer
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {answer.media}\r\nTransfer-Encoding: chunked\r\n\r\n"
        self._transport.write(head.encode())
        answer.begin(self)

    def _answer(self, answer: Answer, last: bool) -> None:
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


def parse(head: bytes) -> Request:
    """
    >>> parse(b"GET /api/v1/pods?limit=5 HTTP/1.1\\r\\nHost: x")
    Request(method='GET', path='/api/v1/pods', query={'limit': '5'}, headers={'host': 'x'}, body=b'')
    """
    try:
        return Request(*heads.parse(head)[:4])
    except RefusedError as refused:
        raise Refusal(400, "BadRequest", refused.reason) from refused


def body(buffer: bytearray, start: int, headers: dict[str, str]) -> tuple[bytes, int] | None:
    """The request's body and where it ends; None while it is not whole."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _chunks(buffer, start)
    try:
        length = heads.body_length(headers, needed=False)
    except RefusedError as refused:
        raise Refusal(refused.status, "BadRequest", refused.reason) from refused
    if length > BODY_LIMIT:
        raise Refusal(413, "RequestEntityTooLarge", f"a body has at most {BODY_LIMIT} bytes")
    end = start + length
    return (bytes(buffer[start:end]), end) if len(buffer) >= end else None


def _chunks(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    """
    >>> _chunks(bytearray(b"3\\r\\nabc\\r\\n0\\r\\n\\r\\nnext"), 0)
    (b'abc', 13)
    """
    parts: list[bytes] = []
    while True:
        line = buffer.find(b"\r\n", at)
        if len(buffer) - at > BODY_LIMIT or sum(map(len, parts)) > BODY_LIMIT:
            raise Refusal(413, "RequestEntityTooLarge", f"a body has at most {BODY_LIMIT} bytes")
        if line < 0:
            return None
        try:
            size = int(bytes(buffer[at:line]).partition(b";")[0], 16)
        except ValueError:
            raise Refusal(400, "BadRequest", "a chunk does not start with its size") from None
        end = line + 2 + size + 2
        if len(buffer) < end:
            return None
        if size <= 0:
            return b"".join(parts), end
        parts.append(bytes(buffer[line + 2 : end - 2]))
        at = end
