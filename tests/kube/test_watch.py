"""Errors that kube-apiserver sends in a stream that it has answered with 200, and objects that cannot be decoded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from carico.kube import calls
from carico.kube.decode import text_at
from carico.kube.meta import ObjectName
from carico.kube.objects import Pod
from carico.kube.watch import HEALTHY_AFTER, LONGEST_PAUSE, Reflector, WatchedResource
from carico.testing import ManualClock
from harness.kube.network import Asked
from harness.kube.played import PlayedServer

PODS = WatchedResource(calls.FOLLOW_PODS, Pod)
Tree = dict[str, Any]


def pod(name: str, version: int, node: str = "", **spec: Any) -> Tree:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"nodeName": node} | spec}


def unreadable(name: str, version: int, node: str = "") -> Tree:
    return pod(name, version, node, tolerations="none")


def modified(obj: Tree) -> Tree:
    return {"type": "MODIFIED", "object": obj}


class Follower:
    """A reflector and the changes that it delivered."""

    def __init__(self, server: PlayedServer, clock: ManualClock | None = None) -> None:
        self.changes: list[tuple[str, str]] = []  # versions
        self.undecodable: list[tuple[str, str | None]] = []  # UID, and node while it cannot be decoded
        self.counted = 0
        self.reflector = Reflector(
            server.client,
            PODS,
            self._changed,
            on_undecodable=self._undecodable,
            count_undecodable=self._count,
            clock=clock,
        )

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        self.changes.append(
            (old.metadata.resource_version if old else "", new.metadata.resource_version if new else "")
        )

    def _undecodable(self, name: ObjectName, content: Tree | None) -> None:
        self.undecodable.append((name.uid, None if content is None else text_at(content, "spec", "nodeName")))

    def _count(self) -> None:
        self.counted += 1


def follow(server: PlayedServer, then: Callable[[Follower], Awaitable[None]] | None = None) -> Follower:
    async def whole() -> Follower:
        follower = Follower(server)
        task = asyncio.create_task(follower.reflector.run())
        try:
            await server.received()
            if then is not None:
                await then(follower)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return follower

    return asyncio.run(whole())


EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version: 10 (99)"}}


def test_a_version_that_is_too_old_leads_to_a_new_list() -> None:
    server = PlayedServer([[pod("a", 1), pod("b", 2)], [pod("b", 2), pod("c", 3)]], [[EXPIRED], []])
    pods = follow(server).reflector
    assert set(pods.store) == {"default/b", "default/c"}
    assert pods.lists == 2


def test_a_watch_that_ends_goes_on_from_the_last_bookmark() -> None:
    added = {"type": "ADDED", "object": pod("b", 12)}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "40"}, "spec": {"containers": None}}}
    server = PlayedServer([[pod("a", 1)]], [[added, bookmark], []])
    pods = follow(server).reflector
    assert server.watched_from == ["10", "40"]
    assert (pods.lists, set(pods.store)) == (1, {"default/a", "default/b"})


def test_a_version_that_is_always_too_old_is_no_hot_loop() -> None:
    async def scenario() -> int:
        clock = ManualClock()
        server = PlayedServer([[pod("a", 1)]], [[EXPIRED] for _ in range(5000)])
        task = asyncio.create_task(Follower(server, clock).reflector.run())
        await clock.turn(600)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return server.lists

    assert 600 / LONGEST_PAUSE < asyncio.run(scenario()) < 2 * 600 / LONGEST_PAUSE + 12


def test_streams_that_end_at_once_are_no_hot_loop_and_a_long_one_makes_up_for_it() -> None:
    async def scenario() -> tuple[int, int]:
        clock = ManualClock()
        server = PlayedServer([[pod("a", 1)]], [[] for _ in range(5000)])
        follower = Follower(server, clock)
        task = asyncio.create_task(follower.reflector.run())
        await clock.turn(600)
        short = follower.reflector.watches
        server._streams.clear()
        await clock.turn(60)
        await server.received()  # a stream that stays open now
        clock.advance(HEALTHY_AFTER)
        server._streams = [[]]
        server.say(modified(pod("a", 2)))  # and ends after this
        before = follower.reflector.watches
        await clock.turn(0)
        again = follower.reflector.watches - before
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return short, again

    short, again = asyncio.run(scenario())
    assert short < 2 * 600 / LONGEST_PAUSE + 12
    assert again >= 1


def test_an_object_that_cannot_be_decoded_does_not_hide_those_after_it() -> None:
    server = PlayedServer(
        [[unreadable("x", 1, "n"), pod("a", 2)]], [[modified(unreadable("y", 11)), modified(pod("a", 12))], []]
    )
    told = follow(server)
    assert {key: p.metadata.resource_version for key, p in told.reflector.store.items()} == {"default/a": "12"}
    assert told.undecodable == [("uid-x", "n"), ("uid-y", "")]
    assert told.counted == 2
    assert server.watched_from == ["10", "12"]


def test_its_version_is_not_requested_again() -> None:
    server = PlayedServer([[pod("a", 1)]], [[modified(unreadable("x", 44))], []])
    follow(server)
    assert server.watched_from == ["10", "44"]


def test_what_was_known_of_it_stands_until_it_can_be_decoded_again() -> None:
    server = PlayedServer([[pod("a", 1, "n")]], [[]])

    async def then(told: Follower) -> None:
        server.say(modified(unreadable("a", 11, "n")))
        await server.received()
        assert told.reflector.store["default/a"].metadata.resource_version == "1"
        assert told.undecodable == [("uid-a", "n")]
        server.say(modified(pod("a", 12, "n")))
        await server.received()
        assert told.undecodable == [("uid-a", "n"), ("uid-a", None)]

    assert follow(server, then).changes == [("", "1"), ("1", "12")]


@pytest.mark.parametrize("last", [pod("a", 12), unreadable("a", 12)])
def test_its_deletion_is_delivered_whether_it_was_known_or_not(last: Tree) -> None:
    for listed, changes in (([pod("a", 1)], [("", "1"), ("1", "")]), ([], [])):
        server = PlayedServer([listed], [[modified(unreadable("a", 11)), {"type": "DELETED", "object": last}], []])
        told = follow(server)
        assert told.undecodable == [("uid-a", ""), ("uid-a", None)]
        assert [(bool(old), bool(new)) for old, new in told.changes] == [(bool(o), bool(n)) for o, n in changes]
        assert not told.reflector.store


def test_one_that_is_missing_from_a_later_list_is_gone() -> None:
    server = PlayedServer(
        [[unreadable("x", 1), unreadable("y", 2), pod("a", 3)], [unreadable("y", 2)]], [[EXPIRED], []]
    )
    told = follow(server)
    assert told.undecodable == [("uid-x", ""), ("uid-y", ""), ("uid-x", None), ("uid-y", "")]
    assert told.changes == [("", "3"), ("3", "")]


def test_another_object_under_the_name_of_a_known_one_replaces_it_even_if_it_cannot_be_decoded() -> None:
    twin = unreadable("a", 11)
    twin["metadata"]["uid"] = "another"
    told = follow(PlayedServer([[pod("a", 1)]], [[modified(twin)], []]))
    assert told.changes == [("", "1"), ("1", "")]
    assert told.undecodable == [("another", "")]


def test_without_a_readable_uid_it_is_taken_for_the_known_one() -> None:
    broken = unreadable("a", 11)
    broken["metadata"]["uid"] = 7
    told = follow(PlayedServer([[pod("a", 1)]], [[modified(broken)], []]))
    assert told.changes == [("", "1")]
    assert told.undecodable == [("uid-a", "")]


@pytest.mark.parametrize("metadata", [None, {}, "x", {"name": None}, {"name": ["a"], "uid": "u"}, {"name": "a"}])
def test_one_without_a_name_is_only_counted(metadata: Any) -> None:
    nameless = {"metadata": metadata, "spec": {}}
    told = follow(PlayedServer([[nameless, pod("b", 2)]], [[modified(nameless), modified(pod("b", 12))], []]))
    assert told.counted == 2
    assert told.reflector.store["default/b"].metadata.resource_version == "12"


def test_each_one_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    events: list[dict[str, Any] | bytes] = [modified(unreadable(name, 11 + i)) for i, name in enumerate("xyxyxy")]
    told = follow(PlayedServer([[]], [events, []]))
    assert told.counted == 6
    assert caplog.text.count("cannot be decoded") == 2


@pytest.mark.parametrize("line", [b"{\n", b"null\n", b'{"type": "ADDED"}\n', b'{"type": 5, "object": {}}\n', b"\xff\n"])
def test_a_line_that_is_no_event_leads_to_a_list_that_brings_what_it_hid(line: bytes) -> None:
    server = PlayedServer([[pod("a", 1)], [pod("a", 1), pod("hidden", 11)]], [[line], []])
    told = follow(server)
    assert set(told.reflector.store) == {"default/a", "default/hidden"}
    assert told.counted == 1


def test_an_event_of_a_type_that_does_not_exist_yet_is_passed_over() -> None:
    told = follow(PlayedServer([[]], [[{"type": "NEW", "object": pod("a", 11)}, modified(pod("b", 12))], []]))
    assert set(told.reflector.store) == {"default/b"}


def test_a_list_without_a_version_is_not_taken_and_no_hot_loop() -> None:
    class Odd(PlayedServer):
        async def list(self, _: Asked) -> bytes:
            self.lists += 1
            return b'{"metadata": {}, "items": []}'

    async def scenario() -> int:
        clock, server = ManualClock(), Odd([[]], [])
        task = asyncio.create_task(Follower(server, clock).reflector.run())
        await clock.turn(60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return server.lists

    assert asyncio.run(scenario()) < 20


def nested(obj: Tree, levels: int = 5000) -> bytes:
    """Deeper than msgspec goes, as Go's decoder allows; `json` cannot write it either."""
    deep = b'[{"fieldsV1": ' + b'{"f:a":' * levels + b"{}" + b"}" * levels + b"}]"
    obj["metadata"]["managedFields"] = "HERE"
    return json.dumps(obj).encode().replace(b'"HERE"', deep)


class Deep(PlayedServer):
    """The pod in its list is nested too deep."""

    async def list(self, asked: Asked) -> bytes:
        return (await super().list(asked)).replace(b'"DEEP"', nested(pod("deep", 1, "n")))


def test_one_that_is_nested_deeper_than_the_decoder_goes_is_read_like_any_other() -> None:
    event = b'{"type": "MODIFIED", "object": ' + nested(pod("deep", 11, "n")) + b"}\n"
    server = Deep([["DEEP", pod("a", 2)]], [[event, modified(pod("a", 12))], []])  # type: ignore[list-item]
    told = follow(server)
    assert {key: p.metadata.resource_version for key, p in told.reflector.store.items()} == {
        "default/deep": "11",
        "default/a": "12",
    }
    assert told.reflector.store["default/deep"].spec.node_name == "n"
    assert (told.undecodable, server.lists, server.watched_from) == ([], 1, ["10", "12"])
