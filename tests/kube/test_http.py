"""HTTP as it comes over the wire: in whatever pieces, whole or broken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.kube.chunked import Chunked, HttpError
from carico.kube.http import Connection, Response, parse_head
from carico.kube.socket import connect


def in_chunks(body: bytes, sizes: list[int]) -> bytes:
    out, at = b"", 0
    for size in sizes:
        part = body[at : at + size]
        at += size
        if part:
            out += f"{len(part):x}\r\n".encode() + part + b"\r\n"
    if body[at:]:
        out += f"{len(body[at:]):X};ext=1\r\n".encode() + body[at:] + b"\r\n"
    return out + b"0\r\n\r\n"


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), max_size=12), st.lists(st.integers(1, 40), max_size=60))
def test_chunks_come_together_however_they_are_cut(body: bytes, sizes: list[int], cuts: list[int]) -> None:
    wire, decoder, got = in_chunks(body, sizes), Chunked(), b""
    for cut in cuts:
        got += decoder.feed(wire[:cut])
        wire = wire[cut:]
    got += decoder.feed(wire)
    assert (got, decoder.done) == (body, True)


@pytest.mark.parametrize("line", [b"xyz\r\n", b"-5\r\n", b"\r\n", b"1" * 2000])
def test_a_chunk_without_a_size_is_an_error(line: bytes) -> None:
    with pytest.raises(HttpError):
        Chunked().feed(line)


@given(st.binary(max_size=200))
def test_any_bytes_as_chunks_end_in_a_body_or_an_error(data: bytes) -> None:
    with contextlib.suppress(HttpError):
        assert isinstance(Chunked().feed(data), bytes)


@pytest.mark.parametrize("head", [b"", b"SSH-2.0-x", b"HTTP/1.1", b"HTTP/1.1 abc OK", b"HTTP/2 200"])
def test_what_is_not_http_is_an_error(head: bytes) -> None:
    with pytest.raises(HttpError, match="does not start like HTTP"):
        parse_head(head)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def against(handler: Handler, use: Callable[[Connection], Awaitable[Response]]) -> Response:
    """`use` a connection to a server that does as `handler` says."""

    async def scenario() -> Response:
        async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(closing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connection = Connection(await connect("127.0.0.1", port, None, None))
        try:
            async with asyncio.timeout(20):
                return await use(connection)
        finally:
            connection.close()
            server.close()
            await server.wait_closed()

    return asyncio.run(scenario())


def answering(*parts: bytes) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)

    return handler


async def get(connection: Connection) -> Response:
    return await connection.request(b"GET / HTTP/1.1\r\n\r\n")


def test_a_body_with_a_length() -> None:
    response = against(answering(b"HTTP/1.1 200 OK\r\nContent-", b"Length: 5\r\n\r\nhe", b"llo"), get)
    assert (response.status, response.body) == (200, b"hello")


def test_a_body_in_chunks() -> None:
    parts = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel", b"\r\n2\r\nlo\r\n0\r\n\r\n")
    assert against(answering(*parts), get).body == b"hello"


def test_no_body_at_all() -> None:
    assert against(answering(b"HTTP/1.1 204 No Content\r\n\r\n"), get).body == b""


def test_a_connection_that_ends_too_early_is_an_error() -> None:
    for start in (b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf"):
        with pytest.raises(HttpError):
            against(answering(start), get)


def test_an_unread_stream_stops_the_sender() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        block = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        for _ in range(1000):  # 64 MB
            writer.write(block)
            await writer.drain()
            sent += 1

    async def dawdle(connection: Connection) -> Response:
        _, parts = await connection.stream(b"GET / HTTP/1.1\r\n\r\n")
        await anext(parts)
        await asyncio.sleep(0.5)
        return Response(200, {}, str(sent).encode())

    assert int(against(flood, dawdle).body) < 500
