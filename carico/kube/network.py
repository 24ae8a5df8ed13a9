"""How the client gets a connection to the API server: over sockets, or what a test passes in their place.

Client(credentials)                          the API server that the credentials name
Client(credentials, connect=played.connect)  no network: `played` answers
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from carico.kube.http import HttpConnection, Response, ResponseHead
from carico.kube.identity import Credentials
from carico.kube.tunnel import open_through


class NetworkConnection(Protocol):
    """What the client needs of a connection; http.py has the real one."""

    answered: bool  # a byte of the response to the request in flight has come

    @property
    def open(self) -> bool: ...

    @property
    def closed(self) -> bool: ...

    @property
    def timed_out(self) -> bool: ...

    @property
    def session(self) -> ssl.SSLSession | None: ...

    @property
    def tls(self) -> ssl.SSLContext | None: ...

    def close(self) -> None: ...

    async def request(self, message: bytes) -> Response: ...

    async def stream(self, message: bytes) -> tuple[ResponseHead, AsyncIterator[bytes]]: ...


# To the server of the credentials, with a TLS context and session if it uses TLS, within this time in s.
Connect = Callable[[Credentials, ssl.SSLContext | None, ssl.SSLSession | None, float], Awaitable[NetworkConnection]]


async def over_sockets(
    where: Credentials, tls: ssl.SSLContext | None, session: ssl.SSLSession | None, patience: float
) -> HttpConnection:
    name = where.server_name if tls is not None else None
    return HttpConnection(await open_through(where.proxy, where.host, where.port, tls, name, session, patience))
