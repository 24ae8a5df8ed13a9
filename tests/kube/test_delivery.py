"""Handlers that raise: the watch goes on, and they get the change again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from carico.kube import calls
from carico.kube.delivery import AT_ONCE, FIRST_PAUSE, LONGEST_PAUSE, Delivery, Firewall
from carico.kube.meta import NamedObject, ObjectName
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, WatchedResource
from carico.testing import ManualClock
from harness.kube.played import PlayedServer


def obj(uid: str, version: int) -> NamedObject:
    return NamedObject(ObjectName("n", "", uid, str(version)))


class Handler:
    """Takes changes while `works`; `taken` has what it took, as versions."""

    def __init__(self, clock: ManualClock) -> None:
        self.works: Callable[[], bool] = lambda: True
        self.taken: list[tuple[str, str]] = []
        self.asked = 0
        self.errors = 0
        self.delivery: Delivery[NamedObject] = Delivery(self, Firewall("it broke", self._count), clock)

    def _count(self) -> None:
        self.errors += 1

    def __call__(self, old: NamedObject | None, new: NamedObject | None) -> None:
        self.asked += 1
        if not self.works():
            raise RuntimeError("a bug in the handler")
        self.taken.append((f"{old.uid}{old.metadata.resource_version}" if old else "",
                           f"{new.uid}{new.metadata.resource_version}" if new else ""))  # fmt: skip


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def handler(clock: ManualClock) -> Handler:
    return Handler(clock)


def later(clock: ManualClock, seconds: float) -> None:
    asyncio.run(clock.turn(seconds))


def test_what_a_handler_did_not_take_is_delivered_again_after_a_pause(handler: Handler, clock: ManualClock) -> None:
    handler.works = lambda: False
    handler.delivery.deliver("n", None, obj("a", 1))
    handler.works = lambda: True
    later(clock, FIRST_PAUSE / 2)
    assert handler.taken == []
    later(clock, FIRST_PAUSE)
    assert handler.taken == [("", "a1")]
    assert handler.errors == 1


def test_the_next_change_starts_from_what_was_last_taken(handler: Handler, clock: ManualClock) -> None:
    handler.delivery.deliver("n", None, obj("a", 1))
    handler.works = lambda: False
    handler.delivery.deliver("n", obj("a", 1), obj("a", 2))
    handler.works = lambda: True
    handler.delivery.deliver("n", obj("a", 2), obj("a", 3))
    later(clock, 10 * LONGEST_PAUSE)
    assert handler.taken == [("", "a1"), ("a1", "a3")]


def test_a_deletion_is_delivered_even_of_what_was_never_taken(handler: Handler, clock: ManualClock) -> None:
    handler.works = lambda: False  # which may have done half of its work
    handler.delivery.deliver("n", None, obj("a", 1))
    handler.works = lambda: True
    handler.delivery.deliver("n", obj("a", 1), None)
    later(clock, 10 * LONGEST_PAUSE)
    assert handler.taken == [("a1", "")]


def test_a_deletion_that_was_not_taken_is_delivered_again(handler: Handler, clock: ManualClock) -> None:
    handler.delivery.deliver("n", None, obj("a", 1))
    handler.works = lambda: False
    handler.delivery.deliver("n", obj("a", 1), None)
    handler.works = lambda: True
    later(clock, FIRST_PAUSE)
    assert handler.taken == [("", "a1"), ("a1", "")]


def test_deleted_and_made_again_are_two_changes_also_when_delivered_late(handler: Handler, clock: ManualClock) -> None:
    handler.delivery.deliver("n", None, obj("a", 1))
    handler.works = lambda: False
    handler.delivery.deliver("n", obj("a", 1), obj("b", 2))
    handler.works = lambda: True
    later(clock, FIRST_PAUSE)
    assert handler.taken == [("", "a1"), ("a1", ""), ("", "b2")]


def test_a_handler_that_always_raises_is_called_ever_more_rarely(handler: Handler, clock: ManualClock) -> None:
    handler.works = lambda: False
    handler.delivery.deliver("n", None, obj("a", 1))
    later(clock, 3600)
    assert 3600 / LONGEST_PAUSE < handler.asked < 3600 / LONGEST_PAUSE + 10
    assert handler.errors == handler.asked


def test_many_that_are_owed_do_not_hold_up_everything_else(handler: Handler, clock: ManualClock) -> None:
    handler.works = lambda: False
    for i in range(1000):
        handler.delivery.deliver(f"n{i}", None, obj(f"a{i}", 1))
    handler.works = lambda: True
    later(clock, FIRST_PAUSE)
    assert len(handler.taken) == AT_ONCE
    later(clock, 10 * FIRST_PAUSE)
    assert len(handler.taken) == 1000


def test_nothing_is_delivered_after_the_end(handler: Handler, clock: ManualClock) -> None:
    handler.works = lambda: False
    handler.delivery.deliver("n", None, obj("a", 1))
    handler.works = lambda: True
    handler.delivery.stop()
    later(clock, 3600)
    assert handler.taken == []


def test_one_error_of_a_place_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[int] = []
    firewall = Firewall("a plugin broke", lambda: counted.append(1))

    def here() -> None:
        raise ValueError("here")

    def there() -> None:
        raise ValueError("there")

    for place in (here, there, here, there):
        try:
            place()
        except ValueError as error:
            firewall.caught(error)
    assert len(counted) == 4
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "a plugin broke: here",
        "a plugin broke: there",
    ]
    assert "in here" in caplog.text  # with its traceback


def test_a_watch_outlives_its_handler() -> None:
    def pod(name: str, version: int) -> dict[str, object]:
        return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}

    seen: list[str] = []
    errors: list[int] = []

    def changed(_: Pod | None, new: Pod | None) -> None:
        assert new is not None
        if new.name == "bad":
            raise RuntimeError("a bug in the handler")
        seen.append(f"{new.name}{new.metadata.resource_version}")

    async def scenario() -> None:
        events = [{"type": "ADDED", "object": pod("bad", 11)}, {"type": "MODIFIED", "object": pod("good", 12)}]
        server = PlayedServer([[pod("bad", 1), pod("good", 2)]], [[*events], []])
        pods = Reflector(
            server.client,
            WatchedResource(calls.FOLLOW_PODS, Pod),
            changed,
            count_handler_error=lambda: errors.append(1),
        )
        task = asyncio.create_task(pods.run())
        await server.received()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (server.lists, server.watched_from) == (1, ["10", "12"])

    asyncio.run(scenario())
    assert seen == ["good2", "good12"]
    assert len(errors) == 2
