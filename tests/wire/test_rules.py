"""When nodes send: the policies of requests and reports, and the order of messages, with a manual clock."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carico.errors import InvalidMessage
from carico.testing import ManualClock
from carico.types import CostBelief, NodeReport
from carico.wire.codec import report as codec
from carico.wire.exchange_policy import ExchangePolicy
from carico.wire.identity import Caller
from carico.wire.report_policy import ReportPolicy
from carico.wire.report_server import ReportService
from carico.wire.sequence_guard import OpenStreams, SequenceGuard
from harness.wire.messages import local_model, node_report

ANYONE = Caller(names=None, is_replica=False)


@pytest.fixture
def asking() -> ExchangePolicy:
    return ExchangePolicy(ask_every=10.0, ask_when_moved=0.1)


def test_a_node_sends_at_once_and_then_after_ten_seconds(asking: ExchangePolicy) -> None:
    model = local_model()
    assert asking.wait(model, 100.0, has_answer=False) == 0
    asking.sent(model, 100.0)
    assert asking.wait(model, 103.0, has_answer=True) == 7.0
    assert asking.wait(model, 110.0, has_answer=True) == 0


def test_without_a_response_it_sends_again_soon(asking: ExchangePolicy) -> None:
    asking.sent(local_model(), 100.0)
    assert asking.wait(local_model(), 100.0, has_answer=False) == 1.0


@pytest.mark.parametrize(
    ("share", "moved"), [(1.05, False), (0.95, False), (1.2, True), (0.8, True)], ids=["+5 %", "-5 %", "+20 %", "-20 %"]
)
def test_it_sends_when_the_direction_moved(asking: ExchangePolicy, share: float, moved: bool) -> None:
    asking.sent(local_model(), 100.0)
    new = local_model(basis=local_model().basis * share)
    assert (asking.wait(new, 101.0, has_answer=True) == 0) is moved


def test_it_sends_when_the_workload_turned(asking: ExchangePolicy) -> None:
    asking.sent(local_model(basis=np.array([[0.4], [0.3]])), 100.0)
    assert asking.wait(local_model(basis=np.array([[0.3], [0.4]])), 101.0, has_answer=True) == 0


def test_it_sends_when_the_cost_moved_but_never_twice_in_a_second(asking: ExchangePolicy) -> None:
    asking.sent(local_model(), 100.0)
    expensive = local_model(cost=CostBelief((1.0, 2.0**28), (0.01, 2.0**50)))
    assert asking.wait(expensive, 100.25, has_answer=True) == 0.75
    assert asking.wait(local_model(cost=None), 101.0, has_answer=True) == 0


def test_the_noise_of_an_idle_node_sends_nothing(asking: ExchangePolicy) -> None:
    asking.sent(local_model(basis=np.array([[0.01], [0.02]])), 100.0)
    assert asking.wait(local_model(basis=np.array([[0.015], [0.02]])), 102.0, has_answer=True) == 8.0


@pytest.fixture
def rule() -> ReportPolicy:
    rule = ReportPolicy()
    rule.reset()
    rule.offer(node_report())
    rule.take(1, 100.0)
    return rule


def test_the_first_report_goes_at_once_with_both_sets() -> None:
    rule = ReportPolicy()
    rule.reset()
    assert rule.wait(0.0) == math.inf
    rule.offer(node_report(at=99.0))
    assert rule.wait(100.0) == 0
    sent = rule.take(5, 100.0)
    assert (sent.sequence, sent.age) == (5, 1.0)
    assert sent.counted == frozenset({"uid-1", "uid-2"})
    assert sent.finished == frozenset()


def test_without_a_change_only_the_heartbeat_is_sent_and_leaves_the_sets_out(rule: ReportPolicy) -> None:
    rule.offer(node_report(pod_capacity=10.4))
    assert rule.wait(101.0) == 4.0
    rule.acknowledged(20.0, refused=False)
    assert rule.wait(101.0) == 19.0
    sent = rule.take(2, 120.0)
    assert (sent.counted, sent.finished) == (None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"pod_capacity": 10.5},
        {"pod_capacity": 9.5},
        {"pods": 3},
        {"counted": frozenset({"uid-1"})},
        {"finished": frozenset({"uid-2"})},
    ],
    ids=str,
)
def test_a_change_is_sent_at_once_but_at_most_twice_a_second(rule: ReportPolicy, change: dict[str, Any]) -> None:
    rule.offer(node_report(**change))
    assert rule.wait(100.125) == 0.375
    assert rule.wait(101.0) == 0


def test_a_large_capacity_has_to_move_by_five_percent() -> None:
    rule = ReportPolicy()
    rule.offer(node_report(pod_capacity=100.0))
    rule.take(1, 100.0)
    rule.offer(node_report(pod_capacity=104.0))
    assert rule.wait(101.0) == 4.0
    rule.offer(node_report(pod_capacity=105.0))
    assert rule.wait(101.0) == 0


def test_after_a_rejection_and_on_a_new_stream_the_sets_are_sent_again(rule: ReportPolicy) -> None:
    rule.acknowledged(5.0, refused=True)
    assert rule.wait(101.0) == 4.0, "a node that is always refused must not speak more often"
    assert rule.take(2, 105.0).counted is not None
    assert rule.take(3, 110.0).counted is None
    rule.reset()
    assert rule.wait(110.1) == 0
    assert rule.take(4, 110.1).counted is not None


@given(capacities=st.lists(st.floats(0, 1000), min_size=1, max_size=60))
def test_whatever_happens_at_most_two_a_second_and_never_far_behind(capacities: list[float]) -> None:
    """Played at 10 Hz: what the scheduler has is a move behind the truth for half a second at most."""
    rule, sent_at = ReportPolicy(), []
    rule.reset()
    behind = 0.0
    told = None
    for tick, capacity in enumerate(capacities):
        now = 100.0 + tick / 10
        rule.offer(node_report(pod_capacity=capacity))
        if rule.wait(now) <= 0:
            told = rule.take(tick, now).estimate.pod_capacity
            sent_at.append(now)
        moved = told is None or abs(told - capacity) >= max(0.5, 0.05 * told)
        behind = behind + 0.1 if moved else 0.0
        assert behind <= 0.5 + 1e-9
    assert all(later - earlier >= 0.5 - 1e-9 for earlier, later in itertools.pairwise(sent_at))


def test_a_restart_is_distinguished_from_a_late_message() -> None:
    order = SequenceGuard()
    order.check("n", stream=1, start_id=50, sequence=10)
    order.check("n", stream=2, start_id=40, sequence=1)
    with pytest.raises(InvalidMessage, match="restarted since"):
        order.check("n", stream=1, start_id=50, sequence=11)
    order.check("n", stream=3, start_id=40, sequence=2)
    assert order.stream_of("n") == 3
    order.forget("n")
    order.check("n", stream=1, start_id=50, sequence=1)


@given(sequences=st.lists(st.integers(0, 50)))
def test_what_is_taken_grows(sequences: list[int]) -> None:
    order = SequenceGuard()
    taken: list[int] = []
    for sequence in sequences:
        try:
            order.check("n", stream=1, start_id=1, sequence=sequence)
        except InvalidMessage:
            assert sequence <= taken[-1]
        else:
            taken.append(sequence)
    assert taken == sorted(set(taken))


def taken(order: SequenceGuard, stream: int, node: str, start_id: int, sequence: int) -> bool:
    try:
        order.check(node, stream=stream, start_id=start_id, sequence=sequence)
    except InvalidMessage:
        return False
    return True


STEPS = ("restart", "open", "send", "deliver", "close")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), min_size=20, max_size=80))
# The first agent's message is late: its node has restarted, reported and broken off meanwhile.
@example(
    [("open", 0), ("send", 0), ("restart", 0), ("open", 0), ("send", 0), ("deliver", 1), ("close", 1), ("deliver", 0)]
)
def test_forgetting_lets_no_ghost_in(steps: list[tuple[str, int]]) -> None:
    """Agents of two nodes restart, reconnect and break off, messages arrive late or never: no verdict changes."""
    forgetful, elephant = SequenceGuard(), SequenceGuard()
    streams, numbers, ids = OpenStreams(forgetful), itertools.count(1), itertools.count(100)
    agents: dict[str, Any] = {f"n{i}": [next(ids), 0, None] for i in range(2)}  # start id, sequence, newest stream
    in_flight: dict[int, list[tuple[str, int, int]]] = {}  # messages on open streams
    spoken = set()
    for step, choice in steps:
        node = f"n{choice % 2}"
        agent = agents[node]
        if step == "restart":
            agent[:] = [next(ids), 0, None]
        elif step == "open":
            agent[2] = next(numbers)
            in_flight[agent[2]] = []
            streams.add(agent[2])
        elif step == "send" and agent[2] in in_flight:
            agent[1] += 1
            in_flight[agent[2]].append((node, agent[0], agent[1]))
        elif in_flight and step in ("deliver", "close"):
            stream = sorted(in_flight)[choice % len(in_flight)]
            if step == "close":
                del in_flight[stream]
                streams.remove(stream)
            elif in_flight[stream]:
                message = in_flight[stream].pop(0)
                verdict = taken(forgetful, stream, *message)
                assert verdict == taken(elephant, stream, *message)
                if verdict and stream not in spoken:
                    spoken.add(stream)
                    streams.assign(stream, message[0])
    for stream in in_flight:
        streams.remove(stream)
    assert len(forgetful) == 0


class Deaf:
    """A listener that does not care."""

    def on_report(self, report: NodeReport) -> None:
        pass

    def on_disconnect(self, node: str) -> None:
        pass

    def heartbeat(self) -> float:
        return 5.0

    def leads(self) -> bool:
        return True


def test_nodes_that_came_and_went_leave_no_order_behind() -> None:
    """5,000 spot nodes, each with a name of its own, report and go; one that stays keeps its place."""
    service = ReportService(Deaf(), ManualClock(), lambda _: None)
    service.method._sessions(ANYONE).answer(codec.encode(node_report(node="stays", sequence=1)))
    for number in range(5_000):
        session = service.method._sessions(ANYONE)
        assert session.answer(codec.encode(node_report(node=f"spot-{number}", sequence=1))) is None
        session.on_close()
    assert len(service.order) == 1
    assert service.order.stream_of("stays") == 1
