"""Watches of the embedded API server: nothing is missed, nothing grows, and a client that is too late gets 410."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from carico.embedded.apiserver.server import ApiServer
from carico.errors import ApiError
from carico.kube.client import Client, ResponseStream
from carico.testing import ManualClock, embedded_api_server

PATH = "/api/v1/namespaces/default/configmaps"
Scenario = Callable[[ApiServer, Client, ManualClock], Awaitable[None]]


def play(folder: Path, scenario: Scenario, history: int = 10_000) -> None:
    async def whole() -> None:
        clock = ManualClock()
        async with embedded_api_server(folder, clock, history=history) as (server, client):
            await scenario(server, client, clock)

    asyncio.run(asyncio.wait_for(whole(), 60))


class Watch:
    """A watch whose events can be taken one by one."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream, self._lines, self._rest = stream, list[bytes](), b""

    async def next(self) -> Any:
        while not self._lines:
            part = await anext(self._stream.parts, None)
            if part is None:
                return None
            *self._lines, self._rest = (self._rest + part).split(b"\n")
        return json.loads(self._lines.pop(0))

    async def seen(self, count: int) -> list[tuple[str, str]]:
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    def close(self) -> None:
        self._stream.close()


async def watch(client: Client, query: str) -> Watch:
    return Watch(await client.open_stream(f"{PATH}?watch=1&{query}"))


async def make(client: Client, name: str, **labels: str) -> None:
    body = {"metadata": {"name": name, "labels": labels}, "data": {"a": "b" * 100}}
    await client.call("POST", PATH, json.dumps(body).encode())


async def label(client: Client, name: str, **labels: str | None) -> None:
    body = json.dumps({"metadata": {"labels": labels}}).encode()
    await client.call("PATCH", f"{PATH}/{name}", body, "application/merge-patch+json")


async def version(client: Client) -> str:
    return str(json.loads(await client.call("GET", PATH))["metadata"]["resourceVersion"])


def test_a_watch_goes_on_where_the_one_before_ended(tmp_path: Path) -> None:
    async def scenario(_server: ApiServer, client: Client, _clock: ManualClock) -> None:
        start = await version(client)
        await make(client, "a")
        first = await watch(client, f"resourceVersion={start}")
        event = await first.next()
        first.close()
        await make(client, "b")
        await client.call("DELETE", f"{PATH}/a")
        second = await watch(client, f"resourceVersion={event['object']['metadata']['resourceVersion']}")
        assert await second.seen(2) == [("ADDED", "b"), ("DELETED", "a")]
        second.close()

    play(tmp_path, scenario)


def test_what_comes_into_sight_is_added_and_what_leaves_it_is_deleted(tmp_path: Path) -> None:
    async def scenario(_server: ApiServer, client: Client, _clock: ManualClock) -> None:
        await make(client, "a")
        seeing = await watch(client, f"labelSelector=show&resourceVersion={await version(client)}")
        await label(client, "a", show="1")
        await label(client, "a", more="1")
        await label(client, "a", show=None)
        await label(client, "a", more="2")
        await make(client, "end", show="1")
        events = [await seeing.next() for _ in range(4)]
        assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
        gone = events[2]["object"]["metadata"]
        assert gone["labels"] == {"show": "1", "more": "1"}  # as it was last seen …
        assert int(gone["resourceVersion"]) > int(events[1]["object"]["metadata"]["resourceVersion"])  # … but later
        seeing.close()

    play(tmp_path, scenario)


def test_without_a_version_the_present_comes_first(tmp_path: Path) -> None:
    async def scenario(server: ApiServer, client: Client, _clock: ManualClock) -> None:
        await make(client, "a")
        fresh = await watch(client, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1")
        assert await fresh.seen(1) == [("ADDED", "a")]
        end = await fresh.next()
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert end["object"]["metadata"]["resourceVersion"] == str(server.verbs.store.version)
        await make(client, "b")
        assert await fresh.seen(1) == [("ADDED", "b")]
        fresh.close()

    play(tmp_path, scenario)


def test_a_version_that_is_forgotten_is_gone(tmp_path: Path) -> None:
    async def scenario(server: ApiServer, client: Client, _clock: ManualClock) -> None:
        start = await version(client)
        for i in range(20):
            await make(client, f"a{i}")
        for old in (start, "1", str(server.verbs.store.version + 1)):  # the last is of another life of the server
            with pytest.raises(ApiError, match="410 Expired: too old resource version"):
                await watch(client, f"resourceVersion={old}")
        newest = await watch(client, f"resourceVersion={await version(client)}")
        newest.close()

    play(tmp_path, scenario, history=5)


def test_quiet_watches_get_bookmarks_and_end_in_time(tmp_path: Path) -> None:
    async def scenario(server: ApiServer, client: Client, clock: ManualClock) -> None:
        query = f"allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion={await version(client)}"
        quiet = await watch(client, query)
        await client.call("POST", "/api/v1/namespaces", b'{"metadata": {"name": "other"}}')
        await clock.turn(61)
        mark = await quiet.next()
        assert (mark["type"], mark["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
        assert mark["object"]["metadata"]["resourceVersion"] == str(server.verbs.store.version)
        await clock.turn(30)
        assert await quiet.next() is None

    play(tmp_path, scenario)


def test_a_client_that_reads_too_slowly_gets_410_and_costs_nothing(tmp_path: Path) -> None:
    """The client does not read; the server ends the watch instead of buffering without limit."""

    async def scenario(server: ApiServer, client: Client, _clock: ManualClock) -> None:
        where = urlsplit(server.address)
        reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=1024)
        path = f"{PATH}?watch=1&resourceVersion={await version(client)}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
        await reader.readline()  # the watch has begun; more than twice `limit` is not read unless requested
        big = json.dumps({"metadata": {"name": "big"}, "data": {"a": "x" * 500_000}}).encode()
        await client.call("POST", PATH, big)
        for i in range(60):
            await label(client, "big", n=str(i))
        [waiting] = [c for c in server._connections if c._stream is not None]
        assert waiting._transport.get_write_buffer_size() < 8 << 20  # of 30 MB
        last = (await reader.read()).decode().split("\r\n")[-4]  # before the closing chunk
        event = json.loads(last)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        writer.close()

    play(tmp_path, scenario, history=10)


def test_pages_of_a_list_are_of_one_moment(tmp_path: Path) -> None:
    async def scenario(_server: ApiServer, client: Client, _clock: ManualClock) -> None:
        for name in "abcd":
            await make(client, name)
        first = json.loads(await client.call("GET", f"{PATH}?limit=2"))
        await client.call("DELETE", f"{PATH}/c")
        await make(client, "bb")
        second = json.loads(await client.call("GET", f"{PATH}?limit=2&continue={first['metadata']['continue']}"))
        assert [item["metadata"]["name"] for item in first["items"] + second["items"]] == list("abcd")
        assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
        with pytest.raises(ApiError, match="410 Expired"):
            await client.call("GET", f"{PATH}?continue=none-such")

    play(tmp_path, scenario)
