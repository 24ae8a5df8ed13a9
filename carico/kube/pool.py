"""Idle connections to the API server for reuse, most recently used first."""

from __future__ import annotations

import os
import ssl

from carico.clock import Clock
from carico.errors import HttpError
from carico.kube.identity import Credentials
from carico.kube.network import Connect, NetworkConnection


def reason(error: OSError) -> str:
    """Why there is no connection, without Python's names and numbers.

    >>> reason(ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 6443)"))
    'connection refused'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if error.errno is not None and error.errno > 0:  # that of a name that cannot be resolved is negative
        return os.strerror(error.errno).lower()
    return error.strerror or str(error) or "no answer"


SESSION_AGE = 60.0  # s after which a TLS session is replaced; servers accept one for hours


class ConnectionPool:
    """At most `size` idle connections, all of the current TLS context; connections in use are not limited."""

    def __init__(
        self, credentials: Credentials, size: int, connect_patience: float, clock: Clock, connect: Connect
    ) -> None:
        self._credentials, self._size, self._patience, self._clock = credentials, size, connect_patience, clock
        self._connect = connect
        self._tls: ssl.SSLContext | None = None
        # Of a recent connection: a burst opens hundreds, and a full handshake costs both sides a millisecond. Copying a
        # session out of a connection takes longer than resuming one, so it is done once a minute.
        self._session: ssl.SSLSession | None = None
        self._session_at = 0.0  # s, monotonic
        self.idle: list[tuple[NetworkConnection, float]] = []  # with the time of its last response, s, monotonic

    def use(self, tls: ssl.SSLContext | None) -> None:
        """Sets the TLS context of new connections; a new context drops idle connections and the TLS session."""
        if tls is not self._tls:
            self._tls, self._session = tls, None
            self.close()

    async def take(self) -> tuple[NetworkConnection, bool]:
        """A connection, and whether it is a new one."""
        while self.idle:
            connection, _ = self.idle.pop()
            if connection.open:
                return connection, False
            connection.close()
        return await self.connect(), True

    def put(self, connection: NetworkConnection, *, fresh: bool = False) -> None:
        """Returns a connection after a whole response, or if nothing was sent; `fresh`: after its first response."""
        if connection.tls is not self._tls:
            connection.close()
            return
        if fresh and (self._session is None or self._clock.monotonic() - self._session_at >= SESSION_AGE):
            self._session, self._session_at = connection.session, self._clock.monotonic()
        if len(self.idle) >= self._size:
            self._drop([entry for entry in self.idle if not entry[0].open])
        if connection.open and len(self.idle) < self._size:
            self.idle.append((connection, self._clock.monotonic()))
        else:
            connection.close()

    def drop_older(self, than: float) -> None:
        """Closes idle connections whose last response came before `than`: their peer may have vanished."""
        self._drop([entry for entry in self.idle if entry[1] <= than])

    def close(self) -> None:
        self._drop(list(self.idle))

    async def connect(self) -> NetworkConnection:
        where = self._credentials
        try:
            return await self._connect(where, self._tls, self._session, self._patience)
        except OSError as error:
            raise HttpError(f"the API server at {where.authority} cannot be reached: {reason(error)}") from error

    def _drop(self, entries: list[tuple[NetworkConnection, float]]) -> None:
        for connection, _ in entries:
            connection.close()
        self.idle = [entry for entry in self.idle if not entry[0].closed]
