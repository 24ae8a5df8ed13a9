"""The scheduler's three addresses: what each of them serves, and to which clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carico.errors import UsageError
from carico.http.server import HttpServer
from carico.http.tls import server_context
from carico.scheduler.process import Scheduler
from carico.settings import SchedulerSettings
from carico.testing import ManualClock
from carico.wire.certificates import Authority, Pair

KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""
BIND = (
    b"POST /extender/bind HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    b"Connection: close\r\n\r\n{}"
)


@pytest.fixture
def settings(tmp_path: Path) -> SchedulerSettings:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    anywhere: dict[str, Any] = {"listen": "127.0.0.1:0", "debug_listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0"}
    return SchedulerSettings(kubeconfig=file, plaintext=True, leader_elect=False, **anywhere)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "tls").mkdir()
    return Authority(tmp_path / "tls")


def made(settings: SchedulerSettings) -> dict[str, HttpServer]:
    return {server.name: server for server in Scheduler(settings, ManualClock())._servers}


def serving(server: HttpServer, scenario: Callable[[int], Awaitable[None]]) -> None:
    async def whole() -> None:
        port = await server.start()
        try:
            async with asyncio.timeout(60):
                await scenario(port)
        finally:
            await server.stop()

    asyncio.run(whole())


async def ask(port: int, request: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        await gone(writer)


async def answer_or_nothing(port: int, tls: ssl.SSLContext | None = None) -> bytes:
    """A client learns only after its own handshake that the server does not like its certificate."""
    try:
        return await ask(port, BIND, tls)
    except (ssl.SSLError, ConnectionError):
        return b""


def get(path: str, *headers: str) -> bytes:
    lines = (f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", "")
    return "\r\n".join(lines).encode()


def client(authority: Path, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def statuses(server: HttpServer, *requests: bytes) -> list[int]:
    found: list[int] = []

    async def scenario(port: int) -> None:
        found.extend([int((await ask(port, request)).split(b" ", 2)[1]) for request in requests])

    serving(server, scenario)
    return found


def test_the_open_address_has_probes_and_metrics_and_nothing_else(settings: SchedulerSettings) -> None:
    server = made(settings)["listen"]
    assert statuses(server, get("/healthz"), get("/livez"), get("/metrics")) == [200, 200, 200]
    hidden = ("/", "/page/live", "/debug/ledger", "/debug/queue", "/debug/decisions", "/explain", "/simulate")
    assert statuses(made(settings)["listen"], *map(get, hidden), BIND) == [404] * (len(hidden) + 1)


def test_the_private_address_is_for_this_machine(settings: SchedulerSettings) -> None:
    server = made(settings)["debug_listen"]
    assert statuses(server, get("/"), get("/debug/ledger"), get("/metrics"), BIND) == [200, 200, 200, 404]
    evil = ("Origin: http://evil.example",)
    simulate = BIND.replace(b"/extender/bind", b"/simulate")
    cross = simulate.replace(b"Connection", b"Origin: http://evil.example\r\nConnection")
    plain = simulate.replace(b"application/json", b"text/plain")
    rebound = get("/debug/ledger").replace(b"localhost", b"evil.example")
    server = made(settings)["debug_listen"]
    assert statuses(server, get("/debug/ledger", *evil), cross, plain, rebound) == [403, 403, 415, 403]


def test_there_is_no_extender_by_default(settings: SchedulerSettings) -> None:
    assert set(made(settings)) == {"listen", "debug_listen"}
    server = made(replace(settings, extender_listen="127.0.0.1:0"))["extender_listen"]
    assert statuses(server, BIND, get("/metrics")) == [400, 404]  # {} is no pod


@pytest.mark.parametrize("body", [b'{"a":' * 50_000, b"[" * 50_000, b'{"Pod": {"metadata": ' * 1000, b'"\xff"', b"\0"])
def test_bodies_that_are_no_objects_are_refused_without_a_traceback(
    settings: SchedulerSettings, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    found = made(replace(settings, extender_listen="127.0.0.1:0"))
    caplog.clear()
    for name, path in (("debug_listen", b"/simulate"), ("extender_listen", b"/extender/filter")):
        head = BIND.replace(b"/extender/bind", path).replace(b": 2\r\n", b": %d\r\n" % len(body))
        assert statuses(found[name], head.removesuffix(b"{}") + body) == [400]
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"debug_listen": "0.0.0.0:0"}, "debug_listen 0.0.0.0:0: beyond loopback it needs tls_cert and tls_key"),
        ({"debug_listen": ":0"}, "beyond loopback it needs tls_cert and tls_key"),
        ({"extender_listen": "0.0.0.0:0"}, "may listen on loopback only"),
        ({"extender_listen": "127.0.0.1:0", "extender_client_ca": Path("ca.pem")}, "needs tls_cert, tls_key"),
    ],
)
def test_beyond_loopback_nothing_is_served_without_certificates(
    settings: SchedulerSettings, changes: dict[str, object], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        made(replace(settings, **changes))  # type: ignore[arg-type]


def test_beyond_loopback_the_private_pages_want_a_token_over_tls(
    settings: SchedulerSettings, authority: Authority
) -> None:
    pair = authority.issue("localhost", "localhost", "127.0.0.1")
    open_wide = replace(settings, debug_listen="0.0.0.0:0", tls_cert=pair.cert, tls_key=pair.key)

    async def scenario(port: int) -> None:
        trusting = client(authority.cert)
        for path, expected in (("/healthz", b"200"), ("/debug/ledger", b"401"), ("/metrics", b"401"), ("/x", b"401")):
            answer = await ask(port, get(path), trusting)
            assert answer.split(b" ", 2)[1] == expected
        assert b"\r\nWWW-Authenticate: Bearer\r\n" in answer
        assert not (await ask(port, get("/healthz"))).startswith(b"HTTP/1.1 200")  # plaintext

    serving(made(open_wide)["debug_listen"], scenario)


def test_the_extender_lets_in_only_clients_of_its_own_authority(
    settings: SchedulerSettings, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    server, caller = authority.issue("localhost", "localhost", "127.0.0.1"), authority.issue("kube-scheduler")
    forged = Authority(tmp_path / "other").issue("kube-scheduler")
    files = {"tls_cert": server.cert, "tls_key": server.key, "extender_client_ca": authority.cert}

    async def scenario(port: int) -> None:
        assert (await ask(port, BIND, client(authority.cert, caller))).startswith(b"HTTP/1.1 400 ")
        for stranger in (client(authority.cert), client(authority.cert, forged)):
            assert await answer_or_nothing(port, stranger) == b""
        assert not (await answer_or_nothing(port)).startswith(b"HTTP/1.1 ")

    serving(made(replace(settings, extender_listen="0.0.0.0:0", **files))["extender_listen"], scenario)  # type: ignore[arg-type]


def test_a_certificate_that_was_replaced_is_served_without_a_restart(authority: Authority) -> None:
    pair = authority.issue("localhost", "localhost", "127.0.0.1")
    seen: list[object] = []

    async def scenario(port: int) -> None:
        for _ in range(2):
            seen.append(await serial(port, authority.cert))
        authority.issue("localhost", "localhost", "127.0.0.1")
        for _ in range(2):
            seen.append(await serial(port, authority.cert))

    files = {"tls_cert": pair.cert, "tls_key": pair.key}
    serving(HttpServer("127.0.0.1:0", {}, tls=server_context(files, "listen")), scenario)
    assert seen[0] == seen[1] != seen[2] == seen[3]


def test_an_authority_of_clients_that_was_replaced_is_the_only_one_from_the_next_connection_on(
    settings: SchedulerSettings, authority: Authority, tmp_path: Path
) -> None:
    """A file that holds no certificate changes nothing; a session of the old authority's client is not resumed."""
    (tmp_path / "other").mkdir()
    other, trusted = Authority(tmp_path / "other"), tmp_path / "clients.pem"
    trusted.write_bytes(authority.cert.read_bytes())
    server = authority.issue("localhost", "localhost", "127.0.0.1")
    files = {"tls_cert": server.cert, "tls_key": server.key, "extender_client_ca": trusted}
    old, new = (client(authority.cert, issuer.issue("kube-scheduler")) for issuer in (authority, other))

    async def let_in(port: int) -> list[bool]:
        return [bool(await answer_or_nothing(port, context)) for context in (old, new)]

    async def scenario(port: int) -> None:
        session = await asyncio.to_thread(session_after_an_answer, port, old)
        assert await let_in(port) == [True, False]
        trusted.write_text("half a file")
        assert await let_in(port) == [True, False]
        trusted.write_bytes(other.cert.read_bytes())
        assert await let_in(port) == [False, True]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(session_after_an_answer, port, old, session)

    serving(made(replace(settings, extender_listen="0.0.0.0:0", **files))["extender_listen"], scenario)  # type: ignore[arg-type]


def session_after_an_answer(
    port: int, tls: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLSession | None:
    """Blocks. The session with which another connection could go on."""
    with (
        socket.create_connection(("127.0.0.1", port), 30) as raw,
        tls.wrap_socket(raw, server_hostname="localhost", session=session) as secured,
    ):
        secured.sendall(BIND)
        if not secured.recv(1):
            raise ConnectionError("no answer")
        return secured.session


async def serial(port: int, authority: Path) -> object:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client(authority))
    found = writer.get_extra_info("peercert")["serialNumber"]
    await gone(writer)
    return found


async def gone(writer: asyncio.StreamWriter) -> None:
    """Over TLS that takes a while, and must not outlast the test."""
    writer.close()
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.pem"):
        server_context({"tls_cert": tmp_path / "none.pem", "tls_key": tmp_path / "none.key"}, "listen")
