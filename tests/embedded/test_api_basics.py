"""The embedded API server through Carico's own client: who may come in, and what the demo is built on."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from pathlib import Path

import msgspec
import pytest

from carico.clock import SystemClock
from carico.embedded.apiserver import __main__ as api_process
from carico.embedded.apiserver import http
from carico.embedded.apiserver.server import ApiServer
from carico.errors import ApiError
from carico.kube import credentials
from carico.kube.client import Client


@pytest.mark.parametrize("tls", [True, False])
def test_only_who_can_read_the_kubeconfig_comes_in(tmp_path: Path, tls: bool) -> None:
    async def scenario() -> None:
        async with ApiServer(SystemClock(), tls=tls) as server:
            path = tmp_path / "kubeconfig"
            server.kubeconfig(path)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            known = credentials.from_kubeconfig(path) if tls else credentials.fixed(server.address, server.token)
            owner = Client(known)
            assert msgspec.json.decode(await owner.call("GET", "/api/v1/nodes"))["items"] == []
            if tls:  # without TLS no client may send the right token in clear text either
                path.write_text(path.read_text().replace(server.token, "guessed"))
            stranger = Client(credentials.from_kubeconfig(path))
            for where in ("/api/v1/nodes", "/version", "/nowhere"):
                with pytest.raises(ApiError, match="401 Unauthorized"):
                    await stranger.call("GET", where)
            await owner.close()
            await stranger.close()

    asyncio.run(scenario())


def test_who_never_shows_the_token_is_turned_away_and_the_owner_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with ApiServer(SystemClock(), tls=False) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            asked = f"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
            writer.write(asked)
            await reader.readuntil(b"HTTP/1.1 200 OK")
            monkeypatch.setattr(http, "STRANGER_PATIENCE", 0.05)
            listening, speaking = await asyncio.open_connection("127.0.0.1", port_of(server))
            with contextlib.suppress(ConnectionError):
                assert await listening.read() == b""
            writer.write(asked)
            await reader.readuntil(b"HTTP/1.1 200 OK")
            writer.close()
            speaking.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_strangers_are_few_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STRANGERS", 10)

    async def scenario() -> None:
        async with ApiServer(SystemClock(), tls=False) as server:
            port = port_of(server)
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
            for reader, _ in silent[:2]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            assert len(server._strangers) <= 10
            for _, writer in silent:
                writer.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def port_of(server: ApiServer) -> int:
    return int(server.address.rpartition(":")[2])


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"GET /version HTTP/1.1\r\n\r\n", b"400"),  # no Host
        (b"GET /version HTTP/1.1\r\nHost: x\r\n%b\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"400"),
    ],
)
def test_malformed_heads_are_refused_without_a_traceback(
    request_bytes: bytes, code: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with ApiServer(SystemClock(), tls=False) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            writer.write(request_bytes.replace(b"%b", f"Authorization: Bearer {server.token}".encode()))
            assert (await reader.read()).split(b" ", 2)[1] == code
            writer.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert caplog.text == ""


async def exchange(server: ApiServer, *parts: bytes) -> bytes:
    """Requests on one connection, %b for the owner's token; all that comes back until the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    writer.write(b"".join(parts).replace(b"%b", f"Host: x\r\nAuthorization: Bearer {server.token}".encode()))
    try:
        return await reader.read()
    finally:
        writer.close()


async def names(server: ApiServer) -> list[str]:
    client = Client(credentials.fixed(server.address, server.token))
    try:
        items = msgspec.json.decode(await client.call("GET", "/api/v1/namespaces"))["items"]
        return [item["metadata"]["name"] for item in items]
    finally:
        await client.close()


def chunked(body: bytes, *headers: bytes) -> bytes:
    lines = (b"POST /api/v1/namespaces HTTP/1.1", b"%b", b"Transfer-Encoding: chunked", *headers)
    return b"\r\n".join((*lines, b"", body))


NEW = b'{"metadata": {"name": "new"}}'  # a namespace
SIZE = b"%x" % len(NEW)
LAST = b"GET /version HTTP/1.1\r\n%b\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        chunked(SIZE + b"\r\n" + NEW + b"\r\n0\r\n\r\n", b"Content-Length: 3"),
        chunked(b"+" + SIZE + b"\r\n" + NEW + b"\r\n0\r\n\r\n"),
        chunked(b"0x" + SIZE + b"\r\n" + NEW + b"\r\n0\r\n\r\n"),
        chunked(b" " + SIZE + b"\r\n" + NEW + b"\r\n0\r\n\r\n"),
        chunked(b"1_d\r\n" + NEW + b"\r\n0\r\n\r\n"),
        chunked(b"-2\r\n" + NEW + b"\r\n0\r\n\r\n"),
        chunked(b"f" * 17 + b"\r\n" + NEW + b"\r\n0\r\n\r\n"),
        chunked(SIZE + b"\r\n" + NEW + b"XX0\r\n\r\n"),
    ],
)
def test_a_body_whose_end_is_in_doubt_is_refused_and_the_connection_closed(request_bytes: bytes) -> None:
    async def scenario() -> None:
        async with ApiServer(SystemClock(), tls=False) as server:
            answer = await exchange(server, request_bytes, LAST)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert answer.count(b"HTTP/1.1 ") == 1
            assert "new" not in await names(server)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("trailers", [b"", b"X-Checksum: 1\r\nY: 2\r\n"])
def test_the_request_behind_a_chunked_body_and_its_trailers_is_answered(trailers: bytes) -> None:
    async def scenario() -> None:
        async with ApiServer(SystemClock(), tls=False) as server:
            body = SIZE + b";about=nothing\r\n" + NEW + b"\r\n0\r\n" + trailers + b"\r\n"
            answer = await exchange(server, chunked(body), LAST)
            assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"201", b"200"]
            assert "new" in await names(server)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize(
    "first",
    [
        b"GET /version HTTP/1.0\r\n%b\r\n\r\n",
        b"GET /version HTTP/1.1\r\n%b\r\nConnection: close\r\n\r\n",
        b"GET /version HTTP/1.1\r\n%b\r\nConnection: TE, Close\r\n\r\n",
    ],
)
def test_nothing_is_done_for_a_request_behind_the_last_one(first: bytes) -> None:
    async def scenario() -> None:
        async with ApiServer(SystemClock(), tls=False) as server:
            answer = await exchange(server, first, chunked(SIZE + b"\r\n" + NEW + b"\r\n0\r\n\r\n"))
            assert answer.count(b"HTTP/1.1 ") == 1
            assert b"\r\nConnection: close\r\n" in answer
            assert "new" not in await names(server)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_headers_are_bounded_however_they_come(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "HEAD_LIMIT", 1000)  # so that all comes in one packet: an unread rest resets a connection

    async def scenario() -> None:
        async with ApiServer(SystemClock(), tls=False) as server:
            head = b"GET /version HTTP/1.1\r\n%b\r\nX: " + b"x" * 1000
            assert (await exchange(server, head)).startswith(b"HTTP/1.1 431 ")
            assert (await exchange(server, head, b"\r\n\r\n")).startswith(b"HTTP/1.1 431 ")

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert caplog.text == ""


def test_plaintext_is_for_loopback_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where --listen names no host, which is every address."""
    for address in ("0.0.0.0:0", ":0", "[::]:0"):
        assert api_process.main(["--kubeconfig", str(tmp_path / "k"), "--plaintext", "--listen", address]) == 2
        said = f"carico: --plaintext: the token could be read in transit to {address}; listen on loopback\n"
        assert capsys.readouterr().err == said
    assert list(tmp_path.iterdir()) == []
