"""A TCP socket on the event loop, with or without TLS, for many connections that mostly wait.

asyncio's own TLS keeps 256 KiB per connection and copies every byte through four layers; a scheduler has hundreds of
connections with some hundred bytes on each. Here the TLS socket itself is not blocking: one call sends, one receives.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

# An idle watch whose API server has vanished breaks after 25 s: two probes are lost by then. client-go takes 45 s.
KEEPALIVE_AFTER, KEEPALIVE_EVERY, KEEPALIVE_PROBES = 15, 5, 2  # s without a byte, s between probes, probes
RECEIPT_WITHIN = 25  # s in which the other side must confirm what was sent
SHORTEST_SHARE = 2.0  # s of patience that an address gets at least, as in Go's dialler
PIECE = 64 << 10  # bytes asked for at once
SMALL = 1 << 10  # bytes below which a piece was surely the last one
IN_A_ROW = 32  # pieces that are taken before other connections get their turn
WAIT = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


async def connect(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    name: str | None,
    session: ssl.SSLSession | None = None,
    patience: float = 10.0,
) -> socket.socket:
    """A connected socket that does not block; with TLS the handshake is done and the certificate checked.

    With the session of an earlier connection no certificate has to be checked again, by neither side. Of `patience`
    seconds each address of the host gets its share, so that one that does not answer leaves time for the others.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    why: OSError = OSError(f"{host} has no address")
    async with asyncio.timeout_at(end):
        found = await _addresses(host, port)
    for i, (family, kind, protocol, _, address) in enumerate(found):
        left = end - loop.time()
        share = max(left / (len(found) - i), min(left, SHORTEST_SHARE))
        try:
            async with asyncio.timeout(share):
                return await _connected(socket.socket(family, kind, protocol), address, tls, name, session)
        except TimeoutError:
            why = TimeoutError(f"{address[0]} did not answer within {share:.1f} s")
        except OSError as error:
            why = error
    raise why


async def _addresses(host: str, port: int) -> list[Any]:
    try:  # a number is looked up by nobody, so no thread has to wait for it
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _connected(
    raw: socket.socket, address: Any, tls: ssl.SSLContext | None, name: str | None, session: ssl.SSLSession | None
) -> socket.socket:
    try:
        raw.setblocking(False)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_dead_peers(raw)
        await asyncio.get_running_loop().sock_connect(raw, address)
        return raw if tls is None else await secure(raw, tls, name, session)
    except BaseException:
        raw.close()
        raise


def notice_dead_peers(raw: socket.socket) -> None:
    """A machine that lost its power says no goodbye: only the kernel's probes and missing receipts tell.

    Where a system lacks one of the options, its own (longer) time-outs hold.
    """
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": KEEPALIVE_AFTER,
        "TCP_KEEPINTVL": KEEPALIVE_EVERY,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": RECEIPT_WITHIN * 1000,
    }
    for option, value in options.items():
        if hasattr(socket, option):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


async def secure(
    raw: socket.socket, tls: ssl.SSLContext, name: str | None, session: ssl.SSLSession | None
) -> ssl.SSLSocket:
    secured = tls.wrap_socket(raw, server_hostname=name, do_handshake_on_connect=False, session=session)
    try:
        while True:
            try:
                secured.do_handshake()
                return secured
            except ssl.SSLWantReadError:
                await _ready(secured, to_write=False)
            except ssl.SSLWantWriteError:
                await _ready(secured, to_write=True)
    except BaseException:
        secured.close()
        raise


async def _ready(sock: socket.socket, *, to_write: bool) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)

    def ready() -> None:
        if not future.done():
            future.set_result(None)

    add(sock, ready)
    try:
        await future
    finally:
        remove(sock)


class Channel:
    """Bytes out by `send`; bytes in to `on_data`, b"" when the other side has ended; `on_lost` when it broke."""

    def __init__(
        self, sock: socket.socket, on_data: Callable[[bytes], None], on_lost: Callable[[OSError], None]
    ) -> None:
        self._sock, self._on_data, self._on_lost = sock, on_data, on_lost
        self._loop = asyncio.get_running_loop()
        self._number = sock.fileno()
        self._unsent = b""
        self._reading = self.closed = False
        self.resume()

    @property
    def session(self) -> ssl.SSLSession | None:
        """What a later connection can go on with; there after the first bytes have come."""
        return self._sock.session if isinstance(self._sock, ssl.SSLSocket) else None

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._sock.context if isinstance(self._sock, ssl.SSLSocket) else None

    def send(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        rest = self._tried(data)
        if rest and not self.closed:
            self._unsent = rest
            self._loop.add_writer(self._number, self._writable)

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._number)

    def resume(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._number, self._readable)

    def close(self) -> None:
        if self.closed:
            return
        self.pause()
        self.closed = True
        if self._unsent:
            self._loop.remove_writer(self._number)
        with contextlib.suppress(OSError):
            self._sock.close()

    def _tried(self, data: bytes) -> bytes:
        """What could not be sent yet."""
        try:
            sent = self._sock.send(data)
        except WAIT:
            return data
        except OSError as error:
            self._broke(error)
            return b""
        return b"" if sent == len(data) else data[sent:]

    def _writable(self) -> None:
        self._unsent = self._tried(self._unsent)
        if not self._unsent and not self.closed:
            self._loop.remove_writer(self._number)

    def _readable(self) -> None:
        for _ in range(IN_A_ROW):
            try:
                data = self._sock.recv(PIECE)
            except WAIT:
                return
            except OSError as error:
                self._broke(error)
                return
            if not data:
                self.close()
            self._on_data(data)
            # Asking once more for nothing costs a call; whatever comes later makes the socket readable again.
            if not self._reading or len(data) < SMALL:
                return

    def _broke(self, error: OSError) -> None:
        self.close()
        self._on_lost(error)
