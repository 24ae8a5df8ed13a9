"""The addresses behind a name, and how a channel to one of them is opened."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from grpc import aio

from carico.http.address import split_address
from carico.settings import TlsFiles
from carico.wire import tls
from carico.wire.server import MESSAGE_LIMIT

OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.http2.bdp_probe", 0),
    # gRPC's own back-off between attempts grows to two minutes; that of client.py applies instead.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A machine that vanished closes no connection.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Every address is its own replica: no connection may be shared by two of them.
    ("grpc.use_local_subchannel_pool", 1),
]


class Dialer:
    """Opens connections to the addresses behind `target` (host:port)."""

    def __init__(self, target: str, files: TlsFiles, what: str) -> None:
        self.target = target
        self._host, self._port = split_address(target)
        self._tls = tls.ClientTls(files, f"the connection to {what} at {target}")

    async def addresses(self) -> list[str]:
        """Every address behind the name, now; empty when it does not resolve."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError:
            return []
        return sorted({_shown(str(where[0]), self._port) for *_, where in found})

    def open(self, address: str) -> aio.Channel:
        credentials = self._tls.credentials()
        if credentials is None:
            return aio.insecure_channel(address, options=OPTIONS)
        return aio.secure_channel(address, credentials, options=[*OPTIONS, *self._expected_name()])

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The headers of a call: the token of this process, read now. UsageError if it cannot be read."""
        return self._tls.metadata()

    def _expected_name(self) -> list[tuple[str, str | int]]:
        """The certificate is verified against the name that was dialled, not against the address behind it."""
        try:
            ipaddress.ip_address(self._host)
        except ValueError:
            return [("grpc.ssl_target_name_override", self._host), ("grpc.default_authority", self._host)]
        return []


def _shown(host: str, port: int) -> str:
    """
    >>> _shown("::1", 80), _shown("10.0.0.1", 80)
    ('[::1]:80', '10.0.0.1:80')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
