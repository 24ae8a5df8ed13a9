"""Who may still be put where, by the nodes' own word: free = Pod-Capacity − reserved.

One row per node, in arrays, so that a decision over 20,000 nodes is a few vector operations. Pods come in through
`reserve` (this scheduler promised them a node), `confirm` (the API server says that they are bound there, whoever did
it), `release` (a promise was withdrawn) and `forget` (deleted, or ended); all four may be repeated without harm.
Reports come in through `report`. Nothing here waits, reads a clock or speaks to anybody.

**Hand-over.** The ledger keeps no history. A pod is reserved exactly as long as its node does not answer for it:

    reserved(node) = Σ units of pods promised or bound there whose UID ∉ counted ∪ finished of the node's last report

so a pod moves from `reserved` into Pod-Capacity in the very step that takes the report in, and a ledger that was built
anew after a restart is the same as one that lived through it all. Pods that have ended, DaemonSet pods and static pods
are never in it: the caller leaves them out. Beside it stands `free_pending`, by the older rule that a pod is reserved
while it is Pending, whatever its node says; kept for comparison, for it has a gap under bursts.

**Starting.** A pod is starting from the promise until the API server says that it runs, but for `startup_patience`
seconds at most: one that cannot pull its image would keep others off the node for as long as it exists. From then on it
is an ordinary reservation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from carico.errors import RefusedMessage
from carico.scheduler.freshness import NEVER, Freshness
from carico.scheduler.rows import Mask, Rows, grown
from carico.types import NodeReport, Vector

NOBODY: frozenset[str] = frozenset()
TOLERANCE = 1e-6  # pods; fractional units may leave rounding errors behind
COLUMNS = ("capacity", "reserved", "pending", "free", "free_pending", "usage", "starting")
STALE_BEATS = 2.5  # heartbeats without a report after which a node is stale


@dataclass(slots=True)
class Entry:
    """A pod that stands on a node's account."""

    uid: str
    node: str
    units: float
    since: float  # s, monotonic: when it was first promised or seen
    pending: bool = True  # not running yet, as far as the API server knows
    overdue: bool = False  # pending for longer than a start takes
    promised: bool = False
    bound: bool = False


@dataclass(slots=True)
class Account:
    """A node's row and what it last said."""

    row: int
    counted: frozenset[str] | None = None  # None before the first report
    finished: frozenset[str] = NOBODY
    pods: dict[str, Entry] = field(default_factory=dict)
    report: NodeReport | None = None
    sampled: float = NEVER  # s on this process's monotonic clock: when the newest sample was taken
    connected: bool = False
    in_cluster: bool = False  # the API server has a Node of this name


class Ledger:
    def __init__(
        self,
        rows: Rows,
        *,
        validate: bool = False,
        heartbeat: float = 5.0,
        startup_patience: float = 60.0,
        on_handover: Callable[[float], None] | None = None,
    ) -> None:
        self._rows = rows
        self._validate = validate
        self._heartbeat = heartbeat
        self._startup_patience = startup_patience
        self._on_handover = on_handover
        self._entries: dict[str, Entry] = {}
        self._accounts: dict[str, Account] = {}
        self._starts: deque[tuple[float, str]] = deque()  # when a start becomes overdue, s, monotonic; and the pod
        self._reports_due = NEVER  # s, monotonic: until then nodes that have not reported yet may still do so
        self._was_fresh: Mask = np.zeros(0, dtype=np.bool_)  # at the last `expire`
        self.touched: set[int] = set()  # rows that may take more than before; the caller empties it
        self.capacity: Vector = np.zeros(0)
        self.reserved: Vector = np.zeros(0)
        self.pending: Vector = np.zeros(0)  # what would be reserved by the older rule
        self.free: Vector = np.zeros(0)  # by the hand-over
        self.free_pending: Vector = np.zeros(0)  # by the older rule
        self._freshness = Freshness()
        self.usage: Vector = np.zeros(0)  # of the fullest resource
        self.starting: Vector = np.zeros(0)  # pods that were promised or bound not long ago and are still Pending

    # --- questions ---

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def entry(self, uid: str) -> Entry | None:
        return self._entries.get(uid)

    def account(self, node: str) -> Account | None:
        return self._accounts.get(node)

    def accounts(self) -> Iterator[tuple[str, Account]]:
        return iter(self._accounts.items())

    def fresh(self, now: float) -> Mask:
        """Rows whose report may be believed; for reading only, and only until the next change."""
        self.fit()
        return self._freshness.rows(now)[: len(self._rows)]

    def is_fresh(self, row: int, now: float) -> bool:
        return bool(self._freshness.expires[row] >= now)

    def is_expected(self, now: float) -> bool:
        """Whether agents may still be connecting: a missing report says nothing about its node yet."""
        return now < self._reports_due

    def starting_on(self, node: str) -> list[Entry]:
        """Pods that count as starting there, the oldest first."""
        account = self._accounts.get(node)
        pods = account.pods.values() if account is not None else ()
        return sorted((e for e in pods if e.pending and not e.overdue), key=lambda e: e.since)

    # --- time ---

    def expect_reports(self, until: float) -> None:
        """From a restart on, the agents get this long to connect before their nodes are judged without a report."""
        self._reports_due = until

    def expire(self, now: float) -> None:
        """Notes the rows that time alone has changed: starts that became overdue, and reports that became stale."""
        while self._starts and self._starts[0][0] <= now:
            _, uid = self._starts.popleft()
            entry = self._entries.get(uid)
            if entry is not None and entry.pending and now - entry.since >= self._startup_patience:
                entry.overdue = True
                self._recount(self._accounts[entry.node])
                self.touched.add(self._accounts[entry.node].row)
        fresh = self.fresh(now)
        before = self._was_fresh[: len(fresh)]
        self.touched.update(np.flatnonzero(before & ~fresh[: len(before)]).tolist())
        self._was_fresh = fresh.copy()
        if self._reports_due > NEVER and now >= self._reports_due:
            self._reports_due = NEVER
            self.touched.update(account.row for account in self._accounts.values())

    # --- nodes ---

    def node_added(self, node: str) -> None:
        self._open(node).in_cluster = True

    def node_removed(self, node: str) -> None:
        if (account := self._accounts.get(node)) is not None:
            account.in_cluster = False
            self._close_if_unused(node, account)

    def fell_silent(self, node: str) -> None:
        """The report stream broke: the node is stale from this moment, until a new stream brings a report."""
        if (account := self._accounts.get(node)) is not None:
            account.connected = False
            self._set_expiry(account)
            self.touched.add(account.row)  # judged by requests alone, it may take pods that its report refused
            self._close_if_unused(node, account)

    def set_heartbeat(self, seconds: float) -> None:
        if seconds != self._heartbeat:
            self._heartbeat = seconds
            for account in self._accounts.values():
                self._set_expiry(account)

    @property
    def heartbeat(self) -> float:
        return self._heartbeat

    def report(self, report: NodeReport, now: float) -> None:
        """Takes in a report that is newer than all before it and says which pods it answers for."""
        if report.counted is None or report.finished is None:
            raise RefusedMessage("shape", f"a report of {report.node} does not say which pods it counts")
        account = self._accounts.get(report.node) or self._open(report.node)
        account.report, account.sampled, account.connected = report, now - report.age, True
        same = account.counted == report.counted and account.finished == report.finished
        if not same:
            self._count(account, report.counted, report.finished, now)
            self._recount(account)
        self.capacity[account.row] = report.estimate.pod_capacity
        self.usage[account.row] = max(report.estimate.usage, default=0.0)
        self._set_expiry(account)
        self._balance(account.row)
        self.touched.add(account.row)
        self._check()

    # --- pods ---

    def reserve(self, uid: str, node: str, units: float, now: float) -> None:
        """This scheduler gave the pod a node; it is not bound yet."""
        entry = self._put(uid, node, units, now)
        entry.promised = True
        self._check()

    def confirm(self, uid: str, node: str, units: float, pending: bool, now: float) -> None:
        """The API server has the pod on this node, whoever put it there."""
        entry = self._put(uid, node, units, now, pending)
        entry.bound, entry.promised = True, False
        self._check()

    def release(self, uid: str) -> None:
        """The promise did not become a binding. A pod that is bound after all stays."""
        entry = self._entries.get(uid)
        if entry is not None and not entry.bound:
            self._remove(entry)
        self._check()

    def forget(self, uid: str) -> None:
        """The pod was deleted, or its containers ended for good."""
        if (entry := self._entries.get(uid)) is not None:
            self._remove(entry)
        self._check()

    # --- inside ---

    def _open(self, node: str) -> Account:
        account = self._accounts.get(node)
        if account is None:
            account = self._accounts[node] = Account(self._rows.hold(node))
            self.fit()
            self._clear(account.row)
        return account

    def _close_if_unused(self, node: str, account: Account) -> None:
        if not (account.in_cluster or account.connected or account.pods):
            del self._accounts[node]
            self._clear(account.row)
            self._rows.drop(node)

    def fit(self) -> None:
        """Lengthens the columns to the rows that others have taken."""
        length = len(self._rows)
        if len(self.free) < length:
            for name in COLUMNS:
                setattr(self, name, grown(getattr(self, name), length))
            self._freshness.fit(len(self.free))

    def _clear(self, row: int) -> None:
        for name in COLUMNS:
            getattr(self, name)[row] = 0.0
        self._freshness.set(row, NEVER)

    def _count(self, account: Account, counted: frozenset[str], finished: frozenset[str], now: float) -> None:
        answered = self._answered(account)
        account.counted, account.finished = counted, finished
        if self._on_handover is not None:
            for uid in account.pods.keys() & (self._answered(account) - answered):
                self._on_handover(now - account.pods[uid].since)

    def _answered(self, account: Account) -> frozenset[str]:
        return (account.counted or NOBODY) | account.finished

    def _weight(self, entry: Entry, account: Account) -> float:
        known = entry.uid in (account.counted or NOBODY) or entry.uid in account.finished
        return 0.0 if known else entry.units

    def _recount(self, account: Account) -> None:
        """What is reserved: the formula at the top of this file."""
        row, reserved, pending, starting = account.row, 0.0, 0.0, 0
        for entry in account.pods.values():
            reserved += self._weight(entry, account)
            if entry.pending:
                pending += entry.units
                starting += not entry.overdue
        self.reserved[row], self.pending[row], self.starting[row] = reserved, pending, starting

    def _balance(self, row: int) -> None:
        self.free[row] = self.capacity[row] - self.reserved[row]
        self.free_pending[row] = self.capacity[row] - self.pending[row]

    def _refresh(self, account: Account) -> None:
        self._recount(account)
        self._balance(account.row)

    def _put(self, uid: str, node: str, units: float, now: float, pending: bool | None = None) -> Entry:
        entry = self._entries.get(uid)
        if entry is not None and entry.node != node:  # bound elsewhere than we promised
            self._remove(entry)
            entry = None
        if entry is None:
            entry = self._entries[uid] = Entry(uid, node, units, now)
            self._starts.append((now + self._startup_patience, uid))
        entry.units = units
        entry.pending = entry.pending if pending is None else pending
        account = self._open(node)
        account.pods[uid] = entry
        self._refresh(account)
        self.touched.add(account.row)  # it may take fewer units than before, or have started
        return entry

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.uid]
        account = self._accounts[entry.node]
        del account.pods[entry.uid]
        self._refresh(account)
        self.touched.add(account.row)
        self._close_if_unused(entry.node, account)

    def _set_expiry(self, account: Account) -> None:
        alive = account.connected and account.counted is not None
        until = account.sampled + STALE_BEATS * self._heartbeat if alive else NEVER
        self._freshness.set(account.row, until)

    def _check(self) -> None:
        if self._validate:
            self.validate()

    def validate(self) -> None:
        """Recomputes everything from the pods and the last reports, and raises AssertionError at a difference."""
        standing = {uid for account in self._accounts.values() for uid in account.pods}
        assert standing == self._entries.keys(), f"pods on no account, or on two: {standing ^ self._entries.keys()}"
        for node, account in self._accounts.items():
            assert self._rows.number[node] == account.row, f"{node} is not at row {account.row}"
            assert all(entry.node == node for entry in account.pods.values()), f"a pod of another node on {node}"
            reserved = sum(self._weight(entry, account) for entry in account.pods.values())
            for name, want in (("reserved", reserved), ("free", self.capacity[account.row] - reserved)):
                have = float(getattr(self, name)[account.row])
                assert abs(have - want) <= TOLERANCE, f"{name} of {node} is {have}, should be {want}"
