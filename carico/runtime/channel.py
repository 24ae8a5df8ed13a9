"""A gRPC connection to a runtime's unix socket, with readable error messages."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from carico.errors import SourceError, SourceMissing

CALL_TIMEOUT = 10.0  # s for one listing or look-up; a healthy runtime needs milliseconds
OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),  # a listing contains the full specification of every container
    # Each attempt is a new channel: it must not inherit the back-off of the previous one, nor use a proxy.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.enable_http_proxy", 0),
    # gRPC sends the socket's path as authority, which Go's HTTP/2 server rejects.
    ("grpc.default_authority", "localhost"),
]


async def probe(path: Path) -> None:
    """Raises SourceMissing or SourceError, with a readable message, if there is no server at `path`."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        try:
            async with asyncio.timeout(1.0):
                await asyncio.get_running_loop().sock_connect(sock, str(path))
        except FileNotFoundError:
            raise SourceMissing(f"there is no socket {path}") from None
        except PermissionError:
            raise SourceError(f"no permission to use {path}; run as root or join the socket's group") from None
        except ConnectionRefusedError:
            raise SourceError(f"no process listens on {path}; is the runtime running?") from None
        except OSError as error:  # includes TimeoutError
            raise SourceError(f"cannot connect to {path}: {error or 'no answer'}") from None


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[grpc.aio.Channel]:
    await probe(path)
    async with grpc.aio.insecure_channel(f"unix:{path}", options=OPTIONS) as channel:
        yield channel


async def messages(call: grpc.aio.UnaryStreamCall[Any, Any]) -> AsyncGenerator[Any]:
    """The messages of a stream. The call is already in progress before the first message is awaited here."""
    try:
        async for message in call:
            yield message
    finally:
        call.cancel()


def explain(error: grpc.aio.AioRpcError, path: Path) -> str:
    """A one-line message for a failed call."""
    code, details = error.code(), (error.details() or "").strip()
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"{path} serves gRPC but not this API ({details}); choose another --runtime"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{path} did not answer within {CALL_TIMEOUT:.0f} s"
    return f"{path}: {code.name.lower().replace('_', ' ')}: {details}"
