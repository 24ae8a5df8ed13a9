"""Requests, responses and rejections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

Headers = tuple[tuple[str, str], ...]


class Request(NamedTuple):
    method: str  # HEAD is passed as GET
    query: dict[str, str]
    body: bytes = b""
    headers: Mapping[str, str] = {}  # lower-case names


class Page(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Headers = ()


class Stream(NamedTuple):
    """A response without a defined end: `follow` writes until it returns, or until the client disconnects."""

    content_type: str
    follow: Callable[[asyncio.StreamWriter], Awaitable[None]]
    headers: Headers = ()


Answer = Page | Stream


def text(status: HTTPStatus, message: str, headers: Headers = ()) -> Page:
    return Page(status, TEXT, f"{message}\n".encode(), headers)


def encoded(answer: Answer, *, head_only: bool, close: bool) -> bytes:
    """The response as it is sent; of a stream its head, since the stream ends with the connection."""
    if isinstance(answer, Stream):
        return _head(HTTPStatus.OK, answer.content_type, (("Cache-Control", "no-store"), *answer.headers), close=True)
    length = ("Content-Length", str(len(answer.body)))
    head = _head(answer.status, answer.content_type, (length, *answer.headers), close=close)
    return head if head_only else head + answer.body


def _head(status: HTTPStatus, content_type: str, headers: Headers, *, close: bool) -> bytes:
    fixed: Headers = (("Content-Type", content_type), ("X-Content-Type-Options", "nosniff"))
    if close:
        fixed += (("Connection", "close"),)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in (*fixed, *headers))]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
