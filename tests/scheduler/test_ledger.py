"""The ledger against its own formula: Σ units of pods on the node that the node's report does not answer for."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from scheduling import make_report

from carico.errors import RefusedMessage
from carico.scheduler.cluster import ledger_differences
from carico.scheduler.ledger import Ledger
from carico.scheduler.rows import Rows
from carico.types import NodeReport

NODES = ("a", "b", "c")
UIDS = tuple(f"u{i}" for i in range(8))


def ledger() -> Ledger:
    return Ledger(Rows(), validate=True)


def free(book: Ledger, node: str) -> float:
    account = book.account(node)
    assert account is not None
    return float(book.free[account.row])


def fresh(book: Ledger, node: str, now: float) -> bool:
    account = book.account(node)
    return account is not None and bool(book.fresh(now)[account.row])


def test_a_promise_counts_until_the_node_answers_for_the_pod() -> None:
    book = ledger()
    book.report(make_report("a", 5.0), now=0)
    book.reserve("u1", "a", 1.0, now=0)
    assert free(book, "a") == 4
    book.confirm("u1", "a", 1.0, pending=False, now=1)  # bound and running, but the node has not said so
    assert free(book, "a") == 4
    book.report(make_report("a", 4.1, counted=["u1"]), now=2)  # now it is in Pod-Capacity
    assert free(book, "a") == pytest.approx(4.1)


def test_a_pod_that_ended_at_the_runtime_is_not_reserved_again() -> None:
    book = ledger()
    book.confirm("u1", "a", 1.0, pending=False, now=0)
    book.report(make_report("a", 5.0, finished=["u1"]), now=1)
    assert free(book, "a") == 5


def test_the_older_rule_releases_when_the_pod_leaves_pending() -> None:
    book = ledger()
    book.report(make_report("a", 5.0), now=0)
    book.reserve("u1", "a", 1.0, now=0)
    row = book.account("a").row  # type: ignore[union-attr]
    assert book.free_pending[row] == 4
    book.confirm("u1", "a", 1.0, pending=False, now=1)
    assert (book.free_pending[row], book.free[row]) == (5, 4)  # the gap: the load is in neither number


def test_units_may_be_fractions() -> None:
    book = ledger()
    book.report(make_report("a", 2.0), now=0)
    book.reserve("u1", "a", 0.25, now=0)
    book.reserve("u2", "a", 1.5, now=0)
    assert free(book, "a") == pytest.approx(0.25)


def test_reserve_confirm_and_release_may_be_repeated() -> None:
    book = ledger()
    book.report(make_report("a", 5.0), now=0)
    for _ in range(3):
        book.reserve("u1", "a", 1.0, now=0)
    assert free(book, "a") == 4
    for _ in range(3):
        book.release("u1")
    assert free(book, "a") == 5
    for _ in range(3):
        book.confirm("u1", "a", 1.0, pending=True, now=2)
    book.release("u1")  # bound after all: the promise is not the reason any more
    assert free(book, "a") == 4


def test_a_pod_bound_elsewhere_moves() -> None:
    book = ledger()
    for node in ("a", "b"):
        book.report(make_report(node, 5.0), now=0)
    book.reserve("u1", "a", 1.0, now=0)
    book.confirm("u1", "b", 1.0, pending=True, now=1)
    assert (free(book, "a"), free(book, "b")) == (5, 4)


def test_a_node_is_stale_without_a_report_after_silence_and_when_its_stream_breaks() -> None:
    book = ledger()  # heartbeat 5 s: stale after 12.5 s
    book.node_added("a")
    assert not fresh(book, "a", 0)
    book.report(make_report("a", 5.0, age=2.0), now=10)
    assert fresh(book, "a", 20.5)
    assert not fresh(book, "a", 20.6)
    book.report(make_report("a", 5.0), now=30)
    book.fell_silent("a")
    assert not fresh(book, "a", 30)
    book.set_heartbeat(20)
    book.report(make_report("a", 5.0), now=40)
    assert fresh(book, "a", 90)


def touched(book: Ledger) -> set[str]:
    """Nodes that may take more than before, since the last call."""
    names = {book._rows.names[row] for row in book.touched}
    book.touched.clear()
    return names


def test_rows_that_may_take_more_are_named() -> None:
    book = ledger()
    book.report(make_report("a", 0.5), now=0)
    assert touched(book) == {"a"}
    book.reserve("u1", "a", 1.0, now=2)
    touched(book)
    book.release("u1")
    assert touched(book) == {"a"}
    book.confirm("u2", "a", 1.0, pending=True, now=0)
    touched(book)
    book.confirm("u2", "a", 1.0, pending=False, now=1)
    assert touched(book) == {"a"}


def test_a_pod_that_never_starts_stops_counting_as_starting() -> None:
    book = ledger()
    book.report(make_report("a", 5.0), now=0)
    book.confirm("u1", "a", 1.0, pending=True, now=0)
    book.expire(59.9)
    assert book.starting.tolist() == [1]
    touched(book)
    book.expire(60)
    assert book.starting.tolist() == [0]
    assert book.reserved.tolist() == [1], "it is still promised"
    assert touched(book) == {"a"}
    book.confirm("u1", "a", 1.0, pending=True, now=61)
    assert book.starting.tolist() == [0]


def test_a_report_that_becomes_stale_is_noted() -> None:
    book = ledger()
    book.report(make_report("a", 5.0), now=0)
    book.expire(1)
    touched(book)
    book.expire(12)
    assert touched(book) == set()
    book.expire(13)
    assert touched(book) == {"a"}
    book.expire(14)
    assert touched(book) == set()


def test_a_restarted_scheduler_gives_agents_time_to_connect() -> None:
    book = ledger()
    book.node_added("a")
    book.expect_reports(until=10)
    assert book.is_expected(9.9)
    book.expire(9.9)
    assert touched(book) == set()
    book.expire(10)
    assert touched(book) == {"a"}
    assert not book.is_expected(10)


def test_a_report_without_its_pods_is_refused() -> None:
    with pytest.raises(RefusedMessage, match="does not say which pods"):
        ledger().report(dataclasses.replace(make_report("a", 5.0), counted=None), now=0)


def test_rows_of_nodes_that_left_are_used_again() -> None:
    book = ledger()
    for name in ("a", "b"):
        book.node_added(name)
    book.confirm("u1", "a", 1.0, pending=True, now=0)
    book.node_removed("a")
    assert book.account("a") is not None  # a pod still stands on its account
    book.forget("u1")
    assert book.account("a") is None
    book.node_added("c")
    assert book.account("c").row == 0  # type: ignore[union-attr]


def test_handover_times_are_told_once() -> None:
    times: list[float] = []
    book = Ledger(Rows(), on_handover=times.append)
    book.reserve("u1", "a", 1.0, now=1.0)
    book.report(make_report("a", 5.0, counted=["u1"]), now=3.5)
    book.report(make_report("a", 5.0, counted=["u1"]), now=4.5)
    assert times == [2.5]


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order, the sums are the formula's and a rebuilt ledger is the same."""

    def __init__(self) -> None:
        super().__init__()
        self.book = ledger()
        self.now = 0.0
        self.bound: dict[str, tuple[str, float, bool]] = {}
        self.promised: dict[str, tuple[str, float]] = {}
        self.reports: dict[str, NodeReport] = {}

    @rule(uid=st.sampled_from(UIDS), node=st.sampled_from(NODES), units=st.sampled_from([0.5, 1.0, 2.0]))
    def reserve(self, uid: str, node: str, units: float) -> None:
        if uid in self.bound:
            return  # a scheduler does not decide on bound pods
        self.book.reserve(uid, node, units, self.now)
        self.promised[uid] = (node, units)

    @rule(
        uid=st.sampled_from(UIDS), node=st.sampled_from(NODES), units=st.sampled_from([0.5, 1.0]), pending=st.booleans()
    )
    def confirm(self, uid: str, node: str, units: float, pending: bool) -> None:
        node = self.bound[uid][0] if uid in self.bound else node  # pods do not move
        self.book.confirm(uid, node, units, pending, self.now)
        self.bound[uid] = (node, units, pending)
        self.promised.pop(uid, None)

    @rule(uid=st.sampled_from(UIDS))
    def release(self, uid: str) -> None:
        self.book.release(uid)
        self.promised.pop(uid, None)

    @rule(uid=st.sampled_from(UIDS))
    def forget(self, uid: str) -> None:
        self.book.forget(uid)
        self.promised.pop(uid, None)
        self.bound.pop(uid, None)

    @rule(
        node=st.sampled_from(NODES),
        capacity=st.floats(0, 20),
        counted=st.sets(st.sampled_from(UIDS)),
        finished=st.sets(st.sampled_from(UIDS)),
    )
    def report(self, node: str, capacity: float, counted: set[str], finished: set[str]) -> None:
        self.now += 0.5
        self.reports[node] = make_report(node, capacity, counted, finished)
        self.book.report(self.reports[node], self.now)

    @rule(node=st.sampled_from(NODES), there=st.booleans())
    def node(self, node: str, there: bool) -> None:
        self.book.node_added(node) if there else self.book.node_removed(node)

    @invariant()
    def sums_are_the_formula(self) -> None:
        for node, report in self.reports.items():
            standing = {uid: (n, u) for uid, (n, u, _) in self.bound.items()} | self.promised
            answered = (report.counted or frozenset()) | (report.finished or frozenset())
            reserved = sum(u for uid, (n, u) in standing.items() if n == node and uid not in answered)
            assert free(self.book, node) == pytest.approx(report.estimate.pod_capacity - reserved)

    def teardown(self) -> None:
        again = ledger()
        for node, _ in self.book.accounts():
            again.node_added(node)
        for uid, (node, units, pending) in self.bound.items():
            again.confirm(uid, node, units, pending, self.now)
        for uid, (node, units) in self.promised.items():
            again.reserve(uid, node, units, self.now)
        for report in self.reports.values():
            again.report(report, self.now)
        assert ledger_differences(self.book, again) == []


TestAnyOrder = AnyOrder.TestCase
