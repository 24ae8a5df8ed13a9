"""An address that is listened on: from the socket to the end of TLS' handshake, and until it is closed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from carico.errors import CaricoError
from carico.http.address import is_loopback, split_address

HANDSHAKE_PATIENCE = 10.0  # s, for TLS' beginning and for its end; a scheduler opens 500 connections at once


class Listener:
    """Listens at `address` (host:port; port 0 takes a free one) once it is started; `name` is that of its setting."""

    def __init__(self, address: str, tls: ssl.SSLContext | None, name: str = "listen") -> None:
        self.host, self.port = split_address(address)
        self.name, self.tls = name, tls
        self.loopback = False
        self._server: asyncio.Server | None = None

    async def start(self, protocol: Callable[[], asyncio.BaseProtocol]) -> int:
        """Makes a `protocol` for each client; returns the port."""
        patience = HANDSHAKE_PATIENCE if self.tls is not None else None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                protocol, self.host, self.port,
                ssl=self.tls, ssl_handshake_timeout=patience, ssl_shutdown_timeout=patience,
            )  # fmt: skip
        except OSError as error:
            option = f"--{self.name.replace('_', '-')}"
            raise CaricoError(
                f"cannot listen on {self.authority}: {error.strerror}; choose another {option}"
            ) from error
        names = [socket.getsockname() for socket in self._server.sockets]
        self.loopback = all(is_loopback(name[0]) for name in names)
        self.port = int(names[0][1])
        return self.port

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def stop(self) -> bool:
        """Takes no further clients; whether it had been started.

        Those that are there have to be ended by whoever knows them. asyncio's wait_closed() does not serve: since
        Python 3.12 it waits for clients that have only just been accepted, too.
        """
        server, self._server = self._server, None
        if server is not None:
            server.close()
        return server is not None
