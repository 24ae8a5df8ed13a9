"""The order of the queue, its pauses, and what brings a waiting pod back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduling import make_node, make_pod

from carico.scheduler.changes import NODE_CAPACITY, Action, Change, Interest
from carico.scheduler.framework import unschedulable
from carico.scheduler.plugins.priority_sort import PrioritySort
from carico.scheduler.queue import Gate, Queue, Queued, Refusal
from carico.scheduler.template import PodInfo

BY_NODE = Refusal(frozenset({"X"}), (Interest("Node", Action.ADD),))


def queue(**changes: Any) -> Queue:
    return Queue(PrioritySort().sort_key, changes.pop("gate", lambda _: None), **changes)


def info(name: str = "", **changes: Any) -> PodInfo:
    return PodInfo(make_pod(name, **changes))


def popped(waiting: Queue, now: float) -> Queued:
    queued = waiting.pop(now)
    assert queued is not None
    return queued


def names(waiting: Queue, now: float = 0.0) -> list[str]:
    found = []
    while (queued := waiting.pop(now)) is not None:
        found.append(queued.info.pod.name)
    return found


def test_priority_then_time() -> None:
    waiting = queue()
    for at, (name, priority) in enumerate([("a", 0), ("b", 10), ("c", 10), ("d", -1)]):
        waiting.add(info(name, priority=priority), now=float(at))
    assert names(waiting, 9) == ["b", "c", "a", "d"]


@given(st.lists(st.tuples(st.integers(-5, 5), st.floats(0, 100)), max_size=40))
def test_order_is_that_of_a_stable_sort(pods: list[tuple[int, float]]) -> None:
    waiting = queue()
    for i, (priority, at) in enumerate(pods):
        waiting.add(info(f"p{i}", priority=priority), at)
    want = sorted(range(len(pods)), key=lambda i: (-pods[i][0], pods[i][1], i))
    assert names(waiting) == [f"p{i}" for i in want]


def test_pauses_double_up_to_ten_seconds() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    now, pauses = 0.0, []
    for _ in range(6):
        queued = popped(waiting, now)
        waiting.fail(queued, Refusal(), now, blindly=True)
        assert waiting.pop(now) is None
        pauses.append(waiting.next_due() - now)
        now = waiting.next_due()
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_a_pod_waits_for_a_change_that_could_help_and_for_no_other() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    waiting.fail(popped(waiting, 0), BY_NODE, now=0)
    assert waiting.counts()["waiting"] == 1
    assert waiting.pop(100) is None  # not blindly
    assert waiting.on_change(Change("Service", Action.ADD, None, None), now=100) == 0
    assert waiting.on_change(Change("Node", Action.ADD, None, make_node("n")), now=100) == 1
    assert popped(waiting, 100).info.pod.name == "a"


def test_help_during_the_pause_waits_while_others_want_a_turn() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    waiting.fail(popped(waiting, 0), BY_NODE, now=0)
    waiting.on_change(Change("Node", Action.ADD, None, make_node("n")), now=0.25)
    waiting.add(info("late", priority=-1), now=0.3)
    assert waiting.counts()["backoff"] == 1
    assert names(waiting, 0.5) == ["late", "a"], "the pause is for the sake of others: without them it ends"


def test_help_during_the_pause_of_an_error_waits_for_its_end() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    waiting.fail(popped(waiting, 0), Refusal(), now=0, blindly=True)
    waiting.on_change(Change("Node", Action.ADD, None, make_node("n")), now=0.25)
    assert not waiting.ready
    assert waiting.pop(0.9) is None
    assert waiting.next_due() == 1.0
    assert popped(waiting, 1.0).info.pod.name == "a"


def test_a_hint_has_the_last_word() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    hint = Interest("Node", Action.ADD, lambda _pod, _old, new: new.name == "right")
    waiting.fail(popped(waiting, 0), Refusal(frozenset({"X"}), (hint,)), now=0)
    assert waiting.on_change(Change("Node", Action.ADD, None, make_node("wrong")), now=9) == 0
    assert waiting.on_change(Change("Node", Action.ADD, None, make_node("right")), now=9) == 1


def test_what_nothing_can_help_stays_until_the_flush() -> None:
    waiting = queue(flush_after=300)
    waiting.add(info("a"), now=0)
    waiting.fail(popped(waiting, 0), Refusal(frozenset({"Unsupported"})), now=0)
    assert waiting.pop(299) is None
    assert waiting.flush(now=299) == 0
    assert waiting.flush(now=301) == 1
    assert popped(waiting, 301).after_flush


def test_a_gated_pod_enters_when_its_gate_opens() -> None:
    shut = {"a"}
    gate = Gate("Gates", unschedulable("shut"), (Interest("Pod", Action.POD_GATES),))
    waiting = queue(gate=lambda pod: gate if pod.pod.name in shut else None)
    waiting.add(info("a"), now=0)
    assert waiting.counts()["gated"] == 1
    assert waiting.pop(0) is None
    shut.clear()
    waiting.update(info("a"), Change("Pod", Action.POD_GATES, None, None), now=1)
    assert popped(waiting, 1).attempts == 1


def hungry(need: float = 1.0, rows: tuple[bool, ...] = (True, True)) -> Refusal:
    return Refusal(frozenset({"Capacity"}), (Interest(NODE_CAPACITY, Action.CAPACITY),), np.array(rows), need)


def starve(waiting: Queue, *pods: tuple[PodInfo, Refusal]) -> None:
    wants = {}
    for pod, refusal in pods:
        waiting.add(pod, now=0)
        wants[pod.uid] = refusal
    while (queued := waiting.pop(0)) is not None:
        waiting.fail(queued, wants[queued.uid], now=0)


def test_a_report_wakes_no_more_pods_than_it_has_room_for_best_first() -> None:
    waiting = queue()
    starve(waiting, *[(info(f"p{i}", priority=i), hungry()) for i in range(5)])
    assert waiting.hungry == 5
    assert waiting.wake_for_capacity(row=0, before=0.4, after=2.7, room=2, now=50) == 2
    assert names(waiting, 50) == ["p4", "p3"]


def test_a_report_wakes_only_pods_that_the_node_could_take() -> None:
    waiting = queue()
    starve(waiting, (info("other", priority=9), hungry(rows=(False, True))), (info("big"), hungry(need=3.0)),
           (info("fits"), hungry()))  # fmt: skip
    assert waiting.wake_for_capacity(row=0, before=0.4, after=1.2, room=1, now=50) == 1
    assert names(waiting, 50) == ["fits"]
    assert waiting.wake_for_capacity(row=0, before=1.2, after=3.4, room=3, now=50) == 1
    assert names(waiting, 50) == ["big"]


def test_a_deleted_pod_is_gone_from_everywhere() -> None:
    waiting = queue()
    starve(waiting, (info("a"), hungry()), (info("b"), BY_NODE))
    waiting.add(info("c"), now=0)
    for name in "abc":
        waiting.delete(f"uid-{name}")
    assert len(waiting) == 0
    assert waiting.wake_for_capacity(0, -1, 5, 5, now=50) == 0
    assert waiting.pop(50) is None
    assert set(waiting.counts().values()) == {0}


def test_a_pod_deleted_in_flight_does_not_come_back() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    queued = popped(waiting, 0)
    waiting.delete("uid-a")
    waiting.fail(queued, Refusal(), now=0, blindly=True)
    assert len(waiting) == 0


def test_memory_is_bounded_however_often_a_pod_fails() -> None:
    waiting = queue(first_backoff=0, last_backoff=0)
    waiting.add(info("a"), now=0)
    for _ in range(1000):
        waiting.fail(popped(waiting, 0), hungry(), now=0)
        waiting.activate_all()
    assert len(waiting._hungry) < 100


@pytest.mark.parametrize("place", ["active", "waiting", "backoff"])
def test_an_update_replaces_the_pod_where_it_is(place: str) -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    if place != "active":
        waiting.fail(popped(waiting, 0), BY_NODE if place == "waiting" else Refusal(), now=0)
    waiting.update(info("a", labels={"new": "1"}), None, now=0)
    queued = waiting.get("uid-a")
    assert queued is not None
    assert queued.place == place
    assert queued.info.pod.metadata.labels == {"new": "1"}
