"""Detects requests that a browser sends for another site's page.

A page that is open in a browser on this machine can make it send requests to loopback. The page's host name may even be
resolved to 127.0.0.1 after it was loaded (DNS rebinding); then the browser lets it read the responses, but still sends
that name in `Host`. Requests from another origin carry `Origin` or `Sec-Fetch-Site`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from carico.http.address import is_loopback

SHOWN = 80  # characters of a client's input in messages


def foreign_host(headers: Mapping[str, str]) -> str | None:
    """Why `Host` is invalid for a server that listens on loopback only; None if it is valid.

    >>> [foreign_host({"host": host}) for host in ("localhost:9467", "127.0.0.1", "[::1]:9467")]
    [None, None, None]
    >>> foreign_host({"host": "evil.example:9467"})
    "the host 'evil.example:9467' is not this machine's loopback"
    """
    host_header = headers.get("host", "")
    try:
        host = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        host = ""
    return None if is_loopback(host) else f"the host {host_header[:SHOWN]!r} is not this machine's loopback"


def foreign_origin(method: str, headers: Mapping[str, str]) -> str | None:
    """Why a request's origin is rejected; None if it is allowed. Following a link is allowed."""
    origin = headers.get("origin")
    if origin is not None and _authority(origin) != headers.get("host", "").lower():
        return f"the request comes from {origin[:SHOWN]!r}"
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return None
    followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return None if followed and method in ("GET", "HEAD") else "the request comes from another site's page"


def _authority(origin: str) -> str | None:
    """
    >>> _authority("http://a:80"), _authority("null"), _authority("http://[")
    ('a:80', None, None)
    """
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
