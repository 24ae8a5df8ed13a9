"""The small HTTP server with many clients, and with slow ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Metric

from carico.http import routes
from carico.http import server as module
from carico.http.message import Page, Request, Stream, text
from carico.http.routes import Route, exposition, shown
from carico.http.server import HttpServer
from harness.http_server import PATIENCE, ROUTES, exchange, get, post, serving, status, until


def test_silent_connections_keep_no_probe_away() -> None:
    async def scenario(server: HttpServer, port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for _, writer in silent[::2]:
            writer.write(b"GET /healthz HTT")
        for _ in range(20):
            assert status(await exchange(port, get("/healthz"))) == 200
        assert len(server._clients) <= module.CONNECTIONS
        for _, writer in silent:
            writer.close()

    serving(scenario)


def test_busy_connections_are_not_dropped_and_the_next_one_gets_503() -> None:
    async def scenario() -> None:
        done = asyncio.Event()

        async def slow(_: Request) -> Page:
            await done.wait()
            return text(HTTPStatus.OK, "done")

        server = HttpServer("127.0.0.1:0", {"/slow": Route(slow)}, connections=2)
        port = await server.start()
        first = [asyncio.create_task(exchange(port, get("/slow"))) for _ in range(2)]
        await until(lambda: len(server._clients) == 2 and not server._slow)
        assert status(await exchange(port, b"")) == 503
        done.set()
        assert [status(await one) for one in first] == [200, 200]
        await server.stop()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_large_bodies_are_refused_before_they_are_read() -> None:
    async def scenario(server: HttpServer, port: int) -> None:
        head = post(b"").replace(b"Content-Length: 0", b"Content-Length: %d" % (16 << 20))
        for path in (b"/post", b"/healthz", b"/nothing"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head.replace(b"/post", path))
            assert status(await reader.readuntil(b"\r\n")) in (413, 405, 404)  # and nothing was sent of the body
            writer.close()
        assert server._bodies == 0

    serving(scenario)


def test_bodies_that_are_read_at_once_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODIES_LIMIT", 150)

    async def scenario(server: HttpServer, port: int) -> None:
        _, first = await asyncio.open_connection("127.0.0.1", port)
        first.write(post(b"x" * 100)[:-1])
        await until(lambda: server._bodies == 100)
        answer = await exchange(port, post(b"x" * 100))
        assert status(answer) == 503
        assert b"\r\nRetry-After: 1\r\n" in answer
        first.close()
        await until(lambda: server._bodies == 0)
        assert status(await exchange(port, post(b"x" * 100))) == 200

    serving(scenario)


@pytest.mark.parametrize("sent", [b"GET /page HTT", post(b"{}")[:-1], get("/page")])
def test_a_client_that_stops_half_way_is_dropped(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_PATIENCE", "BODY_PATIENCE", "IDLE"):
        monkeypatch.setattr(module, name, 0.05)

    async def scenario(_: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await reader.read()  # until the server ends it
        writer.close()

    serving(scenario)


def test_a_response_that_is_not_read_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_PATIENCE", 0.05)
    size = 50 << 20

    async def scenario(server: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/large"))
        await reader.readexactly(10)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: not server._clients)
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        taken = 0
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 20):
                taken += len(part)
        assert taken < size
        writer.close()

    serving(scenario, {"/large": shown(lambda: Page(HTTPStatus.OK, "text/plain", bytes(size)))})


def test_metrics_take_a_bounded_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []
    now = [0.0]

    class Slow:
        def collect(self) -> Iterator[Metric]:
            made.append(now[0])
            now[0] += 0.25  # s
            yield from ()

    monkeypatch.setattr(routes, "perf_counter", lambda: now[0])
    registry = CollectorRegistry()
    registry.register(Slow())
    made.clear()
    now[0] = 0.0
    answer = exposition(registry)["/metrics"].answer
    for _ in range(1000):
        assert isinstance(answer(Request("GET", {})), Page)
        now[0] += 0.01
    assert 4 <= len(made) <= 1 + 4 + 0.1 * now[0] / 0.25


def test_a_client_without_a_request_does_not_keep_the_server(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_PATIENCE", 10 * PATIENCE)

    async def scenario() -> None:
        server = HttpServer("127.0.0.1:0", ROUTES)
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(b"GET /metr")
        await until(lambda: bool(server._clients))
        await server.stop()
        assert await reader.read() == b""
        writer.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    assert caplog.text == ""


def test_a_stream_goes_on_until_the_client_leaves_and_ends_with_the_server() -> None:
    ended: list[str] = []

    async def follow(writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"first")
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def scenario() -> None:
        stream = Stream("text/event-stream", follow, (("X-Mine", "1"),))
        server = HttpServer("127.0.0.1:0", {"/s": Route(lambda _: stream)})
        port = await server.start()
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in connections:
            writer.write(get("/s"))
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Content-Type: text/event-stream\r\n" in head
            assert b"\r\nX-Mine: 1\r\n" in head
            assert b"Content-Length" not in head
            assert await reader.readexactly(5) == b"first"
        connections[0][1].close()
        await until(lambda: len(ended) == 1)
        await server.stop()
        assert await connections[1][0].read() == b""
        connections[1][1].close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    assert ended == ["ended", "ended"]
