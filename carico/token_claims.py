"""What a ServiceAccount token claims about itself, and the file that it is in.

The claims are not verified here: only the API server does that. They serve to refuse without a review what no review
would accept, and they contain the end of a token, which no review does.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from carico.errors import TokenRefused, UsageError

TOKEN_LIMIT = 8192  # characters; a ServiceAccount's token has about a thousand
_JWT = re.compile(r"[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")
_LATEST = 2.0**40  # s, Unix time; a forged number must not overflow


class Claims(NamedTuple):
    subject: str  # system:serviceaccount:NAMESPACE:NAME
    audiences: tuple[str, ...]
    ends_at: float  # s, Unix time
    node: str  # empty where the cluster does not put it into tokens (before 1.30, roughly)


def read(token: str) -> Claims:
    """Raises TokenRefused for what is no ServiceAccount token with an end."""
    found = _JWT.fullmatch(token) if len(token) <= TOKEN_LIMIT else None
    try:
        claims = json.loads(_decoded(found[1])) if found else None
    except (ValueError, binascii.Error, RecursionError):
        claims = None
    if not isinstance(claims, dict) or not isinstance(claims.get("sub"), str):
        raise TokenRefused("malformed", "this is no ServiceAccount token")
    ends_at = claims.get("exp")
    if isinstance(ends_at, bool) or not isinstance(ends_at, (int, float)) or not 0 < ends_at < _LATEST:
        raise TokenRefused("malformed", "this token has no end; use one of a projected volume")
    return Claims(claims["sub"], _audiences(claims.get("aud")), float(ends_at), _node(claims))


def username(account: str, namespace: str) -> str:
    """The user name of a ServiceAccount that is given as NAMESPACE/NAME, or as NAME in `namespace`.

    >>> username("carico-agent", "carico-system"), username("a/b", "carico-system")
    ('system:serviceaccount:carico-system:carico-agent', 'system:serviceaccount:a:b')
    """
    where, slash, name = account.rpartition("/")
    if not name or (slash and not where) or "/" in where or ":" in account:
        raise UsageError(f"{account!r} is no ServiceAccount; write NAMESPACE/NAME, or NAME")
    return f"system:serviceaccount:{where or namespace}:{name}"


def from_file(path: Path) -> str:
    """The token in a file; UsageError if there is none. No message shows what the file holds."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UsageError(f"token_file: cannot read {path} ({error.strerror})") from error
    except UnicodeDecodeError:
        token = ""
    if _JWT.fullmatch(token) is None:
        raise UsageError(f"token_file: {path} holds no ServiceAccount token")
    return token


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _audiences(found: object) -> tuple[str, ...]:
    several = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return tuple(one for one in several if isinstance(one, str))


def _node(claims: dict[str, Any]) -> str:
    private = claims.get("kubernetes.io")
    node = private.get("node") if isinstance(private, dict) else None
    name = node.get("name") if isinstance(node, dict) else None
    return name if isinstance(name, str) else ""
