"""One HTTP/1.1 connection to the API server, written for many small requests and a few endless answers.

A general client costs two to four times the processor time per binding; what a scheduler needs of HTTP is small: one
request at a time per connection, an answer with a length or in chunks. `Connection.request` waits for a whole answer,
`Connection.stream` hands out the body as it comes and stops reading from the socket while nobody takes it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import NamedTuple

from carico.kube.chunked import Chunked, HttpError
from carico.kube.socket import Channel

STREAM_BUFFER = 4 << 20  # bytes of an unread stream after which the socket is left alone
HEAD_LIMIT = 64 << 10  # bytes of status line and headers


class Response(NamedTuple):
    status: int
    headers: dict[bytes, bytes]  # lower-case names
    body: bytes


class Head(NamedTuple):
    status: int
    headers: dict[bytes, bytes]

    @property
    def length(self) -> int | None:
        """Bytes of the body; None when it comes in chunks or until the connection ends."""
        if self.status in (204, 304):
            return 0
        text = self.headers.get(b"content-length")
        return int(text) if text is not None else None


def parse_head(block: bytes) -> Head:
    """
    >>> parse_head(b"HTTP/1.1 201 Created\\r\\nContent-Length: 12")
    Head(status=201, headers={b'content-length': b'12'})
    """
    lines = block.split(b"\r\n")
    words = lines[0].split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise HttpError(f"the answer does not start like HTTP: {lines[0][:80]!r}")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    return Head(int(words[1]), headers)


class Connection:
    """A socket with at most one request under way."""

    def __init__(self, sock: socket.socket) -> None:
        self._buffer = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._lost: Exception | None = None
        self.reusable = True  # False once the server said that it will close, or an answer was left half read
        self.answered = False  # a byte of the answer to the request under way has come
        self._channel = Channel(sock, self._received, self._broke)

    def _received(self, data: bytes) -> None:
        if not data:
            self._broke(HttpError("the API server closed the connection"))
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
        return self._lost is None and self.reusable

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
        """Sends a whole request and reads the whole answer."""
        head = await self._send(message)
        if (length := head.length) is not None:
            while len(self._buffer) < length:
                await self._more()
            body = bytes(self._buffer[:length])
            del self._buffer[:length]
        else:
            body = b"".join([part async for part in self._parts(head)])
        if head.headers.get(b"connection") == b"close":
            self.reusable = False
        return Response(head.status, head.headers, body)

    async def stream(self, message: bytes) -> tuple[Head, AsyncIterator[bytes]]:
        """Sends a request whose answer never ends; the iterator gives the body in the pieces that came."""
        head = await self._send(message)
        self.reusable = False
        return head, self._parts(head)

    async def _send(self, message: bytes) -> Head:
        if self._lost is not None:
            raise HttpError("the connection is closed")
        self.answered = False
        self._channel.send(message)
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise HttpError("the answer's headers do not end")
            await self._more()
        head = parse_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        return head

    async def _parts(self, head: Head) -> AsyncIterator[bytes]:
        chunked = Chunked() if head.headers.get(b"transfer-encoding") == b"chunked" else None
        left = head.length
        while chunked is None or not chunked.done:
            if self._buffer:
                data = bytes(self._buffer)
                self._buffer.clear()
                self._channel.resume()
                yield chunked.feed(data) if chunked else data
                left = None if left is None else left - len(data)
            elif left == 0 or (self._lost is not None and chunked is None and left is None):
                return
            else:
                await self._more()

    async def _more(self) -> None:
        """Waits until more bytes are there, or raises when none can come."""
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
