"""A server that closes connections without a response: how often one request reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from carico.errors import HttpError
from carico.kube.client import Client
from carico.kube.credentials import fixed

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
IDLE = 16


class Server:
    """Real sockets. `closing`: a connection is closed when a request has come, after `first` was sent."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.closing: set[int] = set()  # numbers of connections, from 1 on; 0: all of them
        self.first = b""
        self.connections = 0
        self.ended = 0
        self.open = asyncio.Event()  # responses are sent

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                self.lines.append(head.split(b" HTTP")[0])
                if self.closing & {0, number}:
                    writer.write(self.first)
                    break
                await self.open.wait()
                writer.write(GOOD)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.ended += 1


@asynccontextmanager
async def idle_connections() -> AsyncIterator[tuple[Server, Client]]:
    """A client with that many idle connections; all requests so far are forgotten."""
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    client = Client(fixed(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"))
    calls = [asyncio.create_task(client.call("GET", "/x")) for _ in range(IDLE)]
    while len(server.lines) < IDLE:  # noqa: ASYNC110 - the other end of a socket has no event
        await asyncio.sleep(0.01)
    server.open.set()
    await asyncio.gather(*calls)
    server.lines.clear()
    try:
        yield server, client
    finally:
        await client.close()
        while server.ended < server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        listener.close()
        await listener.wait_closed()


def test_a_request_is_sent_at_most_twice_while_every_answer_is_lost() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), idle_connections() as (server, client):
            server.closing = {0}
            with pytest.raises(HttpError):
                await client.call("POST", "/eviction", b"{}")
            assert server.lines == [b"POST /eviction"] * 2

    asyncio.run(scenario())


def test_the_second_one_goes_over_a_new_connection() -> None:
    """After a restart of the API server no idle connection is of use, and the request must not fail for that."""

    async def scenario() -> None:
        async with asyncio.timeout(60), idle_connections() as (server, client):
            server.closing = set(range(1, IDLE + 1))
            assert await client.call("POST", "/eviction", b"{}") == b"{}"
            assert server.lines == [b"POST /eviction"] * 2
            assert server.connections == IDLE + 1

    asyncio.run(scenario())


def test_a_request_is_not_sent_again_after_a_part_of_its_response() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), idle_connections() as (server, client):
            server.closing, server.first = {0}, GOOD[:10]
            with pytest.raises(HttpError):
                await client.call("POST", "/eviction", b"{}")
            assert server.lines == [b"POST /eviction"]

    asyncio.run(scenario())
