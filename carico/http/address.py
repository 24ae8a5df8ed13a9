"""Addresses of the form host:port."""

from __future__ import annotations

import ipaddress

from carico.errors import UsageError


def split_address(address: str) -> tuple[str, int]:
    """
    >>> split_address("127.0.0.1:80"), split_address("[::1]:80"), split_address(":80")
    (('127.0.0.1', 80), ('::1', 80), ('', 80))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{address!r} is not of the form host:port, e.g. 127.0.0.1:9464")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether this host name or address can only mean this machine.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", "evil.example")]
    [True, True, True, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        name = host.lower().removesuffix(".")
        return name == "localhost" or name.endswith(".localhost")
