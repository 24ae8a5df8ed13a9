"""Requests to the API server as client-go counts them."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from carico.errors import ApiError, HttpError
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.credentials import fixed
from carico.kube.metrics import BUCKETS, RequestMetrics
from carico.testing import embedded_api_server
from carico.wire.certificates import Authority
from carico.x509 import not_after

PODS = "/api/v1/namespaces/default/pods"


class Counted:
    def __init__(self, client: Client) -> None:
        self._host, self._registry = client.host, CollectorRegistry()
        client.on_answer = RequestMetrics(self._registry, client.host).answered

    def requests(self, code: str, method: str) -> float:
        labels = {"code": code, "method": method, "host": self._host}
        return self._registry.get_sample_value("rest_client_requests_total", labels) or 0.0

    def timed(self, verb: str) -> float:
        labels = {"verb": verb, "host": self._host}
        return self._registry.get_sample_value("rest_client_request_duration_seconds_count", labels) or 0.0


def test_every_request_is_counted_by_status_and_method(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with embedded_api_server(tmp_path) as (_, client):
            counted = Counted(client)
            await client.call("GET", PODS)
            with pytest.raises(ApiError):
                await client.call("GET", f"{PODS}/none")
            with pytest.raises(ApiError):
                await client.call("POST", PODS, b"{}")
            other = client.apart(patience=10.0)  # as the Lease's
            await other.call("GET", PODS)
            await other.close()
            stream = await client.open_stream(f"{PODS}?watch=1")
            stream.close()
            assert (counted.requests("200", "GET"), counted.requests("404", "GET")) == (3, 1)
            assert counted.timed("GET") == 3, "a watch has no duration"
            assert counted.timed("POST") == 1

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_request_without_an_answer_is_an_error() -> None:
    async def scenario() -> None:
        client = Client(fixed("http://127.0.0.1:1"))
        counted = Counted(client)
        with pytest.raises(HttpError):
            await client.call("GET", PODS)
        with pytest.raises(HttpError):
            await client.open_stream(f"{PODS}?watch=1")
        await client.close()
        assert counted.requests("<error>", "GET") == 2
        assert counted.timed("GET") == 0, "nothing was sent"

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_an_answer_that_breaks_off_counts_once() -> None:
    async def scenario() -> None:
        def broken(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
            writer.close()

        server = await asyncio.start_server(broken, "127.0.0.1", 0)
        client = Client(fixed(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        counted = Counted(client)
        with pytest.raises(HttpError):
            await client.call("GET", PODS)
        await client.close()
        server.close()
        assert (counted.requests("<error>", "GET"), counted.requests("200", "GET")) == (1, 0)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_buckets_are_client_gos() -> None:
    assert BUCKETS == (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


def test_the_client_certificate_of_a_kubeconfig_is_known(tmp_path: Path) -> None:
    authority = Authority(tmp_path, life=datetime.timedelta(days=3))
    pair = authority.issue("me")
    file = tmp_path / "kubeconfig"
    file.write_text(f"""
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:1", certificate-authority: {authority.cert}}}}}]
users: [{{name: u, user: {{client-certificate: {pair.cert}, client-key: {pair.key}}}}}]
""")
    client = Client(credentials.from_kubeconfig(file))
    assert not_after(client.certificate()) == not_after(pair.cert.read_bytes())
    assert Client(fixed("http://127.0.0.1:1")).certificate() == b""
