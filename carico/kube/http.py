"""One HTTP/1.1 connection to the API server, written for many small requests and a few endless responses.

A general client costs two to four times the CPU time per binding. A scheduler needs little of HTTP: one request at a
time per connection, a response with a length or in chunks. `HttpConnection.request` waits for a whole response;
`HttpConnection.stream` yields the body as it comes and stops reading from the socket while the body is not consumed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import NamedTuple

from carico.errors import HttpError
from carico.kube.chunked import Chunked
from carico.kube.socket import Channel

STREAM_BUFFER = 4 << 20  # bytes of an unread stream after which the socket is no longer read
HEAD_LIMIT = 64 << 10  # bytes of status line and headers
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
LENGTH_DIGITS = 15
SPACE = 0x20  # this and all characters below it are invalid in a header's name
SWITCHING_PROTOCOLS = 101
INTERIM_LIMIT = 5  # 1xx responses before the final one, the same limit as Go's


class Response(NamedTuple):
    status: int
    headers: dict[bytes, bytes]  # lower-case names
    body: bytes


class ResponseHead(NamedTuple):
    status: int
    headers: dict[bytes, bytes]  # lower-case names
    length: int | None  # bytes of the body; None when it comes in chunks or until the connection ends
    chunked: bool
    last: bool  # the server closes the connection after this response


def parse_head(block: bytes) -> ResponseHead:
    """
    >>> parse_head(b"HTTP/1.1 201 Created\\r\\nContent-Length: 12")
    ResponseHead(status=201, headers={b'content-length': b'12'}, length=12, chunked=False, last=False)
    """
    first, *lines = block.split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or words[0] not in VERSIONS or len(words[1]) != 3 or not words[1].isdigit():
        raise HttpError(f"the answer does not start like HTTP: {first[:80]!r}")
    status, headers = int(words[1]), _headers(lines)
    last = _closes(words[0], headers.get(b"connection"))
    if status < 200 or status in (204, 304):
        return ResponseHead(status, headers, 0, False, last)
    chunked = b"transfer-encoding" in headers and _chunked(headers[b"transfer-encoding"])
    return ResponseHead(status, headers, None if chunked else _length(headers.get(b"content-length")), chunked, last)


def _headers(lines: list[bytes]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name[0] <= SPACE or name[-1] <= SPACE:
            raise HttpError(f"{line[:80]!r} is not a header of HTTP")
        name, value = name.lower(), value.strip()
        if name in headers and headers[name] != value:
            value = headers[name] + b", " + value
        headers[name] = value
    return headers


def _closes(version: bytes, connection_header: bytes | None) -> bool:
    words = [word.strip() for word in connection_header.lower().split(b",")] if connection_header is not None else ()
    return b"close" in words or (version == b"HTTP/1.0" and b"keep-alive" not in words)


def _chunked(coding: bytes) -> bool:
    if coding.lower() != b"chunked":
        raise HttpError(f"the answer comes in the unknown coding {coding[:40]!r}")
    return True


def _length(text: bytes | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or len(text) > LENGTH_DIGITS:
        raise HttpError(f"the answer's length is {text[:40]!r}")
    return int(text)


class HttpConnection:
    """A socket with at most one request in flight."""

    def __init__(self, sock: socket.socket) -> None:
        self._buffer = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._lost: Exception | None = None
        self._ended = False  # the server has sent all its data
        self.reusable = True  # False once the server announced a close, or a response was left half read
        self.answered = False  # a byte of the response to the request in flight has come
        self._channel = Channel(sock, self._received, self._broke)

    def _received(self, data: bytes) -> None:
        if not data:
            self._ended = True
            self._broke(HttpError("the server closed the connection"))
            return
        self.answered = True
        self._buffer += data
        if len(self._buffer) > STREAM_BUFFER:
            self._channel.pause()
        self._wake()

    def _broke(self, error: Exception) -> None:
        self._lost = error
        self.reusable = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def open(self) -> bool:
        """Whether another request can be sent; not if there is unread data."""
        return self._lost is None and self.reusable and not self._buffer

    @property
    def closed(self) -> bool:
        return self._channel.closed

    @property
    def timed_out(self) -> bool:
        """Whether it broke because the peer no longer responds."""
        return isinstance(self._lost, TimeoutError)

    @property
    def session(self) -> ssl.SSLSession | None:
        return self._channel.session

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._channel.tls

    def close(self) -> None:
        self.reusable = False
        self._channel.close()
        if self._lost is None:
            self._broke(HttpError("the connection was closed"))

    async def request(self, message: bytes) -> Response:
        """Sends a whole request and reads the whole response."""
        head = await self._send(message)
        if (length := head.length) is not None:
            while len(self._buffer) < length:
                await self._more()
            body = bytes(self._buffer[:length])
            del self._buffer[:length]
        else:
            body = b"".join([part async for part in self._parts(head)])
        if head.last:
            self.reusable = False
        return Response(head.status, head.headers, body)

    async def stream(self, message: bytes) -> tuple[ResponseHead, AsyncIterator[bytes]]:
        """Sends a request whose response never ends; the iterator yields the body in the pieces that came."""
        head = await self._send(message)
        self.reusable = False
        return head, self._parts(head)

    async def _send(self, message: bytes) -> ResponseHead:
        if self._lost is not None or self._buffer:
            raise HttpError("the connection is closed")
        self.answered = False
        self._channel.send(message)
        for _ in range(INTERIM_LIMIT + 1):
            head = await self._head()
            if head.status >= 200:
                return head
            if head.status == SWITCHING_PROTOCOLS:
                raise HttpError("the server requests another protocol (an upgrade)")
        raise HttpError("the server does not come to an answer")

    async def _head(self) -> ResponseHead:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise HttpError("the answer's headers do not end")
            await self._more()
        head = parse_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        return head

    async def _parts(self, head: ResponseHead) -> AsyncIterator[bytes]:
        """The body as it comes; what comes after it stays in the buffer."""
        chunked = Chunked() if head.chunked else None
        left = head.length
        while left != 0 and not (chunked and chunked.done):
            if not self._buffer:
                if self._ended and chunked is None and left is None:
                    return
                await self._more()
                continue
            data = bytes(self._buffer[:left])
            del self._buffer[:left]
            self._channel.resume()
            if chunked is None:
                left = None if left is None else left - len(data)
            else:
                data = chunked.feed(data)
                self._buffer += chunked.beyond
            yield data

    async def _more(self) -> None:
        """Waits until more bytes have come, or raises when none can come."""
        if self._lost is not None:
            raise HttpError(f"the connection broke: {self._lost}") from self._lost
        self._channel.resume()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.reusable = False
            raise
        finally:
            self._waiter = None
