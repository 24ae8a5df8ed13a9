"""The sealed API server on the host's loopback.

A socket belongs to the network namespace in which it was created. So the owner listens on the host's loopback and
passes the socket on; this process, inside, accepts connections and connects to the API server there. No packet passes
between the networks.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

CHUNK = 256 * 1024  # bytes


async def main(listener: socket.socket, port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inside_reader, inside_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, inside_writer), _copy(inside_reader, writer))

    async with await asyncio.start_server(serve, sock=listener) as server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends, then end the other."""
    with contextlib.suppress(OSError):
        while content := await reader.read(CHUNK):
            writer.write(content)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
        await writer.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
