"""Names as parts of a path. Every name in a path goes through `segment`, whatever its origin."""

from __future__ import annotations

from urllib.parse import quote

from carico.errors import CaricoError


def segment(name: str) -> str:
    """One segment of a path, with everything encoded that could end it or the request line.

    >>> segment("web-1"), segment("a/b?c d\\r\\n")
    ('web-1', 'a%2Fb%3Fc%20d%0D%0A')
    """
    if name in (".", ".."):  # servers and proxies resolve these, encoded or not
        raise CaricoError(f"{name!r} is not a valid name of an object")
    return quote(name, safe="")
