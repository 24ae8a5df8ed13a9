"""Proxies before the API server: which one is taken, and real ones that connections go through."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from carico.errors import HttpError, UsageError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.proxy import proxy_of
from carico.kube.url import parse
from carico.testing import embedded_api_server
from carico.wire.certificates import Pair
from harness.kube.connect_proxy import ConnectProxy
from harness.kube.recording import RecordingServer, write_kubeconfig
from harness.kube.vanishing import deafen, hasty, needs_linux
from harness.wire.certificates import authority_without_identifiers

__all__ = ["hasty"]  # a fixture

PATIENCE = 60.0  # s; on a busy machine

Use = Callable[[ConnectProxy, Client], Awaitable[None]]


def through(folder: Path, pair: Pair | None, use: Use, *, more: str = "") -> None:
    """A client of the embedded API server that connects through a proxy; `more` joins the cluster's authority."""

    async def scenario() -> None:
        async with embedded_api_server(folder, tls=True) as (_, _direct), ConnectProxy(pair) as proxy:
            config = json.loads((folder / "kubeconfig").read_text())
            cluster = config["clusters"][0]["cluster"]
            cluster["proxy-url"] = proxy.url
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode() + more
            cluster["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
            (folder / "through").write_text(json.dumps(config))
            client = Client(credentials.from_kubeconfig(folder / "through"))
            try:
                await use(proxy, client)
            finally:
                await client.close()

    asyncio.run(scenario())


async def _work(proxy: ConnectProxy, client: Client) -> None:
    """Requests in a row, requests at once, a watch, and an object that does not fit into one piece."""
    await client.call("GET", "/api/v1/nodes")
    await asyncio.gather(*(client.call("GET", "/api/v1/nodes") for _ in range(10)))
    stream = await client.open_stream("/api/v1/nodes?watch=1&resourceVersion=0")
    big = {"metadata": {"name": "n", "annotations": {"a": "x" * 200_000}}}
    await client.call("POST", "/api/v1/nodes", json.dumps(big).encode())
    seen = b""
    while b"x" * 200_000 not in seen:
        seen += await anext(stream.parts)
    stream.close()
    assert proxy.heads[0].startswith(f"CONNECT {client._credentials.authority} HTTP/1.1\r\n")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}\r\n" in proxy.heads[0]
    assert not any("Bearer" in head for head in proxy.heads)


def test_a_proxy_with_http(tmp_path: Path) -> None:
    through(tmp_path, None, _work)


def test_a_proxy_with_https(tmp_path: Path) -> None:
    """Its certificate is signed by an authority that the cluster names, as kubectl wants it."""
    made = authority_without_identifiers(tmp_path)
    through(tmp_path, made.server, _work, more=made.root.read_text())


def test_a_proxy_with_the_certificate_of_a_stranger_is_refused(tmp_path: Path) -> None:
    async def use(_: ConnectProxy, client: Client) -> None:
        with pytest.raises(HttpError, match=r"the proxy https://127.0.0.1:\d+ opens no connection: .*verify failed"):
            await client.call("GET", "/api/v1/nodes")

    through(tmp_path, authority_without_identifiers(tmp_path).server, use)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno", "it answered 407 Proxy Auth"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "it answered 403 Forbidden"),
        (b"HTTP/1.1 403", ""),
        (b"SSH-2.0-x 200 \r\n\r\n", "does not start like HTTP"),
    ],
)
def test_a_proxy_that_opens_nothing_is_named(tmp_path: Path, answer: bytes, why: str, tls: bool) -> None:
    made = authority_without_identifiers(tmp_path)

    async def use(proxy: ConnectProxy, client: Client) -> None:
        proxy.answer = answer
        with pytest.raises(
            HttpError, match=rf"API server at .* the proxy https?://127.0.0.1:\d+ opens no connection: .*{why}"
        ) as e:
            await client.call("GET", "/api/v1/nodes")
        assert "p@ss" not in str(e.value)

    through(tmp_path, made.server if tls else None, use, more=made.root.read_text())


def test_a_proxy_without_listener_is_named(tmp_path: Path) -> None:
    async def use(proxy: ConnectProxy, client: Client) -> None:
        await proxy.__aexit__()
        with pytest.raises(HttpError, match=rf"the proxy http://127.0.0.1:{proxy.port} opens no connection: "):
            await client.call("GET", "/api/v1/nodes")

    through(tmp_path, None, use)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_never_answers_costs_the_patience_for_a_connection(tmp_path: Path, scheme: str) -> None:
    async def ask(url: str) -> None:
        cluster = {"server": "https://api.example", "proxy-url": url}
        who = credentials.from_kubeconfig(write_kubeconfig(tmp_path / "c", cluster, {}))
        with pytest.raises(HttpError, match=f"the proxy {url} opens no connection: .*answer"):
            await Client(who, patience=0.2).call("GET", "/version")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(ask(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"))


@needs_linux
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("tls", [False, True])
def test_a_watch_through_a_proxy_that_has_vanished_breaks(tmp_path: Path, tls: bool) -> None:
    made = authority_without_identifiers(tmp_path)

    async def use(proxy: ConnectProxy, client: Client) -> None:
        stream = await client.open_stream("/api/v1/nodes?watch=1&resourceVersion=0")
        deafen(proxy.writers[0])
        with pytest.raises(HttpError, match="broke"):
            async with asyncio.timeout(PATIENCE):
                await anext(stream.parts)
        stream.close()

    through(tmp_path, made.server if tls else None, use, more=made.root.read_text())


def test_a_plain_request_names_the_whole_address_to_the_proxy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with RecordingServer(None) as proxy:  # it answers for the API server, as a proxy does
            cluster = {"server": "http://api.example:8080/k8s", "proxy-url": f"http://me:word@127.0.0.1:{proxy.port}"}
            client = Client(credentials.from_kubeconfig(write_kubeconfig(tmp_path / "c", cluster, {})))
            await client.call("GET", "/version")
            await client.close()
            assert proxy.asked[0].line == "GET http://api.example:8080/k8s/version HTTP/1.1"
            assert proxy.asked[0].all("host") == ["api.example:8080"]
            assert proxy.asked[0].all("proxy-authorization") == [f"Basic {base64.b64encode(b'me:word').decode()}"]

    asyncio.run(scenario())


ENVIRON = {"HTTPS_PROXY": "p1:3128", "http_proxy": "http://p2", "NO_PROXY": "10.0.0.0/8,.internal,exact.example:6443"}


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://api.example.com", "http://p1:3128"),
        ("http://api.example.com", "http://p2:80"),
        ("https://10.1.2.3:6443", None),
        ("https://11.1.2.3:6443", "http://p1:3128"),
        ("https://a.internal", None),
        ("https://internal", "http://p1:3128"),
        ("https://exact.example:6443", None),
        ("https://exact.example", "http://p1:3128"),
        ("https://localhost:6443", None),
        ("https://127.0.0.7:6443", None),
        ("https://[::1]:6443", None),
        ("https://[fd00::1]:6443", "http://p1:3128"),
    ],
)
def test_the_proxy_of_the_environment_and_its_exceptions(server: str, expected: str | None) -> None:
    found = proxy_of(parse(server), "", "here", ENVIRON)
    assert (None if found is None else str(found)) == expected


def test_the_kubeconfigs_proxy_comes_first_and_knows_no_exceptions(tmp_path: Path) -> None:
    cluster: dict[str, Any] = {"server": "https://10.0.0.1", "proxy-url": "http://own:1"}
    path = write_kubeconfig(tmp_path / "c", cluster, {})
    assert str(credentials.find(path, ENVIRON).proxy) == "http://own:1"
    del cluster["proxy-url"]
    write_kubeconfig(path, cluster | {"server": "https://api.example.com"}, {})
    assert str(credentials.find(path, ENVIRON).proxy) == "http://p1:3128"
    with pytest.raises(UsageError, match=r"\$HTTPS_PROXY cannot be used: its scheme is socks5"):
        credentials.find(path, {"https_proxy": "socks5://p"})
