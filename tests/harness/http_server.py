"""The small HTTP server over real sockets, and requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from carico.http.message import Page, Request, text
from carico.http.routes import POST, Access, Route, exposition, health
from carico.http.server import HttpServer
from carico.metrics import new_registry

PATIENCE = 60.0  # s; a stall of the machine is no failure


def echo(request: Request) -> Page:
    return text(HTTPStatus.OK, f"{request.method} {len(request.body)}")


ROUTES = {
    **exposition(new_registry("test")),
    **health(lambda: None, lambda: "no sample yet", lambda: ["[+]ping ok"]),
    "/page": Route(echo),
    "/post": Route(echo, POST, 100),
    "/local": Route(echo, access=Access.LOCAL),
}
Scenario = Callable[[HttpServer, int], Awaitable[None]]


def serving(scenario: Scenario, routes: dict[str, Route] | None = None, address: str = "127.0.0.1:0") -> None:
    async def whole() -> None:
        server = HttpServer(address, ROUTES if routes is None else routes)
        port = await server.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await scenario(server, port)
        finally:
            await server.stop()

    asyncio.run(whole())


async def exchange(port: int, request: bytes, host: str = "127.0.0.1") -> bytes:
    """The whole response, until the server closes or has answered the last request."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        writer.write_eof()
        return await reader.read()
    finally:
        writer.close()


def ask(
    request: bytes, routes: dict[str, Route] | None = None, address: str = "127.0.0.1:0", host: str = "127.0.0.1"
) -> bytes:
    answers: list[bytes] = []

    async def scenario(_: HttpServer, port: int) -> None:
        answers.append(await exchange(port, request, host))

    serving(scenario, routes, address)
    return answers[0]


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def post(body: bytes, *headers: str, kind: str = "application/json") -> bytes:
    lines = ["POST /post HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - the other end of a socket has no event
        await asyncio.sleep(0.01)
