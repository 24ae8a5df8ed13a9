"""The client's connections: who waits for one, which are used again, and what counts as an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from carico.clock import SystemClock
from carico.errors import ApiError, FencedError, HttpError
from carico.kube import protobuf
from carico.kube import socket as sockets
from carico.kube.binding import Binding, BindResult
from carico.kube.client import Client
from carico.kube.credentials import fixed
from carico.kube.socket import connect
from carico.testing import ManualClock, make_pod
from harness.kube.vanishing import deafen, hasty, needs_linux

__all__ = ["hasty"]  # a fixture

PATIENCE = 60.0  # s; on a busy machine
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

# (connection number, request line, writer) to what it does with the request
Handler = Callable[[int, str, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Real sockets; `handler` answers every request, or does not."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()
        self.writers: list[asyncio.StreamWriter] = []
        self.requests: list[tuple[int, str]] = []

    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[Client]:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        client = Client(fixed(f"http://127.0.0.1:{self.port}"), **settings)
        try:
            yield client
        finally:
            await client.close()
            server.close()
            await _turns()  # in which the last ones are accepted
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for writer in self.writers:
                writer.transport.abort()
            await _turns()  # in which they are closed
            await server.wait_closed()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self._tasks.add(asyncio.create_task(self._serve(len(self.writers), reader, writer)))

    async def _serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                line = head.split(b"\r\n")[0].decode()
                self.requests.append((number, line))
                await self._handler(number, line, writer)
                await writer.drain()
        writer.close()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def says(answer: bytes) -> Handler:
    async def handler(_number: int, _line: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    return handler


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    asyncio.run(whole())


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 - the other end of a socket has no event
        await asyncio.sleep(0.01)


REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\nContent-Length: 0\r\n\r\n"


def test_a_redirect_is_an_error_that_names_it() -> None:
    """A proxy that requires a login must not be taken for an API server that has bound a pod."""

    async def scenario() -> None:
        async with Server(says(REDIRECT)).client() as client:
            with pytest.raises(ApiError, match=r"302 Redirect: no redirect is followed, .*https://login\.example/"):
                await client.call("GET", "/version")
            with pytest.raises(ApiError, match="302"):
                await client.create("/x", protobuf.BINDING, {"metadata": {}, "target": {}})
            with pytest.raises(ApiError, match="302"):
                await client.open_stream("/api/v1/pods?watch=1")
            assert (await Binding(client, make_pod("p"), "n", SystemClock()).send()).bound is BindResult.FAILED

    run(scenario)


@pytest.mark.parametrize("length", [b"abc", b"-1", b"5, 6"])
def test_a_bad_length_is_an_error_of_the_connection(length: bytes) -> None:
    async def scenario() -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\n{}"
        async with Server(says(answer)).client() as client:
            with pytest.raises(HttpError, match="length"):
                await client.call("GET", "/version")

    run(scenario)


def test_a_status_with_nulls_is_read() -> None:
    body = json.dumps({"kind": "Status", "reason": None, "message": "gone"}).encode()

    async def scenario() -> None:
        answer = b"HTTP/1.1 404 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        async with Server(says(answer)).client() as client:
            with pytest.raises(ApiError, match="404 : gone"):
                await client.call("GET", "/x")

    run(scenario)


def test_no_request_waits_for_hours() -> None:
    async def scenario() -> None:
        answer = b"HTTP/1.1 429 X\r\nRetry-After: 99999999\r\nContent-Length: 0\r\n\r\n"
        async with Server(says(answer)).client() as client:
            with pytest.raises(ApiError) as caught:
                await client.call("GET", "/x")
            assert caught.value.retry_after == 60

    run(scenario)


class Held:
    """Answers nothing before `free` is set."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def __call__(self, _number: int, line: str, writer: asyncio.StreamWriter) -> None:
        if "/urgent" not in line:
            await self.free.wait()
        writer.write(GOOD)


def test_what_is_urgent_does_not_wait_for_a_place() -> None:
    async def scenario() -> None:
        held = Held()
        server = Server(held)
        async with server.client(connections=2) as client:
            slow = [asyncio.create_task(client.call("GET", f"/{i}")) for i in range(4)]
            await until(lambda: len(server.requests) == 2)
            assert await client.call("GET", "/urgent", urgent=True) == b"{}"
            held.free.set()
            await asyncio.gather(*slow)

    run(scenario)


def test_a_fence_is_checked_after_the_wait_for_a_place_and_its_connection_is_kept() -> None:
    async def scenario() -> None:
        held, leads = Held(), [True]
        server = Server(held)
        async with server.client(connections=2) as client:
            calls = [asyncio.create_task(client.call("GET", f"/{i}", fence=lambda: leads[0])) for i in range(8)]
            await until(lambda: len(server.requests) == 2)
            leads[0] = False
            held.free.set()
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(answer, FencedError) for answer in found] == [False] * 2 + [True] * 6
            assert len(server.requests) == 2
            assert len(client._pool.idle) == len(server.writers) == 2

    run(scenario)


class Mortal:
    """Connections in `dead` answer no more and send no FIN: the machine behind them has lost its power."""

    def __init__(self) -> None:
        self.dead: set[int] = set()
        self.slow = asyncio.Event()

    async def __call__(self, number: int, line: str, writer: asyncio.StreamWriter) -> None:
        if number in self.dead:
            await asyncio.Event().wait()
        if "/slow" in line:
            await self.slow.wait()
        writer.write(GOOD)


async def burst(server: Server, client: Client, handler: Mortal, count: int) -> None:
    """Leaves so many idle connections."""
    calls = [asyncio.create_task(client.call("GET", "/slow")) for _ in range(count)]
    await until(lambda: len(server.writers) == count)
    handler.slow.set()
    await asyncio.gather(*calls)


def test_after_one_request_without_an_answer_no_other_uses_the_connections_of_that_time() -> None:
    async def scenario() -> None:
        handler = Mortal()
        server = Server(handler)
        async with server.client() as client:
            await burst(server, client, handler, 20)
            assert len(client._pool.idle) == 20
            handler.dead.update(range(1, 21))
            client._patience, patience = 0.2, client._patience
            with pytest.raises(TimeoutError):
                await client.call("GET", "/x")
            client._patience = patience
            assert client._pool.idle == []
            for _ in range(3):
                assert await client.call("GET", "/x") == b"{}"
            assert len(server.writers) == 21

    run(scenario)


def test_a_connection_that_has_answered_since_is_kept() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        handler = Mortal()
        server = Server(handler)
        async with server.client(clock=clock) as client:
            await burst(server, client, handler, 3)
            began = clock.monotonic()
            clock.advance(1)
            await client.call("GET", "/x")
            client._pool.drop_older(began)
            assert len(client._pool.idle) == 1
            await client.call("GET", "/x")
            assert len(server.writers) == 3

    run(scenario)


def test_no_more_idle_connections_than_places() -> None:
    async def scenario() -> None:
        handler = Mortal()
        server = Server(handler)
        async with server.client(connections=3) as client:
            calls = [asyncio.create_task(client.call("GET", "/slow", urgent=True)) for _ in range(10)]
            await until(lambda: len(server.writers) == 10)
            handler.slow.set()
            await asyncio.gather(*calls)
            assert len(client._pool.idle) == 3

    run(scenario)


# --- a peer that vanishes without a word ---


@needs_linux
@pytest.mark.usefixtures("hasty")
def test_a_watch_whose_server_has_vanished_breaks() -> None:
    async def scenario() -> None:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
        server = Server(says(head))
        async with server.client() as client:
            stream = await client.open_stream("/api/v1/pods?watch=1")
            assert await anext(stream.parts) == b"{}"
            deafen(server.writers[0])
            with pytest.raises(HttpError, match="broke"):
                await anext(stream.parts)

    run(scenario)


@needs_linux
@pytest.mark.usefixtures("hasty")
def test_a_request_whose_receipt_never_comes_is_sent_again_on_a_new_connection() -> None:
    async def scenario() -> None:
        handler = Mortal()
        server = Server(handler)
        async with server.client() as client:
            await burst(server, client, handler, 3)
            for writer in server.writers:
                deafen(writer)
            assert await client.call("GET", "/x") == b"{}"  # long before an answer would be late
            assert len(server.writers) == 4
            assert len(client._pool.idle) == 1

    run(scenario)


@needs_linux
def test_every_connection_notices_within_the_time_that_client_go_takes() -> None:
    async def scenario() -> None:
        server = Server(says(GOOD))
        async with server.client() as client:
            await client.call("GET", "/x")
            apart = client.apart(patience=1.0)
            await apart.call("GET", "/x")
            stream = await client.open_stream("/x")
            for connection in (client._pool.idle[0][0], apart._pool.idle[0][0], stream.connection):
                channel: Any = connection
                sock = channel._channel._sock
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                idle, every, count = (
                    sock.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                )
                assert idle + every * count <= 45
                assert 0 < sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
            stream.close()
            await apart.close()

    run(scenario)


# --- several addresses behind one name ---


@contextlib.contextmanager
def hole() -> Any:
    """An address that answers no connection: its queue is full."""
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for filling in (first, second):
            filling.setblocking(False)
            filling.connect_ex(listening.getsockname())
        yield listening.getsockname()


@pytest.mark.parametrize("holes", [1, 2])
def test_an_address_that_does_not_answer_leaves_time_for_the_others(
    holes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        server = Server(says(GOOD))
        async with server.client():
            with hole() as dead:
                addresses = [dead] * holes + [("127.0.0.1", server.port)]
                found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

                async def many(_host: str, _port: int) -> Any:
                    return found

                monkeypatch.setattr(sockets, "_addresses", many)
                monkeypatch.setattr(sockets, "SHORTEST_SHARE", 0.1)
                sock = None
                while sock is None:  # once, but on a machine that stalls
                    with contextlib.suppress(OSError):
                        sock = await connect("api.example", 443, None, None, patience=1.5)
                assert sock.getpeername()[1] == server.port
                sock.close()

    run(scenario)


def test_addresses_that_all_stay_silent_are_named() -> None:
    async def scenario() -> None:
        with hole() as dead:
            client = Client(fixed(f"http://{dead[0]}:{dead[1]}"), patience=0.3)
            with pytest.raises(
                HttpError, match=rf"127\.0\.0\.1:{dead[1]} cannot be reached: .*did not answer within [0-9.]+ s"
            ):
                await client.call("GET", "/version")

    run(scenario)
