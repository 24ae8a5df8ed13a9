"""A proxy for tests that opens CONNECT tunnels, and records the requests."""

from __future__ import annotations

import asyncio
import ssl

from carico.wire.certificates import Pair


class ConnectProxy:
    """Opens tunnels; with a pair it uses TLS itself. `answer` is its response to CONNECT."""

    def __init__(self, pair: Pair | None = None) -> None:
        self._tls: ssl.SSLContext | None = None
        if pair is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(pair.cert, pair.key)
        self._tasks: set[asyncio.Task[None]] = set()
        self.answer = b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n"
        self.heads: list[str] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://me:p%40ss@127.0.0.1:{self.port}"

    async def __aenter__(self) -> ConnectProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.writers.append(writer)
        try:
            await self._tunnel(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side disconnected, or the test has ended
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        writer.write(self.answer)
        if b" 200 " not in self.answer:
            await writer.drain()
            return
        host, _, port = head.split(" ")[1].rpartition(":")
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_carry(reader, up_writer))
                both.create_task(_carry(up_reader, writer))
        finally:
            up_writer.transport.abort()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()
