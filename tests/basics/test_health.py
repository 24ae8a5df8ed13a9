"""The small HTTP server, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from http import HTTPStatus

import pytest

from carico import health
from carico.errors import CaricoError, UsageError
from carico.metrics import new_registry


def ask(request: bytes, pages: dict[str, Callable[[], health.Page]] | None = None) -> bytes:
    async def scenario() -> bytes:
        server = health.HealthServer("127.0.0.1:0", new_registry("test"), pages or {})
        port = await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await server.stop()
        return answer

    return asyncio.run(scenario())


def test_metrics_tell_the_build_and_the_process() -> None:
    page = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert page.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in page
    assert b'carico_build_info{component="test"' in page
    assert b"process_resident_memory_bytes" in page


def test_a_probe_says_what_is_wrong() -> None:
    pages = {"/readyz": health.probe(lambda: "no sample yet"), "/healthz": health.probe(lambda: None)}
    assert ask(b"GET /readyz HTTP/1.1\r\n\r\n", pages).startswith(b"HTTP/1.1 503 ")
    assert ask(b"GET /readyz HTTP/1.1\r\n\r\n", pages).endswith(b"no sample yet\n")
    assert ask(b"GET /healthz?verbose HTTP/1.1\r\n\r\n", pages).startswith(b"HTTP/1.1 200 ")


def ask_verbose(request: bytes, why_not: str | None) -> bytes:
    async def scenario() -> bytes:
        asked = {"/readyz": health.verbose_probe("readyz", lambda: why_not, lambda: ["[+]ping ok", "[-]x failed"])}
        server = health.HealthServer("127.0.0.1:0", new_registry("test"), {}, asked)
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await server.stop()
        return answer

    return asyncio.run(scenario())


def test_a_probe_that_can_say_more_says_it_when_asked() -> None:
    for query in (b"?verbose", b"?verbose=1", b"?verbose="):
        page = ask_verbose(b"GET /readyz" + query + b" HTTP/1.1\r\n\r\n", None)
        assert page.startswith(b"HTTP/1.1 200 ")
        assert page.endswith(b"\r\n\r\n[+]ping ok\n[-]x failed\nreadyz check passed\n")
    assert ask_verbose(b"GET /readyz HTTP/1.1\r\n\r\n", None).endswith(b"\r\n\r\nok\n")
    page = ask_verbose(b"GET /readyz?verbose HTTP/1.1\r\n\r\n", "not yet")
    assert page.startswith(b"HTTP/1.1 503 ")
    assert page.endswith(b"readyz check failed: not yet\n")
    assert ask_verbose(b"GET /readyz HTTP/1.1\r\n\r\n", "not yet").endswith(b"\r\n\r\nnot yet\n")
    assert ask_verbose(b"POST /readyz HTTP/1.1\r\n\r\n", None).startswith(b"HTTP/1.1 405 ")


def test_a_page_that_fails_does_not_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> health.Page:
        raise RuntimeError("broken page")

    assert ask(b"GET /x HTTP/1.1\r\n\r\n", {"/x": broken}).startswith(b"HTTP/1.1 500 ")
    assert "broken page" in caplog.text


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", HTTPStatus.NOT_FOUND),
        (b"POST /metrics HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"\x16\x03\x01\xff\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
    ],
)
def test_odd_requests_get_a_status(request_bytes: bytes, status: HTTPStatus) -> None:
    assert ask(request_bytes).startswith(f"HTTP/1.1 {status.value} ".encode())


@pytest.mark.parametrize("request_bytes", [b"", b"GET /metrics", b"x" * 100_000])
def test_a_talkative_or_silent_client_is_dropped(request_bytes: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the server may also reset what it did not read
        assert ask(request_bytes) == b""


def test_a_port_in_use_is_named() -> None:
    async def scenario() -> None:
        first = health.HealthServer("127.0.0.1:0", new_registry("test"), {})
        port = await first.start()
        second = health.HealthServer(f"127.0.0.1:{port}", new_registry("test"), {})
        with pytest.raises(CaricoError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            await second.start()
        await first.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", ":http", "localhost:99999"])
def test_a_wrong_address_is_named(address: str) -> None:
    with pytest.raises(UsageError, match="host:port"):
        health.split_address(address)


def test_a_stream_goes_on_until_the_client_leaves_and_ends_with_the_server() -> None:
    ended: list[str] = []

    async def follow(writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"first")
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def scenario() -> None:
        stream = health.Stream("text/event-stream", follow, (("X-Mine", "1"),))
        server = health.HealthServer("127.0.0.1:0", new_registry("test"), {}, {"/s": lambda _: stream})
        port = await server.start()
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in connections:
            writer.write(b"GET /s HTTP/1.1\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Content-Type: text/event-stream\r\n" in head
            assert b"\r\nX-Mine: 1\r\n" in head
            assert b"Content-Length" not in head
            assert await reader.readexactly(5) == b"first"
        connections[0][1].close()
        await asyncio.wait_for(until(lambda: len(ended) == 1), 30)
        await asyncio.wait_for(server.stop(), 30)
        assert await connections[1][0].read() == b""
        connections[1][1].close()

    asyncio.run(scenario())
    assert ended == ["ended", "ended"]


def test_a_client_that_never_asks_does_not_keep_the_server(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PATIENCE", 60.0)  # so that a stall of the machine is not taken for it

    async def scenario() -> float:
        server = health.HealthServer("127.0.0.1:0", new_registry("test"), {})
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(b"GET /metr")
        await asyncio.wait_for(until(lambda: bool(server._clients)), 30)
        before = asyncio.get_running_loop().time()
        await server.stop()
        took = asyncio.get_running_loop().time() - before
        assert await reader.read() == b""
        writer.close()
        return took

    assert asyncio.run(scenario()) < health.PATIENCE / 2
    assert caplog.text == ""


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - the other end of a socket has no event
        await asyncio.sleep(0.01)
