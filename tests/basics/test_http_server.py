"""The small HTTP server, over real sockets: pages, and what is refused."""

from __future__ import annotations

import asyncio
import gzip
import logging
from http import HTTPStatus
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from carico.errors import CaricoError, UsageError
from carico.http.address import split_address
from carico.http.message import Page
from carico.http.refusals import Refusals
from carico.http.routes import probe, shown
from carico.http.server import HttpServer
from carico.metrics import new_registry, request_counter
from harness.http_server import ROUTES, ask, exchange, get, post, serving, status

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
