"""What the small HTTP server refuses to browsers that other sites lead to it."""

from __future__ import annotations

from socket import AF_INET

import psutil
import pytest

from carico.http.address import is_loopback
from harness.http_server import ask, get, post, status


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
