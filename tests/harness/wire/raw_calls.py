"""Calls whose messages are bytes: gRPC needs no serializers for them, its type stubs demand some."""

from __future__ import annotations

from typing import Any

from grpc import aio

Headers = tuple[tuple[str, str], ...]


def stream(channel: aio.Channel, method: str, metadata: Headers = ()) -> Any:
    """An open stream in both directions."""
    untyped: Any = channel
    return untyped.stream_stream(method)(metadata=metadata)


async def once(channel: aio.Channel, method: str, message: bytes) -> bytes:
    """The answer to one message."""
    untyped: Any = channel
    answer: bytes = await untyped.unary_unary(method)(message)
    return answer
