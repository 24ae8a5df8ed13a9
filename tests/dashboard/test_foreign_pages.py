"""A real browser with a web page of another site open, on the machine on which the scheduler runs."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from harness.dashboard.browser import chromium
from harness.dashboard.stage import Stage, until

pytestmark = pytest.mark.slow

EVIL = "evil.example"
LEDGER = "async (url) => { try { return await (await fetch(url)).text() } catch (error) { return 'unreadable' } }"
SIMULATE = """async (url) => {
    const body = '{"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}';
    for (const options of [{mode: "no-cors"}, {headers: {"Content-Type": "application/json"}}])
        try { await fetch(url, {method: "POST", body, ...options}) } catch (error) { }
}"""


@pytest.fixture(scope="module")
def rebinding() -> Iterator[Browser]:
    """For it, evil.example has come to mean this machine."""
    with chromium(f"--host-resolver-rules=MAP {EVIL} 127.0.0.1") as browser:
        yield browser


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("foreign"), ["a-node-that-nobody-may-know"]) as stage:
        yield stage


@pytest.fixture
def evil_port() -> Iterator[int]:
    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>kittens</title>")

        def log_message(self, *_: Any) -> None:
            """Not logged."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def opened(browser: Browser, url: str) -> Page:
    page = browser.new_page()
    page.goto(url)
    return page


def count(stage: Stage, code: int) -> float:
    name = f'carico_http_requests_total{{code="{code}",component="scheduler",listener="debug_listen"}} '
    lines = stage.get("/metrics")[2].splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_name_that_was_rebound_reads_nothing(rebinding: Browser, stage: Stage) -> None:
    until(lambda: "a-node-that-nobody-may-know" in stage.get("/debug/ledger")[2], "report of the node")
    before = count(stage, 403)
    page = opened(rebinding, f"http://{EVIL}:{stage.page_port}/")
    for path in ("/debug/ledger", "/metrics", "/page/node?name=a-node-that-nobody-may-know"):
        said = page.evaluate(LEDGER, f"http://{EVIL}:{stage.page_port}{path}")
        assert said == f"the host '{EVIL}:{stage.page_port}' is not this machine's loopback\n"
    assert count(stage, 403) >= before + 4
    page.close()


def test_another_site_can_neither_read_nor_send(rebinding: Browser, stage: Stage, evil_port: int) -> None:
    before = count(stage, 403), count(stage, 200)
    page = opened(rebinding, f"http://{EVIL}:{evil_port}/")
    for path in ("debug/ledger", "explain?pod=default/x"):
        assert page.evaluate(LEDGER, stage.url + path) == "unreadable"
    page.evaluate(SIMULATE, stage.url + "simulate")
    page.close()
    assert count(stage, 403) >= before[0] + 4  # two reads, a POST, and the browser's question whether it may send JSON
    assert count(stage, 200) == before[1] + 2  # our own looks at the metrics since then
