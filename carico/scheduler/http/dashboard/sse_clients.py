"""Browsers that follow the page's events. One message is encoded once and written to all of them.

The scheduler does not wait for a reader: one that does not receive what was sent is dropped, reconnects automatically
and gets the full state again. The number of readers is limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

MOST = 64  # readers at once
UNSENT = 1 << 20  # bytes, besides the first message, that may be buffered for a reader
PATIENCE = 15.0  # s within which a reader must have emptied its buffer once
RETRY = 2000  # ms until a browser reconnects


class SseClient:
    def __init__(self, writer: asyncio.StreamWriter, first: bytes, now: float) -> None:
        self._transport = writer.transport
        self._allowed = len(first) + UNSENT
        self._took_all_at = now
        self.dropped = asyncio.Event()
        self._transport.write(first)

    def send(self, message: bytes, now: float) -> bool:
        """False if the reader is too slow, or disconnected."""
        unsent = self._transport.get_write_buffer_size()
        if unsent == 0:
            self._took_all_at = now
        if self._transport.is_closing() or unsent > self._allowed or now - self._took_all_at > PATIENCE:
            return False
        self._transport.write(message)
        return True

    def drop(self) -> None:
        self.dropped.set()
        self._transport.abort()


class SseClients:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._readers: set[SseClient] = set()
        self.dropped = 0  # slow readers, in total

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def full(self) -> bool:
        return len(self._readers) >= MOST

    async def follow(self, writer: asyncio.StreamWriter, first: bytes) -> None:
        """Keep a reader until it disconnects or is dropped."""
        reader = SseClient(writer, first, self._now())
        self._readers.add(reader)
        try:
            await reader.dropped.wait()
        finally:
            self._readers.discard(reader)

    def send(self, message: bytes) -> None:
        now = self._now()
        for reader in [reader for reader in self._readers if not reader.send(message, now)]:
            self._readers.discard(reader)
            self.dropped += 1
            reader.drop()


def event(name: str, data: object) -> bytes:
    """One server-sent event. Encoded JSON contains no line breaks, so one data line is enough.

    >>> event("change", {"a": 1})
    b'event: change\\ndata: {"a":1}\\n\\n'
    """
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


def hello() -> bytes:
    return f"retry: {RETRY}\n\n".encode()
