"""A connection to the API server, through a proxy if there is one.

The client requests a tunnel (CONNECT) in which TLS runs between it and the API server: the proxy sees neither tokens
nor objects. Python's sockets cannot run TLS inside TLS; for a proxy that itself uses TLS, two tasks copy between the
tunnel and a socket pair.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
from functools import lru_cache

from carico.errors import HttpError
from carico.kube.http import parse_head
from carico.kube.socket import connect, notice_dead_peers, secure
from carico.kube.url import Url

HEAD_LIMIT = 64 << 10  # bytes of a proxy's response
PIECE = 64 << 10  # bytes copied at once

_carriers: set[asyncio.Task[None]] = set()  # the event loop holds only weak references to tasks


async def open_through(
    proxy: Url | None,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    name: str | None,
    session: ssl.SSLSession | None,
    patience: float,
) -> socket.socket:
    """Like `connect` of socket.py. An OSError describes what is wrong with the proxy."""
    if proxy is None:
        return await connect(host, port, tls, name, session, patience)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    end = asyncio.get_running_loop().time() + patience
    try:
        async with asyncio.timeout_at(end):
            raw = await _reach(proxy, target if tls is not None else None, tls, patience)
    except (OSError, HttpError, EOFError, asyncio.LimitOverrunError) as error:
        raise OSError(f"the proxy {proxy} opens no connection: {str(error) or 'no answer'}") from error
    try:
        async with asyncio.timeout_at(end):
            return raw if tls is None else await secure(raw, tls, name, session)
    except BaseException:
        raw.close()
        raise


async def _reach(proxy: Url, target: str | None, tls: ssl.SSLContext | None, patience: float) -> socket.socket:
    """A socket to the proxy or, with a `target`, through it."""
    if proxy.scheme == "https":
        return await _through_tls(proxy, target, tls)
    return await _through(proxy, target, patience)


def _question(proxy: Url, target: str) -> bytes:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    lines += [f"{name}: {value}" for name, value in credentials(proxy)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def credentials(proxy: Url | None) -> tuple[tuple[str, str], ...]:
    """The header that authenticates the client to a proxy."""
    if proxy is None or proxy.userinfo is None:
        return ()
    userinfo = proxy.userinfo if ":" in proxy.userinfo else f"{proxy.userinfo}:"
    return (("Proxy-Authorization", f"Basic {base64.b64encode(userinfo.encode()).decode()}"),)


def _check(head: bytes) -> None:
    if not 200 <= parse_head(head).status < 300:
        first = head.split(b"\r\n", 1)[0].decode("latin-1")
        raise HttpError(f"it answered {first.partition(' ')[2]}")


async def _through(proxy: Url, target: str | None, patience: float) -> socket.socket:
    raw = await connect(proxy.host, proxy.port, None, None, patience=patience)
    try:
        if target is not None:
            await asyncio.get_running_loop().sock_sendall(raw, _question(proxy, target))
            _check(await _head(raw))
        return raw
    except BaseException:
        raw.close()
        raise


async def _head(raw: socket.socket) -> bytes:
    """The head of the proxy's response; nothing follows it before the client sends."""
    head, end = b"", b""
    while not end:
        data = await asyncio.get_running_loop().sock_recv(raw, PIECE)
        head, end, _ = (head + data).partition(b"\r\n\r\n")
        if not data or len(head) > HEAD_LIMIT:
            raise HttpError("it gave no whole answer")
    return head


async def _through_tls(proxy: Url, target: str | None, tls: ssl.SSLContext | None) -> socket.socket:
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port, ssl=_context(tls), limit=HEAD_LIMIT)
    try:
        notice_dead_peers(writer.get_extra_info("socket"))
        if target is not None:
            writer.write(_question(proxy, target))
            _check((await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n"))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        inner = await asyncio.open_connection(sock=theirs)
    except BaseException:
        writer.transport.abort()
        raise
    carrier = asyncio.get_running_loop().create_task(_carry(inner, (reader, writer)))
    _carriers.add(carrier)
    carrier.add_done_callback(_carriers.discard)
    return ours


@lru_cache(maxsize=4)  # making one reads all certificates of the system
def _context(tls: ssl.SSLContext | None) -> ssl.SSLContext:
    """For a proxy: its certificate may be signed by a CA of the system or, as in kubectl, by that of the cluster."""
    context = ssl.create_default_context()
    if tls is not None and (authority := tls.get_ca_certs(binary_form=True)):
        context.load_verify_locations(cadata=b"".join(authority))
        context.verify_flags = tls.verify_flags
    return context


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _carry(inner: Ends, outer: Ends) -> None:
    """Copies in both directions, until one of the ends is closed."""
    ways = [asyncio.create_task(_carry_one(inner[0], outer[1])), asyncio.create_task(_carry_one(outer[0], inner[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        inner[1].close()  # the last data is still delivered
        await inner[1].wait_closed()
    except OSError:
        pass
    finally:
        for way in ways:
            way.cancel()
        inner[1].transport.abort()
        outer[1].transport.abort()
        await asyncio.gather(*ways, return_exceptions=True)


async def _carry_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
