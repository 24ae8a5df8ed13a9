"""A listening address: the socket, TLS handshakes, and closing it.

A client that has connected and does not continue the handshake is dropped after a timeout, or as soon as there are too
many such clients, the oldest first. asyncio's own server with TLS would keep any number of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import cast

from carico.errors import CaricoError
from carico.http.address import is_loopback, split_address

HANDSHAKE_PATIENCE = 10.0  # s, for TLS' start and for its shutdown; a scheduler opens 500 connections at once
HANDSHAKES = 64  # at once

Make = Callable[[], asyncio.Protocol]


class Listener:
    """Listens at `address` (host:port; port 0 takes a free one) once it is started; `name` is that of its setting."""

    def __init__(
        self, address: str, tls: ssl.SSLContext | None, name: str = "listen", handshakes: int = HANDSHAKES
    ) -> None:
        self.host, self.port = split_address(address)
        self.name, self.tls = name, tls
        self.loopback = False
        self._server: asyncio.Server | None = None
        self._limit = handshakes
        self._handshakes: dict[socket.socket, asyncio.Task[None]] = {}  # the oldest first

    async def start(self, make: Make) -> int:
        """Makes a protocol for each client; returns the port."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                make if self.tls is None else lambda: _Accepted(self, make), self.host, self.port
            )
        except OSError as error:
            option = f"--{self.name.replace('_', '-')}"
            raise CaricoError(
                f"cannot listen on {self.authority}: {error.strerror}; choose another {option}"
            ) from error
        names = [each.getsockname() for each in self._server.sockets]
        self.loopback = all(is_loopback(name[0]) for name in names)
        self.port = int(names[0][1])
        return self.port

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def stop(self) -> bool:
        """Accepts no further clients; returns whether it had been started.

        Clients past the handshake are ended by the server that holds them. asyncio's wait_closed() is unsuitable: since
        Python 3.12 it also waits for clients that have only just been accepted.
        """
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for client in self._handshakes:
                _end(client)
        return server is not None

    def secure(self, client: socket.socket, make: Make) -> None:
        """Starts the handshake with a client that was just accepted."""
        if len(self._handshakes) >= self._limit:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            _end(oldest)
        self._handshakes[client] = asyncio.get_running_loop().create_task(self._secure(client, make))

    async def _secure(self, client: socket.socket, make: Make) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                make, client, ssl=self.tls,
                ssl_handshake_timeout=HANDSHAKE_PATIENCE, ssl_shutdown_timeout=HANDSHAKE_PATIENCE,
            )  # fmt: skip
        except OSError:
            pass  # of TLS too: an error of the client, or it took too long
        finally:
            self._handshakes.pop(client, None)


def _end(client: socket.socket) -> None:
    """The event loop, which owns the socket, reads the end of the connection and closes it."""
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


class _Accepted(asyncio.Protocol):
    """A client with which nothing was exchanged yet: its connection continues in another transport."""

    def __init__(self, listener: Listener, make: Make) -> None:
        self._listener, self._make = listener, make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted = cast(asyncio.Transport, transport)
        with contextlib.suppress(OSError):  # no further file descriptor can be opened: the client is dropped
            client = socket.socket(fileno=os.dup(accepted.get_extra_info("socket").fileno()))
            self._listener.secure(client, self._make)
        accepted.abort()
