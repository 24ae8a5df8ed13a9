"""The small HTTP server, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from socket import AF_INET
from typing import Any

import psutil
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from carico.errors import CaricoError, UsageError
from carico.http import routes
from carico.http import server as module
from carico.http.address import is_loopback, split_address
from carico.http.message import Page, Request, Stream, text
from carico.http.refusals import Refusals
from carico.http.routes import POST, Access, Route, exposition, health, probe, shown
from carico.http.server import HttpServer
from carico.metrics import new_registry, request_counter

PATIENCE = 60.0  # s; a stall of the machine is no failure


def echo(request: Request) -> Page:
    return text(HTTPStatus.OK, f"{request.method} {len(request.body)}")


ROUTES = {
    **exposition(new_registry("test")),
    **health(lambda: None, lambda: "no sample yet", lambda: ["[+]ping ok"]),
    "/page": Route(echo),
    "/post": Route(echo, POST, 100),
    "/local": Route(echo, access=Access.LOCAL),
}
Scenario = Callable[[HttpServer, int], Awaitable[None]]


def serving(scenario: Scenario, routes: dict[str, Route] | None = None, address: str = "127.0.0.1:0") -> None:
    async def whole() -> None:
        server = HttpServer(address, ROUTES if routes is None else routes)
        port = await server.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await scenario(server, port)
        finally:
            await server.stop()

    asyncio.run(whole())


async def exchange(port: int, request: bytes, host: str = "127.0.0.1") -> bytes:
    """The whole response, until the server closes or has answered the last request."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        writer.write_eof()
        return await reader.read()
    finally:
        writer.close()


def ask(
    request: bytes, routes: dict[str, Route] | None = None, address: str = "127.0.0.1:0", host: str = "127.0.0.1"
) -> bytes:
    answers: list[bytes] = []

    async def scenario(_: HttpServer, port: int) -> None:
        answers.append(await exchange(port, request, host))

    serving(scenario, routes, address)
    return answers[0]


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def post(body: bytes, *headers: str, kind: str = "application/json") -> bytes:
    lines = ["POST /post HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# --- pages ---


def test_metrics_tell_the_build_and_the_process() -> None:
    page = ask(get("/metrics"))
    assert page.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in page
    assert b'carico_build_info{component="test"' in page
    assert b"process_resident_memory_bytes" in page


def test_metrics_come_as_the_scraper_accepts_them() -> None:
    page = ask(get("/metrics", "Accept: application/openmetrics-text;version=1.0.0", "Accept-Encoding: gzip"))
    head, _, body = page.partition(b"\r\n\r\n")
    assert b"\r\nContent-Type: application/openmetrics-text; version=1.0.0" in head
    assert b"\r\nContent-Encoding: gzip" in head
    parse: Any = text_string_to_metric_families
    families = {family.name for family in parse(gzip.decompress(body).decode())}
    assert "carico_build_info" in families


@pytest.mark.parametrize("accept", ["application/openmetrics-text;version=x", "text/plain;version=" + "9" * 5000])
def test_metrics_for_a_version_that_is_none(accept: str) -> None:
    assert status(ask(get("/metrics", f"Accept: {accept}"))) == 200


def test_a_probe_names_the_problem() -> None:
    assert ask(get("/readyz")).endswith(b"\r\n\r\nno sample yet\n")
    assert status(ask(get("/readyz"))) == 503
    for path in ("/healthz", "/livez"):
        assert ask(get(path)).endswith(b"\r\n\r\nok\n")


def test_a_verbose_probe_lists_its_checks() -> None:
    for query in ("?verbose", "?verbose=1", "?verbose="):
        assert ask(get(f"/readyz{query}")).endswith(b"\r\n\r\n[+]ping ok\nreadyz check failed: no sample yet\n")
    good = {"/readyz": probe("readyz", lambda: None, lambda: ["[+]ping ok"])}
    assert ask(get("/readyz?verbose"), good).endswith(b"\r\n\r\n[+]ping ok\nreadyz check passed\n")
    assert ask(get("/readyz"), good).endswith(b"\r\n\r\nok\n")


def test_head_is_get_without_the_body() -> None:
    answer = ask(get("/page").replace(b"GET", b"HEAD"))
    assert status(answer) == 200
    assert b"\r\nContent-Length: 6\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_a_page_that_fails_does_not_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Page:
        raise RuntimeError("broken page")

    assert status(ask(get("/x"), {"/x": shown(broken)})) == 500
    assert "broken page" in caplog.text


def test_a_connection_is_kept_for_the_next_request_unless_the_client_closes_it() -> None:
    assert ask(get("/page") + get("/page")).count(b"HTTP/1.1 200") == 2
    assert ask(get("/page", "Connection: close") + get("/page")).count(b"HTTP/1.1 200") == 1
    assert ask(b"GET /page HTTP/1.0\r\n\r\n" + get("/page"), address="127.0.0.1:0").count(b"HTTP/1.1") == 1


def test_answers_are_counted_by_listener_and_status() -> None:
    registry = new_registry("test")

    async def scenario() -> None:
        server = HttpServer("127.0.0.1:0", ROUTES, name="debug_listen", count=request_counter(registry, "test"))
        port = await server.start()
        for path in ("/page", "/page", "/nothing"):
            await exchange(port, get(path))
        await server.stop()

    asyncio.run(scenario())
    for code, count in (("200", 2), ("404", 1)):
        labels = {"component": "test", "listener": "debug_listen", "code": code}
        assert registry.get_sample_value("carico_http_requests_total", labels) == count


# --- what is refused ---


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (get("/nothing"), HTTPStatus.NOT_FOUND),
        (get("/page").replace(b"GET", b"DELETE"), HTTPStatus.METHOD_NOT_ALLOWED),
        (get("/post"), HTTPStatus.METHOD_NOT_ALLOWED),
        (b"\x16\x03\x01\xff\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /page HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),  # no Host
        (b"GET /page HTTP/2.0\r\nHost: localhost\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET http://localhost/page HTTP/1.1\r\nHost: localhost\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (get("/page", "Host: localhost"), HTTPStatus.BAD_REQUEST),
        (get("/page", "X: a", " folded"), HTTPStatus.BAD_REQUEST),
        (get("/page", "X : a"), HTTPStatus.BAD_REQUEST),
        (get("/page", "X: a\nY: b"), HTTPStatus.BAD_REQUEST),
        (get("/page", "X: " + "x" * 10_000), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
        (get("/page", "Content-Length: " + "9" * 5000), HTTPStatus.BAD_REQUEST),
        (get("/page", "Content-Length: -1"), HTTPStatus.BAD_REQUEST),
        (get("/page", "Content-Length: ²"), HTTPStatus.BAD_REQUEST),
        (get("/page", "Content-Length: 1", "Content-Length: 1"), HTTPStatus.BAD_REQUEST),
        (get("/page", "Content-Length: 5"), HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        (get("/page", "Content-Length: 0, 0"), HTTPStatus.BAD_REQUEST),
        (get("/page", "Content-Length: 0x0"), HTTPStatus.BAD_REQUEST),
        (get("/page", "X: a\rY: b"), HTTPStatus.BAD_REQUEST),
        (get("/page", "Transfer-Encoding:\vchunked"), HTTPStatus.BAD_REQUEST),
        (get("/page", "Transfer-Encoding: identity"), HTTPStatus.LENGTH_REQUIRED),
        (get("/%70age"), HTTPStatus.NOT_FOUND),
        (get("/x/../page"), HTTPStatus.NOT_FOUND),
        (get("//page"), HTTPStatus.NOT_FOUND),
        (post(b"", "Content-Length: 0"), HTTPStatus.BAD_REQUEST),
        (post(b"{}", kind="text/plain"), HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
        (post(b"x" * 101), HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        (post(b"{}", "Expect: a miracle"), HTTPStatus.EXPECTATION_FAILED),
        (post(b"{}").replace(b"Content-Length: 2", b"Transfer-Encoding: chunked"), HTTPStatus.LENGTH_REQUIRED),
        (post(b"{}", "Transfer-Encoding: chunked"), HTTPStatus.LENGTH_REQUIRED),
        (post(b"").replace(b"Content-Length: 0\r\n", b""), HTTPStatus.LENGTH_REQUIRED),
    ],
)
def test_odd_requests_get_a_status_and_one_line_in_the_log(
    request_bytes: bytes, expected: HTTPStatus, caplog: pytest.LogCaptureFixture
) -> None:
    answer = ask(request_bytes)
    assert status(answer) == expected
    assert b"\r\nConnection: close\r\n" in answer
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "refused 127.0.0.1 " in caplog.text
    assert f" with {expected.value}: " in caplog.text


def test_a_wrong_method_gets_the_allowed_ones() -> None:
    assert b"\r\nAllow: GET, HEAD\r\n" in ask(post(b"{}").replace(b"/post", b"/page"))
    assert b"\r\nAllow: POST\r\n" in ask(get("/post"))


def test_a_body_is_taken_up_to_the_limit_of_its_page() -> None:
    assert ask(post(b"x" * 100)).endswith(b"\r\n\r\nPOST 100\n")
    assert ask(post(b"{}", kind="application/json; charset=utf-8")).endswith(b"\r\n\r\nPOST 2\n")


def test_a_client_with_expect_continue_gets_100_or_the_error() -> None:
    assert ask(post(b"{}", "Expect: 100-continue")).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    assert status(ask(post(b"x" * 101, "Expect: 100-continue"))) == 413


def test_the_log_is_not_filled_and_holds_no_token(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(_: HttpServer, port: int) -> None:
        for _try in range(50):
            await exchange(port, get("/nothing?token=s3cret", "Authorization: Bearer s3cret", "Cookie: s3cret"))

    serving(scenario)
    assert len(caplog.records) == 1
    assert "refused 127.0.0.1 GET '/nothing' with 404: pages here: " in caplog.text
    assert "more before" not in caplog.text
    assert "s3cret" not in caplog.text


def test_what_was_left_out_of_the_log_is_counted_in_the_next_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr("carico.http.refusals.monotonic", lambda: now[0])
    refusals = Refusals("listen")
    for now[0] in (0.0, 1.0, 2.0, 10.0, 20.0):
        refusals.note(HTTPStatus.NOT_FOUND, "10.0.0.1", "GET '/x'", "no such page")
    line = "listen: refused 10.0.0.1 GET '/x' with 404: no such page"
    assert caplog.messages == [line, f"{line} (and 2 more before)", line]


@pytest.mark.parametrize("request_bytes", [b"", b"GET /metrics"])
def test_a_silent_client_that_leaves_gets_nothing(request_bytes: bytes) -> None:
    assert ask(request_bytes) == b""


# --- browsers ---


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:9469", 200),
        ("localhost", 200),
        ("LOCALHOST.:80", 200),
        ("[::1]:9469", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:9469", 403),
        ("localhost@evil.example", 403),
        ("[::2]:80", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_a_name_that_was_rebound_to_loopback_is_refused(host: str, expected: int) -> None:
    for path in ("/page", "/metrics"):
        assert status(ask(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())) == expected


def test_a_local_page_is_for_clients_on_this_machine_wherever_the_server_listens() -> None:
    assert status(ask(get("/local"), address="0.0.0.0:0")) == 200
    assert status(ask(get("/local").replace(b"localhost", b"evil.example"), address="0.0.0.0:0")) == 403
    assert status(ask(get("/local", "Origin: http://evil.example"), address="0.0.0.0:0")) == 403
    addresses = [each.address for all_ in psutil.net_if_addrs().values() for each in all_ if each.family == AF_INET]
    beyond = [address for address in addresses if not is_loopback(address)]
    if not beyond:
        pytest.skip("this machine has no address beyond loopback")
    answer = ask(get("/local"), address="0.0.0.0:0", host=beyond[0])
    assert status(answer) == 403
    assert b"only for clients on its machine" in answer
    assert status(ask(get("/page"), address="0.0.0.0:0", host=beyond[0])) == 200


def test_any_name_is_good_where_the_network_may_ask() -> None:
    answer = ask(b"GET /page HTTP/1.1\r\nHost: carico-scheduler.kube-system:9467\r\n\r\n", address="0.0.0.0:0")
    assert status(answer) == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (["Origin: http://evil.example"], 403),
        (["Origin: null"], 403),
        (["Origin: http://["], 403),
        (["Origin: http://localhost:1"], 403),  # another port of this machine is another site
        (["Origin: http://localhost"], 200),
        (["Sec-Fetch-Site: same-origin"], 200),
        (["Sec-Fetch-Site: none"], 200),
        (["Sec-Fetch-Site: same-site"], 403),
        (["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"], 403),
        (["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"], 403),
        (["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"], 200),  # a link
    ],
)
def test_pages_of_other_sites_may_only_link_here(headers: list[str], expected: int) -> None:
    assert status(ask(get("/page", *headers))) == expected
    assert status(ask(get("/healthz", *headers))) == 200
    assert status(ask(post(b"{}", *headers))) == (403 if "navigate" in str(headers) else expected)


# --- many and slow clients ---


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


# --- addresses ---


def test_a_port_in_use_is_named() -> None:
    async def scenario() -> None:
        first = HttpServer("127.0.0.1:0", {})
        port = await first.start()
        second = HttpServer(f"127.0.0.1:{port}", {}, name="debug_listen")
        with pytest.raises(CaricoError, match=rf"cannot listen on 127\.0\.0\.1:{port}.*--debug-listen"):
            await second.start()
        await first.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", ":http", "localhost:99999"])
def test_a_wrong_address_is_named(address: str) -> None:
    with pytest.raises(UsageError, match="host:port"):
        split_address(address)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - the other end of a socket has no event
        await asyncio.sleep(0.01)
