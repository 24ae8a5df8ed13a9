"""A TCP socket on the event loop, with or without TLS, for many connections that are mostly idle.

asyncio's own TLS keeps 256 KiB per connection and copies every byte through four layers; a scheduler has hundreds of
connections with a few hundred bytes on each. Here the TLS socket itself is non-blocking: one call sends, one receives.
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
RECEIPT_WITHIN = 25  # s in which the peer must acknowledge what was sent
SHORTEST_SHARE = 2.0  # s of the timeout that each address gets at least, as in Go's dialler
PIECE = 64 << 10  # bytes requested at once
SMALL = 1 << 10  # bytes below which a piece was certainly the last one
IN_A_ROW = 32  # pieces that are read before other connections get their turn
WAIT = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


async def connect(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    name: str | None,
    session: ssl.SSLSession | None = None,
    patience: float = 10.0,
) -> socket.socket:
    """A connected non-blocking socket; with TLS the handshake is done and the certificate verified.

    With the session of an earlier connection neither side verifies a certificate again. Each address of the host gets
    a share of `patience` seconds, so that one that does not respond leaves time for the others.
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
                return await _connect(socket.socket(family, kind, protocol), address, tls, name, session)
        except TimeoutError:
            why = TimeoutError(f"{address[0]} did not answer within {share:.1f} s")
        except OSError as error:
            why = error
    raise why


async def _addresses(host: str, port: int) -> list[Any]:
    try:  # an IP address needs no lookup, so no thread has to wait for one
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _connect(
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
    """A peer that lost its power sends no FIN: only keepalive probes and missing acknowledgements show it.

    Where a system lacks one of the options, its default (longer) timeouts apply.
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
    """`send` sends; `on_data` receives bytes, b"" when the peer has closed; `on_lost` is called when it broke."""

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
        """For a later connection to resume; available after the first bytes have come."""
        return self._sock.session if isinstance(self._sock, ssl.SSLSocket) else None

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._sock.context if isinstance(self._sock, ssl.SSLSocket) else None

    def send(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        rest = self._try_send(data)
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

    def _try_send(self, data: bytes) -> bytes:
        """Returns what could not be sent yet."""
        try:
            sent = self._sock.send(data)
        except WAIT:
            return data
        except OSError as error:
            self._broke(error)
            return b""
        return b"" if sent == len(data) else data[sent:]

    def _writable(self) -> None:
        self._unsent = self._try_send(self._unsent)
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
            # Another read for nothing costs a call; data that comes later makes the socket readable again.
            if not self._reading or len(data) < SMALL:
                return

    def _broke(self, error: OSError) -> None:
        self.close()
        self._on_lost(error)
