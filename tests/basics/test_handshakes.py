"""Clients of an HTTP server with TLS until the end of the handshake, on both event loops that Carico runs on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

import pytest
import uvloop

from carico.http import listener
from carico.http.message import text
from carico.http.routes import Route
from carico.http.server import HttpServer
from carico.http.tls import server_context
from carico.wire.certificates import Authority

PATIENCE = 60.0  # s; a stall of the machine is no failure
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LIMIT = 8

Loop = Callable[[], asyncio.AbstractEventLoop]
loops = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def serving(authority: Authority, loop: Loop, scenario: Callable[[HttpServer, int], Awaitable[None]]) -> None:
    pair = authority.issue("localhost", "localhost", "127.0.0.1")
    tls = server_context({"tls_cert": pair.cert, "tls_key": pair.key}, "the test's server")
    routes = {"/healthz": Route(lambda _: text(HTTPStatus.OK, "ok"))}

    async def whole() -> None:
        server = HttpServer("127.0.0.1:0", routes, tls=tls, connections=LIMIT)
        port = await server.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await scenario(server, port)
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(whole())


async def probe(authority: Authority, port: int) -> bytes:
    context = ssl.create_default_context(cafile=str(authority.cert))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(GET)
    answer = await reader.read()
    writer.close()
    return answer


@loops
def test_clients_that_do_not_go_on_with_the_handshake_are_few_and_keep_no_probe_away(
    authority: Authority, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_PATIENCE", 10 * PATIENCE)  # it is their number that ends them

    async def scenario(server: HttpServer, port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(25 * LIMIT)]
        for _, writer in silent[::2]:
            writer.write(b"\x16\x03\x01")  # a handshake begins like this
        for reader, _ in silent[: -2 * LIMIT]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        for _ in range(5):
            assert (await probe(authority, port)).startswith(b"HTTP/1.1 200 ")
        assert len(server._listener._handshakes) <= LIMIT
        for _, writer in silent:
            writer.close()

    serving(authority, loop, scenario)


@loops
def test_a_handshake_that_takes_too_long_is_ended(
    authority: Authority, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_PATIENCE", 0.05)

    async def scenario(_: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    serving(authority, loop, scenario)


@loops
def test_who_is_in_the_handshake_does_not_keep_the_server(
    authority: Authority, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not server._listener._handshakes:  # noqa: ASYNC110 - the other end of a socket has no event
            await asyncio.sleep(0.01)
        await server.stop()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    serving(authority, loop, scenario)
    assert caplog.text == ""


@loops
def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(authority: Authority, loop: Loop) -> None:
    """In one packet, so that it is there before the server knows that it has a connection."""

    async def scenario(_: HttpServer, port: int) -> None:
        for _try in range(20):
            answer = await asyncio.to_thread(all_at_once, authority.cert, port)
            assert answer.startswith(b"HTTP/1.1 200 ")

    serving(authority, loop, scenario)


def all_at_once(authority: Path, port: int) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context(cafile=str(authority)).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:

        def complete(step: Callable[[], object]) -> object:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    client.sendall(outgoing.read())
                    incoming.write(client.recv(65536))

        complete(tls.do_handshake)
        tls.write(GET)
        client.sendall(outgoing.read())  # the last message of the handshake, and the request
        answer = complete(lambda: tls.read(65536))
        assert isinstance(answer, bytes)
        return answer
