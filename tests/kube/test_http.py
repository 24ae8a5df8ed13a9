"""HTTP as it comes over the wire: in whatever pieces, whole or broken."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.errors import HttpError
from carico.kube.chunked import Chunked
from carico.kube.http import HttpConnection, Response, parse_head
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
    return out + b"0\r\n"


TRAILERS = st.sampled_from([b"\r\n", b"Checksum: 5\r\n\r\n", b"A: 1\r\nB: 2\r\n\r\n"])


@given(
    st.binary(max_size=300),
    st.lists(st.integers(1, 50), max_size=12),
    st.lists(st.integers(1, 40), max_size=60),
    TRAILERS,
    st.binary(max_size=20),
)
def test_chunks_come_together_however_they_are_cut(
    body: bytes, sizes: list[int], cuts: list[int], trailers: bytes, beyond: bytes
) -> None:
    wire, decoder, got, rest = in_chunks(body, sizes) + trailers + beyond, Chunked(), b"", b""
    for cut in [*cuts, len(wire)]:
        if decoder.done:
            rest += wire[:cut]
        else:
            got += decoder.feed(wire[:cut])
        wire = wire[cut:]
    assert (got, decoder.done, decoder.beyond + rest) == (body, True, beyond)


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), max_size=12), TRAILERS)
def test_chunks_are_those_of_the_standard_library(body: bytes, sizes: list[int], trailers: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    theirs = http.client.HTTPResponse(Played(head + in_chunks(body, sizes) + trailers))  # type: ignore[arg-type]
    theirs.begin()
    ours = Chunked()
    assert ours.feed(in_chunks(body, sizes) + trailers) == theirs.read()
    assert ours.done


class Played:
    """A socket whose other side has already spoken."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


@pytest.mark.parametrize(
    "line", [b"xyz\r\n", b"-5\r\n", b"+5\r\n", b"0x5\r\n", b"1_0\r\n", b"\r\n", b"1" * 2000, b"2\r\nabc\r\n"]
)
def test_a_chunk_of_no_size_or_another_is_an_error(line: bytes) -> None:
    with pytest.raises(HttpError):
        Chunked().feed(line)


@given(st.binary(max_size=200))
def test_any_bytes_as_chunks_end_in_a_body_or_an_error(data: bytes) -> None:
    with contextlib.suppress(HttpError):
        assert isinstance(Chunked().feed(data), bytes)


@pytest.mark.parametrize("head", [b"", b"SSH-2.0-x", b"HTTP/1.1", b"HTTP/1.1 abc OK", b"HTTP/2 200", b"HTTP/1.1 20"])
def test_what_is_not_http_is_an_error(head: bytes) -> None:
    with pytest.raises(HttpError, match="does not start like HTTP"):
        parse_head(head)


@pytest.mark.parametrize(
    "line",
    [
        b"Content-Length: abc",
        b"Content-Length: -5",
        b"Content-Length: +5",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: " + b"9" * 40,
        b"Content-Length:",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: gzip, chunked",
        b"no header",
        b": empty",
        b"Content-Length : 5",
    ],
)
def test_a_head_that_leaves_open_where_the_body_ends_is_an_error(line: bytes) -> None:
    with pytest.raises(HttpError):
        parse_head(b"HTTP/1.1 200 OK\r\n" + line)


def test_chunks_win_over_a_length() -> None:
    head = parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: Chunked")
    assert (head.length, head.chunked) == (None, True)


@pytest.mark.parametrize(
    ("block", "last"),
    [
        (b"HTTP/1.1 200 OK", False),
        (b"HTTP/1.1 200 OK\r\nConnection: Close", True),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive, close", True),
        (b"HTTP/1.0 200 OK", True),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive", False),
    ],
)
def test_whether_the_server_will_close(block: bytes, last: bool) -> None:
    assert parse_head(block).last is last


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def against(handler: Handler, use: Callable[[HttpConnection], Awaitable[Response]]) -> Response:
    """`use` a connection to a server that runs `handler`."""

    async def scenario() -> Response:
        async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(closing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connection = HttpConnection(await connect("127.0.0.1", port, None, None))
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


async def get(connection: HttpConnection) -> Response:
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

    async def dawdle(connection: HttpConnection) -> Response:
        _, parts = await connection.stream(b"GET / HTTP/1.1\r\n\r\n")
        await anext(parts)
        await asyncio.sleep(0.5)
        return Response(200, {}, str(sent).encode())

    assert int(against(flood, dawdle).body) < 500


def test_a_connection_that_breaks_in_a_body_without_a_length_is_an_error() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes with a reset
        writer.transport.abort()

    with pytest.raises(HttpError):
        against(reset, get)
    assert against(answering(b"HTTP/1.1 200 OK\r\n\r\nwhole"), get).body == b"whole"


def test_interim_answers_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    response = against(answering(interim, b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"), get)
    assert (response.status, response.body) == (201, b"{}")


@pytest.mark.parametrize("parts", [[b"HTTP/1.1 100 Continue\r\n\r\n"] * 50, [b"HTTP/1.1 101 Switching\r\n\r\n"]])
def test_only_interim_answers_are_none(parts: list[bytes]) -> None:
    with pytest.raises(HttpError):
        against(answering(*parts), get)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


@pytest.mark.parametrize(
    "end", [(b"\r\n",), (b"\r", b"\n"), (b"Checksum: 1\r\n", b"\r\n"), (b"Checksum: 1\r\n\r", b"\n")]
)
def test_an_answer_in_chunks_ends_after_its_trailers(end: tuple[bytes, ...]) -> None:
    """They may come in a segment of their own; what is left of them would be taken for the next answer."""

    async def twice(connection: HttpConnection) -> Response:
        first = await get(connection)
        assert (first.body, connection.open) == (b"{}", True)
        return await get(connection)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await answering(CHUNKED, *end)(reader, writer)

    assert against(handler, twice).body == b"{}"


@pytest.mark.parametrize("surplus", [b"x", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_a_connection_with_unrequested_bytes_is_not_used_again(surplus: bytes) -> None:
    for whole in (CHUNKED + b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"):

        async def look(connection: HttpConnection) -> Response:
            response = await get(connection)
            while connection.open:  # noqa: ASYNC110 - the surplus may come in a segment of its own
                await asyncio.sleep(0.01)
            return response

        async def staying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answering(whole + surplus)(reader, writer)  # noqa: B023
            await reader.read()  # the connection stays open

        assert against(staying, look).body == b"{}"
