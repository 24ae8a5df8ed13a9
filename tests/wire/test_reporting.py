"""What makes a node report to a scheduler, and what does not; played with the clock in the hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from carico.testing import ManualClock
from carico.types import ClassCost, ClassKey, NodeReport, NodeSize
from carico.wire.class_news import AGAIN, AT_ONCE, ClassNews
from carico.wire.codec import cluster
from carico.wire.codec import report as codec
from carico.wire.exchange import ExchangeStreamPolicy
from carico.wire.exchange_policy import ExchangePolicy
from carico.wire.identity import Caller
from carico.wire.rejection_log import RejectionLog
from carico.wire.report_client import ReportStreamPolicy
from carico.wire.report_policy import ReportPolicy
from carico.wire.report_server import ReportService
from carico.wire.server import AnnouncingSession
from harness.wire.messages import class_cost, local_model, node_report

ANYONE = Caller(names=None, is_replica=False)
FULL = (8.0, 2.0**33)
NO_LOG: Any = None  # a rejection would raise


def ready(**fields: Any) -> ReportPolicy:
    rule = ReportPolicy()
    rule.reset()
    rule.offer(node_report(room=(2.0, 2.0**32), full=FULL, **fields))
    rule.take(1, 100.0)
    return rule


@pytest.mark.parametrize(
    "change",
    [{"churn": True}, {"finished": frozenset()}, {"room": (2.05, 2.0**32)}, {"room": (2.0, 2.0**32 + 2.0**20)}],
    ids=["the runtime is busy", "an ended pod is forgotten", "1/160 of the cores", "1 MiB"],
)
def test_what_no_scheduler_decides_by_waits_for_the_heartbeat(change: dict[str, Any]) -> None:
    rule = ready(finished=frozenset({"uid-9"}))
    fields = {"finished": frozenset({"uid-9"}), "room": (2.0, 2.0**32), "full": FULL} | change
    rule.offer(node_report(**fields))
    assert rule.wait(101.0) == 4.0


@pytest.mark.parametrize(
    "change",
    [
        {"room": (1.9, 2.0**32)},
        {"room": (2.0, 2.0**32 * 0.9)},
        {"room": (2.0, 2.0**32), "full": (4.0, 2.0**33)},
        {"room": ()},
        {"finished": frozenset({"uid-9", "uid-8"})},
    ],
    ids=["cpu", "memory", "the node shrank", "no room is known any more", "a pod ended"],
)
def test_what_a_scheduler_decides_by_is_sent_at_once(change: dict[str, Any]) -> None:
    """Pod-Capacity stays as it is: another class of pods binds."""
    rule = ready(finished=frozenset({"uid-9"}))
    fields = {"finished": frozenset({"uid-9"}), "room": (2.0, 2.0**32), "full": FULL} | change
    rule.offer(node_report(**fields))
    assert rule.wait(101.0) == 0.0


def test_a_busy_scheduler_gets_reports_less_often() -> None:
    rule = ready()
    rule.acknowledged(5.0, refused=False, least_gap=3.0)
    rule.offer(node_report(pods=9))
    assert rule.wait(101.0) == 2.0
    rule.acknowledged(5.0, refused=False, least_gap=0.0)
    assert rule.wait(101.0) == 0.0


def test_changes_are_sent_only_to_a_scheduler_that_supports_them() -> None:
    """One of the first version would leave them out and go on with the old set."""
    more = frozenset({"uid-1", "uid-2", "uid-3"})
    for takes_changes in (False, True):
        rule = ready()
        rule.acknowledged(5.0, refused=False, takes_changes=takes_changes)
        rule.offer(node_report(counted=more))
        message = codec.parse(codec.encode(rule.take(2, 101.0), rule.known))
        assert message.HasField("counted") is not takes_changes
        assert message.HasField("counted_change") is takes_changes
        rule.acknowledged(5.0, refused=True, takes_changes=takes_changes)
        assert codec.parse(codec.encode(rule.take(3, 102.0), rule.known)).HasField("counted"), "after a refusal"


class Remembering:
    def __init__(self) -> None:
        self.reports: list[NodeReport] = []

    def on_report(self, report: NodeReport) -> None:
        self.reports.append(report)

    def on_disconnect(self, node: str) -> None:
        pass

    def heartbeat(self) -> float:
        return 5.0

    def leads(self) -> bool:
        return True


class Wire:
    """A stream as the server has it; what is announced goes to the policy."""

    pending = 0

    def __init__(self, policy: ReportStreamPolicy) -> None:
        self._policy = policy

    def announce(self, message: bytes) -> None:
        self._policy.on_message(message, 0.0)


def test_a_stream_of_reports_is_the_same_sets_with_and_without_changes() -> None:
    """The real policy against the real server: pods come and go, most reports carry only what changed."""
    listener, clock = Remembering(), ManualClock()
    acks: list[codec.Ack] = []
    service = ReportService(listener, clock, lambda _: None, least_gap=lambda: 0.0)
    policy = ReportStreamPolicy(iter(range(1, 1000)), RejectionLog(NO_LOG), acks.append)
    session = service.method._sessions(ANYONE)
    assert isinstance(session, AnnouncingSession)
    session.attach(Wire(policy))
    policy.on_open(0.0)
    greeting = session.greeting()
    assert greeting is not None
    policy.on_message(greeting, 0.0)
    sizes, now = [], 100.0
    for step in range(50):
        now += 1.0
        counted = frozenset(f"{i:036d}" for i in range(step, step + 200))
        policy.rule.offer(node_report(counted=counted, at=now))
        message = policy.next_message(now)
        sizes.append(len(message))
        assert session.answer(message) is None
        assert listener.reports[-1].counted == counted
        assert listener.reports[-1].finished == frozenset()
    assert max(sizes[1:]) < 400 < sizes[0]
    classes = {"uid-1": ClassKey("a", "a/web", "r"), "uid-2": None}
    assert service.send("n1", allocatable=NodeSize(3.5, 2.0**32), classes=classes)
    assert (acks[-1].allocatable, acks[-1].classes) == (NodeSize(3.5, 2.0**32), classes)
    session.on_close()
    assert not service.send("n1", allocatable=NodeSize(3.5, 2.0**32))


def test_class_costs_that_moved_are_sent_within_a_second() -> None:
    rule = ready(class_costs=(class_cost(),))
    same: dict[str, Any] = {"room": (2.0, 2.0**32), "full": FULL}
    rule.offer(node_report(class_costs=(class_cost(mean=(0.54, 2.0**28)),), **same))
    assert rule.wait(100.5) == 4.5
    expensive = class_cost(mean=(0.56, 2.0**28))
    rule.offer(node_report(class_costs=(expensive,), **same))
    assert rule.wait(100.5) == 0.5
    assert rule.take(2, 101.0).class_costs == (expensive,)
    assert rule.take(3, 106.0).class_costs == ()


def test_a_high_that_falls_is_sent_with_the_next_message_but_triggers_none() -> None:
    news, dear, cheap = ClassNews(), class_cost(high=(0.9, 2.0**28)), class_cost(high=(0.6, 2.0**28))
    news.take((dear,), FULL, 0.0)
    assert not news.has_any((cheap,), ("cpu", "memory"), 1.0)
    assert news.take((cheap,), FULL, 1.0) == (cheap,)
    assert news.has_any((dear,), ("cpu", "memory"), 2.0), "others must know what pods want at most"
    fallen_and_expensive = class_cost(mean=(0.6, 2.0**28), high=(0.6, 2.0**28))
    news.take((dear,), FULL, 2.0)
    assert news.has_any((fallen_and_expensive,), ("cpu", "memory"), 3.0)


def test_what_sleeping_pods_differ_by_is_no_news() -> None:
    asleep: dict[str, Any] = {"mean": (0.0001, 2.0**22), "high": (0.0002, 2.0**22), "variance": (0.0, 0.0)}
    rule = ready(class_costs=(class_cost(**asleep),))
    same: dict[str, Any] = {"room": (2.0, 2.0**32), "full": FULL}
    rule.offer(node_report(class_costs=(class_cost(**asleep | {"mean": (0.0015, 2.0**22 + 2.0**19)}),), **same))
    assert rule.wait(100.5) == 4.5
    rule.offer(node_report(class_costs=(class_cost(**asleep | {"mean": (0.0025, 2.0**22)}),), **same))
    assert rule.wait(100.5) == 0.5


def test_many_classes_are_sent_in_turn_and_again_after_a_while() -> None:
    news, costs = ClassNews(), tuple(class_cost(f"c{i}") for i in range(70))
    limits = FULL
    told: list[ClassCost] = []
    while news.has_any(costs, ("cpu", "memory"), 0.0):
        part = news.take(costs, limits, 0.0)
        assert 0 < len(part) <= AT_ONCE
        told += part
    assert sorted(cost.key for cost in told) == sorted(cost.key for cost in costs)
    assert news.take(costs, limits, AGAIN) == ()
    assert len(news.take(costs, limits, AGAIN + 1.0)) == AT_ONCE
    news.reset()
    assert len(news.take(costs, limits, AGAIN + 1.0)) == AT_ONCE


def test_a_class_that_moved_after_a_while_is_sent_once() -> None:
    """It is due because it moved and because it is old; a message with a class twice is rejected as a whole."""
    news, costs = ClassNews(), (class_cost("c1"), class_cost("c2"))
    news.take(costs, FULL, 0.0)
    moved = (dataclasses.replace(costs[0], mean=tuple(2 * value for value in costs[0].mean)), costs[1])
    assert sorted(cost.key for cost in news.take(moved, FULL, AGAIN + 1.0)) == [cost.key for cost in moved]


def test_long_names_stay_below_what_an_aggregator_of_the_first_version_takes() -> None:
    costs = tuple(class_cost(key=ClassKey("n" * 63, f"{i:0320d}", "r" * 128)) for i in range(60))
    policy = ExchangeStreamPolicy(ExchangePolicy(10.0, 0.1), lambda _: None, RejectionLog(NO_LOG))
    policy.offer(local_model(class_costs=costs))
    policy.on_open(0.0)
    for now in range(5):
        assert len(policy.next_message(float(now))) < 16 * 1024


def test_a_node_sends_when_a_class_cost_moved() -> None:
    policy = ExchangeStreamPolicy(ExchangePolicy(10.0, 0.1), lambda _: None, RejectionLog(NO_LOG))
    policy.offer(local_model(class_costs=(class_cost(),)))
    policy.on_open(0.0)
    policy.next_message(0.0)
    policy.on_message(cluster.NONE_YET, 0.0)
    policy._has_answer = True
    assert policy.delay(1.0) == 9.0
    policy.offer(local_model(class_costs=(class_cost(high=(1.0, 2.0**29)),)))
    assert policy.delay(1.0) == 0.0


def test_an_aggregator_that_is_busy_puts_its_nodes_off() -> None:
    policy = ExchangeStreamPolicy(ExchangePolicy(10.0, 0.1), lambda _: None, RejectionLog(NO_LOG))
    policy.on_open(0.0)
    policy.offer(local_model())
    policy.next_message(0.0)
    policy.on_message(cluster.NONE_YET + cluster.next_ask(20.0), 0.0)
    assert 19.0 <= policy.delay(1.0) <= 24.0
    policy.on_message(cluster.NONE_YET + cluster.next_ask(math.inf), 1.0)
    assert policy.delay(1.0) == 0.0, "what cannot be is not obeyed"
