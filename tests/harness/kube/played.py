"""A simulated API server that replays lists and streams of events, without a network, for tests of the Reflector."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from harness.kube.network import Asked, client_of

Object = dict[str, Any]


class PlayedServer:
    """One list and one stream after the other; the last stream stays open. `say` adds events to it.

    An event is an object with `type` and `object`, or a line of bytes.
    """

    def __init__(self, lists: list[list[Object]], streams: list[list[Object | bytes]]) -> None:
        self._lists, self._streams = lists, streams
        self._said: asyncio.Queue[Object | bytes] = asyncio.Queue()
        self.watched_from: list[str] = []
        self.lists = 0
        self.client = client_of(self.list, self.watch)
        self.quiet = asyncio.Event()  # all events so far were handled

    def say(self, *events: Object | bytes) -> None:
        self.quiet.clear()
        for event in events:
            self._said.put_nowait(event)

    async def received(self) -> None:
        """Wait until all events were handled."""
        await asyncio.wait_for(self.quiet.wait(), 60)

    async def list(self, _: Asked) -> bytes:
        self.lists += 1
        items = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        return json.dumps({"metadata": {"resourceVersion": "10"}, "items": items}).encode()

    def watch(self, path: str) -> AsyncIterator[bytes]:
        self.watched_from.append(path.partition("resourceVersion=")[2].partition("&")[0])
        return self._parts(self._streams.pop(0) if self._streams else [])

    async def _parts(self, events: Sequence[Object | bytes]) -> AsyncIterator[bytes]:
        for event in events:
            yield _line(event)
        while not self._streams:
            if self._said.empty():
                self.quiet.set()
            yield _line(await self._said.get())


def _line(event: Object | bytes) -> bytes:
    return event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
