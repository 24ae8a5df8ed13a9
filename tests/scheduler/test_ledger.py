"""The ledger against its own formula: Σ units of pods on the node that the node's report does not answer for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from carico.errors import InvalidMessage
from carico.scheduler.cache.charge import Charge, Claim, Sum, vector
from carico.scheduler.cache.fits import MOST, Fits
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.rows import RowIndex
from carico.scheduler.cluster_cache import ledger_differences
from carico.testing import make_report
from carico.types import ClassKey, NodeReport

NODES = ("a", "b", "c")
UIDS = tuple(f"u{i}" for i in range(8))


def ledger() -> Ledger:
    return Ledger(RowIndex(), validate=True)


def units(amount: float) -> Claim:
    return Claim(ClassKey("default", "default/web"), amount)


def free(book: Ledger, node: str) -> float:
    account = book.account(node)
    assert account is not None
    return float(book.free[account.row])


def fresh(book: Ledger, node: str, now: float) -> bool:
    account = book.account(node)
    return account is not None and bool(book.fresh(now)[account.row])


def test_a_reservation_counts_until_the_node_reports_the_pod() -> None:
    book = ledger()
    book.report(make_report("a", 5.0), now=0)
    book.reserve("u1", "a", units(1.0), now=0)
    assert free(book, "a") == 4
    book.confirm("u1", "a", units(1.0), pending=False, now=1)  # bound and running, but not in the node's report
    assert free(book, "a") == 4
    book.report(make_report("a", 4.1, counted=["u1"]), now=2)  # now it is in Pod-Capacity
    assert free(book, "a") == pytest.approx(4.1)


def test_a_pod_that_changes_its_class_is_not_starting_again() -> None:
    book = Ledger(RowIndex(), validate=True, startup_patience=60.0)
    book.report(make_report("a", 5.0), now=0)
    book.confirm("u1", "a", units(1.0), pending=True, now=0)
    book.expire(61)
    book.confirm("u2", "a", units(1.0), pending=True, now=61)
    book.confirm("u1", "a", Claim(ClassKey("default", "default/other"), 1.0), pending=True, now=62)
    assert [entry.uid for entry in book.starting_on("a")] == ["u2"]


def test_a_pod_that_ended_at_the_runtime_is_not_reserved_again() -> None:
    book = ledger()
    book.confirm("u1", "a", units(1.0), pending=False, now=0)
    book.report(make_report("a", 5.0, finished=["u1"]), now=1)
    assert free(book, "a") == 5


def test_the_older_rule_releases_when_the_pod_leaves_pending() -> None:
    book = ledger()
    book.report(make_report("a", 5.0), now=0)
    book.reserve("u1", "a", units(1.0), now=0)
    row = book.account("a").row  # type: ignore[union-attr]
    assert book.free_pending[row] == 4
    book.confirm("u1", "a", units(1.0), pending=False, now=1)
    assert (book.free_pending[row], book.free[row]) == (5, 4)  # the gap: the load is in neither number


def test_units_may_be_fractions() -> None:
    book = ledger()
    book.report(make_report("a", 2.0), now=0)
    book.reserve("u1", "a", units(0.25), now=0)
    book.reserve("u2", "a", units(1.5), now=0)
    assert free(book, "a") == pytest.approx(0.25)


def test_reserve_confirm_and_release_may_be_repeated() -> None:
    book = ledger()
    book.report(make_report("a", 5.0), now=0)
    for _ in range(3):
        book.reserve("u1", "a", units(1.0), now=0)
    assert free(book, "a") == 4
    for _ in range(3):
        book.release("u1")
    assert free(book, "a") == 5
    for _ in range(3):
        book.confirm("u1", "a", units(1.0), pending=True, now=2)
    book.release("u1")  # bound after all: the promise is not the reason any more
    assert free(book, "a") == 4


def test_a_pod_bound_elsewhere_moves() -> None:
    book = ledger()
    for node in ("a", "b"):
        book.report(make_report(node, 5.0), now=0)
    book.reserve("u1", "a", units(1.0), now=0)
    book.confirm("u1", "b", units(1.0), pending=True, now=1)
    assert (free(book, "a"), free(book, "b")) == (5, 4)


def test_a_node_is_stale_without_a_report_after_silence_and_when_its_stream_breaks() -> None:
    book = ledger()  # heartbeat 5 s: stale after 12.5 s
    book.node_added("a")
    assert not fresh(book, "a", 0)
    book.report(make_report("a", 5.0, age=2.0), now=10)
    assert fresh(book, "a", 20.5)
    assert not fresh(book, "a", 20.6)
    book.report(make_report("a", 5.0), now=30)
    book.mark_disconnected("a")
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
    book.reserve("u1", "a", units(1.0), now=2)
    touched(book)
    book.release("u1")
    assert touched(book) == {"a"}
    book.confirm("u2", "a", units(1.0), pending=True, now=0)
    touched(book)
    book.confirm("u2", "a", units(1.0), pending=False, now=1)
    assert touched(book) == {"a"}


def test_a_pod_that_never_starts_stops_counting_as_starting() -> None:
    book = ledger()
    book.report(make_report("a", 5.0), now=0)
    book.confirm("u1", "a", units(1.0), pending=True, now=0)
    book.expire(59.9)
    assert book.starting.tolist() == [1]
    touched(book)
    book.expire(60)
    assert book.starting.tolist() == [0]
    assert book.reserved.tolist() == [1], "it is still promised"
    assert touched(book) == {"a"}
    book.confirm("u1", "a", units(1.0), pending=True, now=61)
    assert book.starting.tolist() == [0]


def test_a_start_is_overdue_at_its_time_however_the_sum_is_rounded() -> None:
    now = next(i / 10 for i in range(1, 1000) if (i / 10 + 60) - i / 10 < 60)
    book = ledger()
    book.confirm("u1", "a", units(1.0), pending=True, now=now)
    book.expire(now + 60)
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
    with pytest.raises(InvalidMessage, match="does not say which pods"):
        ledger().report(dataclasses.replace(make_report("a", 5.0), counted=None), now=0)


def test_rows_of_nodes_that_left_are_used_again() -> None:
    book = ledger()
    for name in ("a", "b"):
        book.node_added(name)
    book.confirm("u1", "a", units(1.0), pending=True, now=0)
    book.node_removed("a")
    assert book.account("a") is not None  # a pod still stands on its account
    book.forget("u1")
    assert book.account("a") is None
    book.node_added("c")
    assert book.account("c").row == 0  # type: ignore[union-attr]


def test_handover_times_are_observed_once() -> None:
    times: list[float] = []
    book = Ledger(RowIndex(), on_handover=times.append)
    book.reserve("u1", "a", units(1.0), now=1.0)
    book.report(make_report("a", 5.0, counted=["u1"]), now=3.5)
    book.report(make_report("a", 5.0, counted=["u1"]), now=4.5)
    assert times == [2.5]


# --- room per resource ---

WEB, BATCH = ClassKey("default", "default/web"), ClassKey("default", "default/batch")
FULL = (8.0, 16e9)


class Prices:
    """What classes cost, as a test sets it."""

    def __init__(self) -> None:
        self.cost: dict[ClassKey, tuple[float, float] | None] = {}

    def charge(self, claim: Claim) -> Charge:
        if claim.units is not None:
            return Charge(claim.units)
        cost = self.cost.get(claim.key)
        probe = claim.key if cost is None else None
        return Charge(1.0, tuple(vector(("cpu", "memory"), cost or (1.0, 1e9)).tolist()), probe)


CLAIMS = st.sampled_from([units(0.5), units(2.0), Claim(WEB), Claim(BATCH)])


def with_room(node: str, room: tuple[float, ...], counted: Iterable[str] = (), **changes: Any) -> NodeReport:
    """The mean recent pod costs 0.5 cores and 1 GB."""
    capacity = min(room[0] / 0.5, room[1] / 1e9)
    ratio = (0.5 / FULL[0], 1e9 / FULL[1])
    return make_report(node, capacity, counted, room=room, full=FULL, cost_ratio=ratio, **changes)


def left(book: Ledger, node: str) -> list[float]:
    account = book.account(node)
    assert account is not None
    return [float(left) for left in book.left[:2, account.row]]


def priced(**cost: tuple[float, float]) -> tuple[Ledger, Prices]:
    prices = Prices()
    prices.cost = {ClassKey("default", f"default/{name}"): amounts for name, amounts in cost.items()}
    return Ledger(RowIndex(), prices.charge, validate=True), prices


def test_what_a_class_costs_is_taken_from_the_room_until_the_node_answers_for_the_pod() -> None:
    book, _ = priced(web=(0.5, 2e9))
    book.report(with_room("a", (4.0, 8e9)), now=0)
    book.reserve("u1", "a", Claim(WEB), now=0)
    assert left(book, "a") == [3.5, 6e9]
    assert free(book, "a") == pytest.approx(6.0)  # of mean pods: memory is scarcer
    book.report(with_room("a", (3.4, 6.1e9), ["u1"]), now=1)
    assert left(book, "a") == [3.4, 6.1e9]


def test_units_take_so_many_mean_recent_pods_of_the_node() -> None:
    book, _ = priced()
    book.report(with_room("a", (4.0, 8e9)), now=0)
    book.reserve("u1", "a", units(2.0), now=0)
    assert left(book, "a") == [3.0, 6e9]
    costly = with_room("a", (4.0, 8e9))
    book.report(dataclasses.replace(costly, estimate=dataclasses.replace(costly.estimate, pod_capacity=4.0)), now=1)
    assert left(book, "a") == [2.0, 4e9]


def test_charges_change_when_the_class_cost_changes() -> None:
    book, prices = priced(web=(0.5, 2e9), batch=(1.0, 1e9))
    for node in ("a", "b"):
        book.report(with_room(node, (4.0, 8e9)), now=0)
    book.reserve("u1", "a", Claim(WEB), now=0)
    book.reserve("u2", "b", Claim(BATCH), now=0)
    touched(book)
    prices.cost[WEB] = (2.0, 1e9)
    book.reprice({"default/web"})
    assert (left(book, "a"), left(book, "b")) == ([2.0, 7e9], [3.0, 7e9])
    assert touched(book) == {"a"}


def test_a_node_of_an_older_agent_is_charged_pods() -> None:
    book, _ = priced(web=(0.5, 2e9))
    book.report(make_report("a", 5.0), now=0)
    book.reserve("u1", "a", Claim(WEB), now=0)
    assert free(book, "a") == 4
    assert left(book, "a") == [math.inf, math.inf]
    book.report(with_room("a", (4.0, 8e9)), now=1)  # the agent was updated
    assert left(book, "a") == [3.5, 6e9]


def test_unmeasured_pods_are_counted_by_class_until_one_was_measured_or_a_minute_has_passed() -> None:
    book, prices = priced()
    book.report(with_room("a", (4.0, 8e9)), now=0)
    book.reserve("u1", "a", Claim(WEB), now=0)
    book.reserve("u2", "a", Claim(BATCH), now=30)
    assert (book.probes.on(WEB, 0), book.probes.on(BATCH, 0)) == (1, 1)
    prices.cost[BATCH] = (0.5, 1e9)
    book.reprice({"default/batch"})
    assert book.probes.on(BATCH, 0) == 0
    touched(book)
    book.expire(60)
    assert book.probes.on(WEB, 0) == 0
    assert touched(book) == {"a"}


WEB_COST, NOTHING, TWO_UNITS = Charge(1.0, (0.25, 5e8)), Charge(1.0, (0.0, 0.0)), Charge(2.0)


def fitting(book: Ledger, row: int, charge: Charge) -> float:
    if charge.cost is None or not book.has_room[row]:
        return float(book.free[row])
    return min([float(book.left[i, row]) / charge.cost[i] for i in charge.numbers], default=MOST)


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order, the sums are the formula's and a rebuilt ledger is the same."""

    def __init__(self) -> None:
        super().__init__()
        self.prices = Prices()
        self.book = Ledger(RowIndex(), self.prices.charge, validate=True)
        self.fits = Fits(self.book, pending=False)
        self.now = 0.0
        self.bound: dict[str, tuple[str, Claim, bool]] = {}
        self.promised: dict[str, tuple[str, Claim]] = {}
        self.reports: dict[str, NodeReport] = {}

    @rule(uid=st.sampled_from(UIDS), node=st.sampled_from(NODES), claim=CLAIMS)
    def reserve(self, uid: str, node: str, claim: Claim) -> None:
        if uid in self.bound:
            return  # a scheduler does not decide on bound pods
        self.book.reserve(uid, node, claim, self.now)
        self.promised[uid] = (node, claim)

    @rule(uid=st.sampled_from(UIDS), node=st.sampled_from(NODES), claim=CLAIMS, pending=st.booleans())
    def confirm(self, uid: str, node: str, claim: Claim, pending: bool) -> None:
        node = self.bound[uid][0] if uid in self.bound else node  # pods do not move
        self.book.confirm(uid, node, claim, pending, self.now)
        self.bound[uid] = (node, claim, pending)
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
        room=st.booleans(),
    )
    def report(self, node: str, capacity: float, counted: set[str], finished: set[str], room: bool) -> None:
        self.now += 0.5
        plain = make_report(node, capacity, counted, finished)
        rich = with_room(node, (capacity / 2, capacity * 1.5e9), counted, finished=frozenset(finished))
        self.reports[node] = rich if room else plain
        self.book.report(self.reports[node], self.now)

    @rule(key=st.sampled_from([WEB, BATCH]), cost=st.sampled_from([None, (0.25, 1e9), (3.0, 0.5e9)]))
    def reprice(self, key: ClassKey, cost: tuple[float, float] | None) -> None:
        self.prices.cost[key] = cost
        self.book.reprice({key.family})

    @rule(node=st.sampled_from(NODES), there=st.booleans())
    def node(self, node: str, there: bool) -> None:
        self.book.node_added(node) if there else self.book.node_removed(node)

    @invariant()
    def sums_are_the_formula(self) -> None:
        for node, report in self.reports.items():
            standing = {uid: (n, claim) for uid, (n, claim, _) in self.bound.items()} | self.promised
            answered = (report.counted or frozenset()) | (report.finished or frozenset())
            open_ = [claim for uid, (n, claim) in standing.items() if n == node and uid not in answered]
            charges = [self.prices.charge(claim) for claim in open_]
            if not report.estimate.room:
                taken = sum(charge.units for charge in charges)
                assert free(self.book, node) == pytest.approx(report.estimate.pod_capacity - taken)
                continue
            mean = np.array([0.5, 1e9])
            amounts = [c.units * mean if c.cost is None else c.cost[:2] for c in charges]
            want = np.array(report.estimate.room) - sum(amounts, np.zeros(2))
            assert left(self.book, node) == pytest.approx(want.tolist(), abs=1e-3)
            assert free(self.book, node) == pytest.approx(float((want / mean).min()), abs=1e-9)

    @invariant()
    def what_fits_is_never_out_of_date(self) -> None:
        """The result over all rows is cached between calls, so it is read with the same charges all the time."""
        rows = np.array([account.row for _, account in self.book.accounts()], dtype=np.intp)
        for charge in (WEB_COST, NOTHING, TWO_UNITS):
            want = [fitting(self.book, row, charge) for row in rows.tolist()]
            assert self.fits.everywhere(charge)[rows].tolist() == pytest.approx(want)
            assert self.fits.at(rows[:1], charge).tolist() == pytest.approx(want[:1])
            assert [self.fits.supposing(row, charge, Sum()) for row in rows.tolist()] == pytest.approx(want)

    def teardown(self) -> None:
        again = Ledger(RowIndex(), self.prices.charge, validate=True)
        for node, _ in self.book.accounts():
            again.node_added(node)
        for uid, (node, claim, pending) in self.bound.items():
            again.confirm(uid, node, claim, pending, self.now)
        for uid, (node, claim) in self.promised.items():
            again.reserve(uid, node, claim, self.now)
        for report in self.reports.values():
            again.report(report, self.now)
        assert ledger_differences(self.book, again) == []


TestAnyOrder = AnyOrder.TestCase
