"""What kube-apiserver says inside a stream that it has already answered with 200."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from carico.kube.client import Stream
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, Resource


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}}


class Server:
    """One list and one stream after the other; the last stream stays open."""

    def __init__(self, lists: list[list[dict[str, Any]]], streams: list[list[dict[str, Any]]]) -> None:
        self._lists, self._streams = lists, streams
        self.watched_from: list[str] = []
        self.quiet = asyncio.Event()

    async def call(self, _method: str, _path: str) -> bytes:
        return json.dumps({"metadata": {"resourceVersion": "10"}, "items": self._lists.pop(0)}).encode()

    async def open_stream(self, path: str) -> Stream:
        self.watched_from.append(path.partition("resourceVersion=")[2])
        return Stream(Closing(), self._parts(self._streams.pop(0)))  # type: ignore[arg-type]

    async def _parts(self, events: list[dict[str, Any]]) -> AsyncIterator[bytes]:
        for event in events:
            yield json.dumps(event).encode() + b"\n"
        if not self._streams:
            self.quiet.set()
            await asyncio.Event().wait()


class Closing:
    def close(self) -> None:
        """Nothing is open."""


def follow(server: Server) -> Reflector[Pod]:
    async def whole() -> Reflector[Pod]:
        pods = Reflector(server, Resource("/api/v1/pods", Pod), lambda _old, _new: None)  # type: ignore[arg-type]
        task = asyncio.create_task(pods.run())
        await asyncio.wait_for(server.quiet.wait(), 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return pods

    return asyncio.run(whole())


def test_a_version_that_is_too_old_is_listed_anew() -> None:
    expired = {
        "type": "ERROR",
        "object": {"kind": "Status", "code": 410, "message": "too old resource version: 10 (99)"},
    }
    server = Server([[pod("a", 1), pod("b", 2)], [pod("b", 2), pod("c", 3)]], [[expired], []])
    pods = follow(server)
    assert set(pods.store) == {"default/b", "default/c"}
    assert pods.lists == 2


def test_a_watch_that_ends_goes_on_from_the_last_bookmark() -> None:
    added = {"type": "ADDED", "object": pod("b", 12)}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "40"}, "spec": {"containers": None}}}
    server = Server([[pod("a", 1)]], [[added, bookmark], []])
    pods = follow(server)
    assert server.watched_from == ["10", "40"]
    assert (pods.lists, set(pods.store)) == (1, {"default/a", "default/b"})
