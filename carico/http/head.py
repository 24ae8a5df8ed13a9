"""The parser of a request's head. It rejects what is not plain HTTP/1.1: an ambiguous request may be an attack."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl

from carico.errors import RejectedRequest

HEAD_LIMIT = 8 << 10  # bytes of request line and headers
LENGTH_DIGITS = 12
_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_ONCE = {"host", "origin", "content-length", "content-type", "transfer-encoding", "authorization", "expect"}


class RequestHead(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # lower-case names
    keep: bool  # the client may send another request on this connection


def parse(block: bytes) -> RequestHead:
    """
    >>> parse(b"GET /a?b=c HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")[:3]
    ('GET', '/a', {'b': 'c'})
    """
    first, *lines = block.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise _bad("this is no request of HTTP/1.1")
    headers = _headers(lines)
    modern = line[3] == "1"
    if modern and "host" not in headers:
        raise _bad("the header Host is missing")
    path, _, query = line[2].partition("?")
    return RequestHead(line[1], path, _query(query), headers, modern and not _closes(headers.get("connection")))


def body_length(headers: dict[str, str], *, needed: bool) -> int:
    """Bytes that follow; a chunked body is rejected, since no client of this server needs one."""
    if "transfer-encoding" in headers:
        raise RejectedRequest(HTTPStatus.LENGTH_REQUIRED, "send the body with a Content-Length")
    length = headers.get("content-length")
    if length is None:
        if needed:
            raise RejectedRequest(HTTPStatus.LENGTH_REQUIRED, "send the body with a Content-Length")
        return 0
    if not (length.isascii() and length.isdigit() and len(length) <= LENGTH_DIGITS):
        raise _bad("the header Content-Length is not a number of bytes")
    return int(length)


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise _bad("a header is malformed")
        name, value = field[1].lower(), field[2].strip()
        if name in headers:
            if name in _ONCE:
                raise _bad(f"the header {name.title()} comes twice")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def _query(query: str) -> dict[str, str]:
    return dict(parse_qsl(query, keep_blank_values=True)) if query else {}


def _closes(connection: str | None) -> bool:
    return connection is not None and "close" in [word.strip() for word in connection.lower().split(",")]


def _bad(reason: str) -> RejectedRequest:
    return RejectedRequest(HTTPStatus.BAD_REQUEST, reason)
