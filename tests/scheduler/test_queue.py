"""The order of the queue, its pauses, and what brings a waiting pod back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.scheduler.cache.template import PodInfo, PodTemplates
from carico.scheduler.framework.cluster_events import Action, ClusterEvent, EventInterest
from carico.scheduler.framework.contract import unschedulable
from carico.scheduler.framework.needs import Need
from carico.scheduler.plugins.priority_sort import PrioritySort
from carico.scheduler.queue.entries import Gate, Queued
from carico.scheduler.queue.scheduling_queue import Queue
from carico.scheduler.queue.unschedulable import Diagnosis, Scope
from carico.testing import make_node, make_pod

TEMPLATES = PodTemplates()


BY_NODE = Diagnosis(frozenset({"X"}), (EventInterest("Node", Action.ADD),))


def queue(**changes: Any) -> Queue:
    return Queue(PrioritySort().sort_key, changes.pop("gate", lambda _: None), **changes)


def info(name: str = "", **changes: Any) -> PodInfo:
    return TEMPLATES.info(make_pod(name, **changes))


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
        waiting.fail(queued, Diagnosis(), now, blindly=True)
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
    assert waiting.on_change(ClusterEvent("Service", Action.ADD, None, None), now=100) == 0
    assert waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("n")), now=100) == 1
    assert popped(waiting, 100).info.pod.name == "a"


def test_help_during_the_pause_waits_while_others_want_a_turn() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    waiting.fail(popped(waiting, 0), BY_NODE, now=0)
    waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("n")), now=0.25)
    waiting.add(info("late", priority=-1), now=0.3)
    assert waiting.counts()["backoff"] == 1
    assert names(waiting, 0.5) == ["late", "a"], "the pause is for the sake of others: without them it ends"


def test_help_during_the_pause_of_an_error_waits_for_its_end() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    waiting.fail(popped(waiting, 0), Diagnosis(), now=0, blindly=True)
    waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("n")), now=0.25)
    assert not waiting.ready
    assert waiting.pop(0.9) is None
    assert waiting.next_due() == 1.0
    assert popped(waiting, 1.0).info.pod.name == "a"


def test_the_hint_decides() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    hint = EventInterest("Node", Action.ADD, lambda _pod, _old, new: new.name == "right")
    waiting.fail(popped(waiting, 0), Diagnosis(frozenset({"X"}), (hint,)), now=0)
    assert waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("wrong")), now=9) == 0
    assert waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("right")), now=9) == 1


def test_a_pod_that_no_event_can_help_waits_for_the_flush() -> None:
    waiting = queue(flush_after=300)
    waiting.add(info("a"), now=0)
    waiting.fail(popped(waiting, 0), Diagnosis(frozenset({"Unsupported"})), now=0)
    assert waiting.pop(299) is None
    assert waiting.flush(now=299) == 0
    assert waiting.flush(now=301) == 1
    assert popped(waiting, 301).after_flush


def test_a_gated_pod_enters_when_its_gate_opens() -> None:
    shut = {"a"}
    gate = Gate("Gates", unschedulable("shut"), (EventInterest("Pod", Action.POD_GATES),))
    waiting = queue(gate=lambda pod: gate if pod.pod.name in shut else None)
    waiting.add(info("a"), now=0)
    assert waiting.counts()["gated"] == 1
    assert waiting.pop(0) is None
    shut.clear()
    waiting.update(info("a"), ClusterEvent("Pod", Action.POD_GATES, None, None), now=1)
    assert popped(waiting, 1).attempts == 1


class Shelf:
    """Amounts per row, and a queue of pods that need them."""

    def __init__(self, *amounts: float, **changes: Any) -> None:
        self.amounts = list(amounts)
        self.queue = queue(supplies={"shelf": lambda _, row: self.amounts[row]}, **changes)

    def refuse(self, name: str, need: float = 1.0, *, rows: bytes | None = None, **changes: Any) -> None:
        """A pod that found no node for want of `need`; it can reach the rows whose bits are set."""
        needs = (Need("shelf", "pieces", need, need),)
        self.queue.add(info(name, **changes), now=0)
        refusal = Diagnosis(frozenset({"Shelf"}), (), needs, rows, scope=Scope.TEMPLATE)
        self.queue.fail(popped(self.queue, 0), refusal, now=0)

    def fill(self, row: int, amount: float, now: float = 50.0) -> list[str]:
        """The pods that are woken; the attempt fails for all of them."""
        self.amounts[row] = amount
        self.queue.on_row(row, now)
        return names(self.queue, now)


def test_a_row_wakes_as_many_pods_as_it_can_hold_best_first() -> None:
    shelf = Shelf(0.4)
    for i in range(5):
        shelf.refuse(f"p{i}", priority=i)
    assert shelf.queue.refused_by({"Shelf"}) == 5
    assert shelf.fill(0, 2.7) == ["p4", "p3"]


def test_a_row_wakes_only_pods_that_it_could_take() -> None:
    shelf = Shelf(0.4)
    shelf.refuse("elsewhere", priority=9, rows=b"\x02")
    shelf.refuse("big", need=3.0)
    shelf.refuse("fits")
    assert shelf.fill(0, 1.2) == ["fits"]


@pytest.mark.parametrize("need", [0.25, 0.5])
def test_less_than_one_pod_is_room_too(need: float) -> None:
    shelf = Shelf(0.05)
    shelf.refuse("small", need=need)
    assert shelf.fill(0, 0.9) == ["small"]


def test_an_unused_wake_up_passes_to_the_next_pod() -> None:
    shelf = Shelf(0.5)
    shelf.refuse("first")
    shelf.refuse("second")
    shelf.amounts[0] = 1.2
    shelf.queue.on_row(0, now=50)
    shelf.queue.on_row(0, now=51)
    assert shelf.queue.counts()["active"] == 1, "the room is spoken for"
    shelf.queue.delete("uid-first", now=52)
    assert popped(shelf.queue, 52).info.pod.name == "second"


def test_a_pod_that_went_elsewhere_leaves_the_room_to_the_next() -> None:
    shelf = Shelf(0.5)
    shelf.refuse("first")
    shelf.refuse("second")
    shelf.amounts[0] = 1.2
    shelf.queue.on_row(0, now=50)
    woken = popped(shelf.queue, 50)
    shelf.queue.placed(woken.uid, now=50)
    assert popped(shelf.queue, 50).info.pod.name == "second"


def test_filters_that_refuse_what_the_amounts_allow_do_not_make_it_spin() -> None:
    shelf = Shelf(0.0)
    shelf.refuse("p")
    shelf.amounts[0] = 5.0
    shelf.queue.on_row(0, now=50)
    for _ in range(3):
        woken = shelf.queue.pop(50)
        if woken is None:
            break
        shelf.queue.fail(woken, woken.refusal, now=50)
    assert shelf.queue.counts()["waiting"] == 1


def test_a_change_wakes_one_pod_of_those_that_are_alike_and_then_the_next() -> None:
    waiting = queue()
    by_node = Diagnosis(frozenset({"X"}), (EventInterest("Node", Action.ADD),), scope=Scope.TEMPLATE)
    for i in range(4):
        waiting.add(info(f"p{i}"), now=float(i))
    while (queued := waiting.pop(4)) is not None:
        waiting.fail(queued, by_node, now=4)
    assert waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("n")), now=50) == 1
    first = popped(waiting, 50)
    waiting.placed(first.uid, now=50)
    second = popped(waiting, 50)
    assert [first.info.pod.name, second.info.pod.name] == ["p0", "p1"]
    waiting.fail(second, by_node, now=50)
    assert waiting.pop(50) is None, "what did not fit the second does not fit the others"
    assert waiting.counts()["waiting"] == 3


def test_pods_behind_one_that_fails_for_a_reason_of_its_own_get_their_turn() -> None:
    waiting = queue()
    alike = Diagnosis(frozenset({"X"}), (EventInterest("Node", Action.ADD),), scope=Scope.TEMPLATE)
    for name in "ab":
        waiting.add(info(name), now=0)
        waiting.fail(popped(waiting, 0), alike, now=0)
    waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("n")), now=50)
    first = popped(waiting, 50)
    waiting.fail(first, Diagnosis(frozenset({"Y"}), (), scope=Scope.POD), now=50)
    assert popped(waiting, 50).info.pod.name == "b"


def quota(shut: set[str]) -> Callable[[PodInfo], Gate | None]:
    """A gate that may shut at any time."""
    gate = Gate("Quota", unschedulable("shut"), ())
    return lambda pod: gate if pod.pod.name in shut else None


EARLY, LATE = 0.5, 1.5  # before and after the end of the first back-off


@pytest.mark.parametrize("now", [EARLY, LATE])
def test_a_pod_whose_gate_shuts_during_its_back_off_keeps_no_change_from_the_others(now: float) -> None:
    shut: set[str] = set()
    waiting = queue(gate=quota(shut))
    alike = Diagnosis(frozenset({"X"}), (EventInterest("Node", Action.ADD),), scope=Scope.TEMPLATE)
    for name in "ab":
        waiting.add(info(name), now=0)
        waiting.fail(popped(waiting, 0), alike, now=0)
    change = ClusterEvent("Node", Action.ADD, None, make_node("n"))
    assert waiting.on_change(change, now=EARLY)
    shut.add("a")
    waiting.fail(popped(waiting, now), alike, now=now)
    assert (waiting.counts()["gated"], waiting.counts()["waiting"]) == (1, 1)
    assert waiting.on_change(change, now=50) == 1
    assert popped(waiting, 50).info.pod.name == "b"


@pytest.mark.parametrize("now", [EARLY, LATE])
def test_a_pod_whose_gate_shuts_during_its_back_off_keeps_no_room(now: float) -> None:
    shut: set[str] = set()
    shelf = Shelf(0.0, gate=quota(shut))
    shelf.refuse("a")
    shelf.refuse("b")
    shelf.amounts[0] = 1.0
    shelf.queue.on_row(0, now=EARLY)
    shut.add("a")
    assert popped(shelf.queue, now).info.pod.name == "b"


@pytest.mark.parametrize("kind", ["Node", "Service"])
def test_a_pod_that_is_rejected_after_a_wait_looks_at_what_happened_meanwhile(kind: str) -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    queued = popped(waiting, 0)
    waiting.placed(queued.uid, now=0)
    waiting.on_change(ClusterEvent(kind, Action.ADD, None, make_node("n")), now=100)
    waiting.fail(queued, BY_NODE, now=200)
    assert queued.place == ("backoff" if kind == "Node" else "waiting")
    assert waiting.pop(200) is None, "not at once: it would be permitted and rejected again and again"


def test_changes_are_kept_no_longer_than_a_pod_is_in_flight() -> None:
    waiting = queue()
    for name in ("first", "second"):
        waiting.add(info(name), now=0)
    first, second = popped(waiting, 0), popped(waiting, 0)
    waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("n")), now=100)
    waiting.done(first.uid, now=150)
    waiting.fail(second, BY_NODE, now=200)
    assert second.place == "backoff", "the node came during its attempt"
    assert not waiting._recent, "whole objects: 1,000 of them take several megabytes"
    waiting.fail(popped(waiting, 300), BY_NODE, now=300)
    assert second.place == "waiting", "nothing came during this one"


def test_a_held_pod_stays_out_whatever_happens() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    waiting.fail(popped(waiting, 0), BY_NODE, now=0)
    waiting.hold("uid-a")
    waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("n")), now=50)
    assert waiting.flush(now=1000) == 0
    assert waiting.pop(1000) is None
    waiting.unhold("uid-a", now=1000)
    assert popped(waiting, 1000).info.pod.name == "a"


def test_a_hint_that_breaks_wakes_the_pod_and_nothing_else_breaks() -> None:
    def hint(*_: object) -> bool:
        raise KeyError("a plugin of another package")

    waiting = queue()
    failures: list[Exception] = []
    waiting.add(info("a"), now=0)
    waiting.fail(
        popped(waiting, 0),
        Diagnosis(frozenset({"X"}), (EventInterest("Node", Action.ADD, hint, failures.append),)),
        now=0,
    )
    assert waiting.on_change(ClusterEvent("Node", Action.ADD, None, make_node("n")), now=50) == 1
    assert len(failures) == 1


def test_a_replica_on_standby_forgets_pods_that_come_and_go() -> None:
    waiting = queue()
    for i in range(3000):
        waiting.add(info(f"p{i}"), now=float(i))
        if i >= 10:
            waiting.delete(f"uid-p{i - 10}", now=float(i))
    assert len(waiting) == 10
    assert len(waiting._active) < 200


def test_a_deleted_pod_is_gone_from_everywhere() -> None:
    shelf = Shelf(0.0)
    shelf.refuse("a")
    waiting = shelf.queue
    waiting.add(info("b"), now=0)
    waiting.fail(popped(waiting, 0), BY_NODE, now=0)
    waiting.add(info("c"), now=0)
    for name in "abc":
        waiting.delete(f"uid-{name}", now=1)
    assert len(waiting) == 0
    assert shelf.fill(0, 5) == []
    assert set(waiting.counts().values()) == {0}


def test_a_pod_deleted_in_flight_does_not_come_back() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    queued = popped(waiting, 0)
    waiting.delete("uid-a", now=0)
    waiting.fail(queued, Diagnosis(), now=0, blindly=True)
    assert len(waiting) == 0


def test_memory_is_bounded_however_often_a_pod_fails() -> None:
    waiting = queue(first_backoff=0, last_backoff=0)
    waiting.add(info("a"), now=0)
    for _ in range(1000):
        waiting.fail(popped(waiting, 0), BY_NODE, now=0)
        waiting.activate_all(now=0)
    assert len(waiting._active) < 100
    assert sum(len(group._heap) for group in waiting._unschedulable) < 100


@pytest.mark.parametrize("place", ["active", "waiting", "backoff"])
def test_an_update_replaces_the_pod_where_it_is(place: str) -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    if place != "active":
        waiting.fail(popped(waiting, 0), BY_NODE if place == "waiting" else Diagnosis(), now=0)
    again = info("a")
    waiting.update(again, None, now=0)
    queued = waiting.get("uid-a")
    assert queued is not None
    assert queued.place == place
    assert queued.info is again


def test_new_labels_take_a_pod_out_of_those_it_was_like() -> None:
    waiting = queue()
    waiting.add(info("a"), now=0)
    waiting.fail(popped(waiting, 0), BY_NODE, now=0)
    waiting.update(info("a", labels={"new": "1"}), None, now=50)
    assert popped(waiting, 50).info.pod.metadata.labels == {"new": "1"}
