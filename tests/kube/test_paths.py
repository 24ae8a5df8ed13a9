"""Names that are none, on their way to the API server: they stay one segment of one path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from carico.clock import SystemClock
from carico.errors import CaricoError
from carico.kube import calls, pods
from carico.kube.binding import Binding, BindResult
from carico.kube.client import Client
from carico.kube.credentials import fixed
from carico.kube.meta import ObjectMeta
from carico.kube.objects import Pod
from carico.kube.paths import segment

SMUGGLED = (
    "x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    "DELETE /api/v1/namespaces/prod/pods/victim?gracePeriodSeconds=0&x="
)


class Recorder:
    """Keeps a connection after 401, as Go's server does: whatever follows on it is the next request."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []  # request line, and whether it came with the token

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lengths = [int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("Content-Length")]
                await reader.readexactly(lengths[0])
                trusted = "Bearer SECRET" in head
                self.seen.append((head.split("\r\n")[0], trusted))
                body = b'{"metadata":{"name":"p","uid":"u"}}'
                status = 200 if trusted else 401
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


def recorded(scenario: Callable[[Client], Awaitable[None]]) -> list[tuple[str, bool]]:
    recorder = Recorder()

    async def whole() -> None:
        server = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = Client(fixed(f"http://127.0.0.1:{port}", "SECRET"))
        try:
            await scenario(client)
        finally:
            await client.close()
            server.close()

    asyncio.run(whole())
    return recorder.seen


def pod(name: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="default", uid="u"))


def test_a_name_cannot_end_the_request_and_begin_another() -> None:
    async def scenario(client: Client) -> None:
        outcome = await Binding(client, pod(SMUGGLED), "n1", SystemClock()).send()
        assert outcome.bound is BindResult.DONE
        await pods.read(client, "default", "a/../../b?c")

    (bound, bound_trusted), (got, got_trusted) = recorded(scenario)
    assert bound.startswith("POST /api/v1/namespaces/default/pods/x%20HTTP%2F1.1%0D%0AHost")
    assert bound.endswith("/binding HTTP/1.1")
    assert got == "GET /api/v1/namespaces/default/pods/a%2F..%2F..%2Fb%3Fc HTTP/1.1"
    assert bound_trusted
    assert got_trusted


@pytest.mark.parametrize("wrong", ["\r\n", "\n", " ", "\t", "\0", "\x7f", "é"])
def test_a_path_that_was_not_encoded_is_not_sent(wrong: str) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(CaricoError, match="cannot be sent"):
            await client.call("GET", f"/api/v1/namespaces/default/pods/x{wrong}y")
        with pytest.raises(CaricoError, match="cannot be sent"):
            await client.open_stream(f"/api/v1/pods?watch=1{wrong}")

    assert recorded(scenario) == []


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_means_another_path_is_none(name: str) -> None:
    with pytest.raises(CaricoError, match="not a valid name"):
        segment(name)
    with pytest.raises(CaricoError, match="not a valid name"):
        calls.GET_POD.path("default", name)
