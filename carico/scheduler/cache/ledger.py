"""What nodes have left for pods, by the nodes' own reports: left = room − reserved, per resource.

One row per node, in arrays (room.py), so that a decision over 20,000 nodes is a few vector operations. Pods are entered
by `reserve` (this scheduler assumed them on a node) and `confirm` (the API server has them bound there, by any client),
and removed by `release` (the binding failed) and `forget` (deleted, or ended); all four are idempotent. A `hold`
reserves room for something that is not a pod yet, and ends by itself. Reports are entered by
`report`. Nothing here waits, reads a clock or does I/O.

**Hand-over.** The ledger keeps no history. A pod is reserved exactly as long as its node's report does not cover it:

    reserved(node) = Σ charge of pods reserved or bound there whose UID ∉ counted ∪ finished of the node's last report

so a pod moves from `reserved` into the node's own figures in the same step that applies the report, and a ledger that
is rebuilt after a restart is the same as one that was maintained all the time. Pods that have ended, DaemonSet pods and
static pods are never in it: the caller leaves them out. The older rule, that a pod is reserved while it is Pending,
independent of its node's report, is computed too, for comparison; it has a gap under bursts.

**Charges.** A pod takes the present cost of its class (class_costs.py): when that cost changes, `reprice` charges all
pods of the class again.

**Starting.** A pod is starting from its reservation until the API server reports that it runs, but for at most
`startup_patience` seconds: one that cannot pull its image would keep other pods off the node as long as it exists. From
then on it is an ordinary reservation. For the same time it is a probe (probes.py) if its class has not been measured:
after that its load is in the node's figures, or will never be.
"""

from __future__ import annotations

import copy
import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from carico.errors import InvalidMessage
from carico.scheduler.cache.accounts import NO_PODS, Account, Hold, PodEntry, SavedAccount
from carico.scheduler.cache.charge import Charge, Claim, Sum
from carico.scheduler.cache.freshness import NEVER, Freshness
from carico.scheduler.cache.probes import Probes
from carico.scheduler.cache.room import LEFT, PODS, RoomColumns
from carico.scheduler.cache.rows import Mask, RowIndex
from carico.types import ClassKey, NodeReport

TOLERANCE = 1e-6  # relative, and pods: for rounding errors of sums
HOLD = "hold:"  # begins the key of a hold, where that of a pod is its UID
STALE_BEATS = 2.5  # heartbeats without a report after which a node is stale


def by_units(claim: Claim) -> Charge:
    """Without class costs: every pod counts as one, or as the units of its annotation."""
    return Charge(units=claim.units or 1.0)


class Ledger(RoomColumns):
    def __init__(
        self,
        rows: RowIndex,
        charge: Callable[[Claim], Charge] = by_units,
        *,
        validate: bool = False,
        heartbeat: float = 5.0,
        startup_patience: float = 60.0,
        on_handover: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__()
        self._rows = rows
        self._charge = charge
        self._validate = validate
        self._heartbeat = heartbeat
        self._startup_patience = startup_patience
        self._on_handover = on_handover
        self._entries: dict[str, PodEntry] = {}
        self._families: dict[str, dict[str, PodEntry]] = {}  # entries by the family of their class and UID
        self.probes = Probes()
        self._accounts: dict[str, Account] = {}
        self._starts: deque[tuple[float, str]] = deque()  # when a start becomes overdue, s, monotonic; and the pod
        self._ends: list[tuple[float, str]] = []  # heap: when holds end, s, monotonic; outdated ones are skipped
        self._reports_due = NEVER  # s, monotonic: until then the first reports of nodes are awaited
        self._was_fresh: Mask = np.zeros(0, dtype=np.bool_)  # at the last `expire`
        self.touched: set[int] = set()  # rows that may have more left than before; the caller clears it
        self._freshness = Freshness()
        self.trying = False  # during a trial: no account is closed

    # --- lookups ---

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def entry(self, uid: str) -> PodEntry | None:
        return self._entries.get(uid)

    def account(self, node: str) -> Account | None:
        return self._accounts.get(node)

    def accounts(self) -> Iterator[tuple[str, Account]]:
        return iter(self._accounts.items())

    @property
    def length(self) -> int:
        """Rows in use or free; the columns may be longer."""
        return len(self._rows)

    @property
    def all_have_room(self) -> bool:
        """Whether every node reports room per resource."""
        return self.nodes_with_room == len(self._accounts)

    def fresh(self, now: float) -> Mask:
        """Rows whose report is fresh; read-only, and valid only until the next change."""
        self.extend()
        return self._freshness.rows(now)[: len(self._rows)]

    def is_fresh(self, row: int, now: float) -> bool:
        return bool(self._freshness.expires[row] >= now)

    def is_expected(self, now: float) -> bool:
        """Whether agents may still be connecting: a missing report does not make its node stale yet."""
        return now < self._reports_due

    def starting_on(self, node: str) -> list[PodEntry]:
        """Pods that count as starting there, the oldest first."""
        account = self._accounts.get(node)
        pods = account.pods.values() if account is not None else ()
        return sorted((entry for entry in pods if entry.starting), key=lambda entry: entry.since)

    def families(self) -> Iterator[str]:
        """Of the classes of all pods."""
        return iter(self._families)

    def of_family(self, family: str) -> Iterable[PodEntry]:
        """Its pods, without holds."""
        return [entry for entry in self._families.get(family, {}).values() if entry.until == math.inf]

    # --- time ---

    def expect_reports(self, until: float) -> None:
        """After a restart: agents may connect until then, before their nodes are evaluated without a report."""
        self._reports_due = until

    def expire(self, now: float) -> None:
        """Marks the rows that changed by time alone: starts that became overdue, and reports that became stale."""
        while self._starts and self._starts[0][0] <= now:
            _, uid = self._starts.popleft()
            entry = self._entries.get(uid)
            if entry is not None and now >= entry.since + self._startup_patience:  # rounded like the time in the queue
                self._overdue(entry)
        while self._ends and self._ends[0][0] <= now:
            _, key = heapq.heappop(self._ends)
            if (hold := self._entries.get(key)) is not None and hold.until <= now:
                self._remove(hold)
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

    def mark_disconnected(self, node: str) -> None:
        """The report stream broke: the node is stale from now until the first report of a new stream."""
        if (account := self._accounts.get(node)) is not None:
            account.connected = False
            self._set_expiry(account)
            self.touched.add(account.row)  # evaluated by requests alone, it may take pods that its report rejected
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
        """Applies a report that is newer than all before it and lists the pods that it covers."""
        if report.counted is None or report.finished is None:
            raise InvalidMessage("shape", f"a report of {report.node} does not say which pods it counts")
        account = self._accounts.get(report.node) or self._open(report.node)
        account.report, account.sampled, account.connected = report, now - report.age, True
        same = account.counted == report.counted and account.finished == report.finished
        if not same:
            self._count(account, report.counted, report.finished, now)
            self._recount(account)
        self.take_report(account.row, report)
        self._set_expiry(account)
        self.balance(account.row, account.reserved, account.pending)
        self.touched.add(account.row)
        self._check()

    # --- pods ---

    def reserve(self, uid: str, node: str, claim: Claim, now: float) -> None:
        """This scheduler assumed the pod on the node; it is not bound yet."""
        entry = self._put(uid, node, claim, now)
        entry.promised = True
        self._check()

    def confirm(self, uid: str, node: str, claim: Claim, pending: bool, now: float) -> None:
        """The API server has the pod bound to this node, by any client."""
        entry = self._put(uid, node, claim, now, pending)
        entry.bound, entry.promised = True, False
        self._check()

    def release(self, uid: str) -> None:
        """The binding failed: removes the reservation. A pod that is bound stays."""
        entry = self._entries.get(uid)
        if entry is not None and not entry.bound:
            self._remove(entry)
        self._check()

    def forget(self, uid: str) -> None:
        """The pod was deleted, or its containers ended for good."""
        if (entry := self._entries.get(uid)) is not None:
            self._remove(entry)
        self._check()

    # --- holds ---

    def hold(self, name: str, node: str, claim: Claim, until: float, now: float) -> None:
        """Reserves room for something that is not a pod yet, until that time; a hold of that name is replaced."""
        entry = self._put(HOLD + name, node, claim, now, pending=False)
        entry.until, entry.overdue = until, True  # nothing starts, and nothing is measured
        self._set_probe(entry)
        heapq.heappush(self._ends, (until, entry.uid))
        self._check()

    def release_hold(self, name: str) -> None:
        """Ends a hold before its time; no effect if there is none."""
        self.forget(HOLD + name)

    def holds(self) -> Iterator[Hold]:
        for uid, entry in self._entries.items():
            if uid.startswith(HOLD):
                yield Hold(uid.removeprefix(HOLD), entry.node, entry.claim, entry.until)

    # --- trials (trial.py) ---

    def save(self, node: str) -> SavedAccount:
        """A copy of all that a pod on the node changes there, for `put_back`."""
        account = self._accounts[node]
        columns = {name: getattr(self, name)[account.row] for name in PODS}
        columns |= {name: getattr(self, name)[:, account.row].copy() for name in LEFT}
        sums = copy.deepcopy(account.reserved), copy.deepcopy(account.pending)
        return SavedAccount(account, account.row in self.touched, len(self._starts), dict(account.pods), *sums, columns)

    def put_back(self, uid: str, before: PodEntry | None, saved: SavedAccount) -> None:
        """The pod and its node as they were. The version is a new one: what was cached meanwhile is not valid."""
        if (entry := self._entries.get(uid)) is not before:
            if entry is not None:
                self._remove(entry)
            if before is not None:
                self._entries[uid] = before
                self._families.setdefault(before.claim.key.family, {})[uid] = before
                before.probe = None  # it may have been removed
                self._set_probe(before)
        account = saved.account
        account.pods, account.reserved, account.pending = dict(saved.pods), saved.reserved, saved.pending
        for name, value in saved.columns.items():
            getattr(self, name)[..., account.row] = value
        self.version += 1
        if not saved.touched:
            self.touched.discard(account.row)
        while len(self._starts) > saved.starts:
            self._starts.pop()

    # --- cost changes ---

    def reprice(self, families: Iterable[str]) -> None:
        """Charges pods of these families again: their cost changed, or was measured for the first time."""
        concerned: dict[str, Account] = {}
        for family in families:
            for entry in self._families.get(family, {}).values():
                charge = self._charge(entry.claim)
                if charge is not entry.charge:
                    entry.charge = charge
                    self._set_probe(entry)
                    concerned[entry.node] = self._accounts[entry.node]
        for account in concerned.values():
            self._refresh(account)
            self.touched.add(account.row)
        self._check()

    # --- inside ---

    def _open(self, node: str) -> Account:
        account = self._accounts.get(node)
        if account is None:
            account = self._accounts[node] = Account(self._rows.hold(node))
            self.extend()
            self._clear(account.row)
        return account

    def _close_if_unused(self, node: str, account: Account) -> None:
        if not (self.trying or account.in_cluster or account.connected or account.pods):
            del self._accounts[node]
            self._clear(account.row)
            self._rows.drop(node)

    def extend(self) -> None:
        """Lengthens the columns to all rows, including those that the snapshot added."""
        if len(self.free) < len(self._rows) and self.fit(len(self._rows)):
            self._freshness.fit(len(self.free))

    def _clear(self, row: int) -> None:
        self.clear(row)
        self._freshness.set(row, NEVER)

    def _count(self, account: Account, counted: frozenset[str], finished: frozenset[str], now: float) -> None:
        before = account.answered()
        account.counted, account.finished = counted, finished
        if self._on_handover is not None:
            for uid in account.pods.keys() & (account.answered() - before):
                self._on_handover(now - account.pods[uid].since)

    def _recount(self, account: Account) -> None:
        """Recomputes what is reserved, by the formula at the top of this file."""
        reserved, pending, starting = Sum(), Sum(), 0
        counted, finished = account.counted or NO_PODS, account.finished
        for uid, entry in account.pods.items():
            if uid not in counted and uid not in finished:
                reserved.add(entry.charge)
            if entry.pending:
                pending.add(entry.charge)
                starting += not entry.overdue
        account.reserved, account.pending = reserved, pending
        self.starting[account.row] = starting

    def _count_last(self, account: Account, entry: PodEntry) -> None:
        """Adds a pod. Being the last of the account's, it makes the sums those of a recount, to the last bit."""
        account.pods[entry.uid] = entry
        if entry.uid not in (account.counted or NO_PODS) and entry.uid not in account.finished:
            account.reserved.add(entry.charge)
        if entry.pending:
            account.pending.add(entry.charge)
            self.starting[account.row] += not entry.overdue

    def _refresh(self, account: Account) -> None:
        self._recount(account)
        self.balance(account.row, account.reserved, account.pending)

    def _put(self, uid: str, node: str, claim: Claim, now: float, pending: bool | None = None) -> PodEntry:
        entry, overdue = self._entries.get(uid), False
        if entry is not None and (entry.node != node or entry.claim.key.family != claim.key.family):
            since, overdue = (entry.since, entry.overdue) if entry.node == node else (now, False)
            self._remove(entry)  # bound to another node than it was reserved on, or of another class by its labels
            entry, now = None, since
        account = self._open(node)
        if entry is None:
            entry = self._entries[uid] = PodEntry(uid, node, claim, self._charge(claim), now, overdue=overdue)
            entry.pending = pending is not False
            self._families.setdefault(claim.key.family, {})[uid] = entry
            self._starts.append((now + self._startup_patience, uid))
            self._count_last(account, entry)
        elif entry.claim != claim or pending not in (None, entry.pending):
            if entry.claim != claim:
                entry.claim, entry.charge = claim, self._charge(claim)
            entry.pending = entry.pending if pending is None else pending
            self._recount(account)
        else:
            return entry  # most updates of a pod change nothing here
        self._set_probe(entry)
        self.balance(account.row, account.reserved, account.pending)
        self.touched.add(account.row)  # it may take less than before, or have started
        return entry

    def _remove(self, entry: PodEntry) -> None:
        del self._entries[entry.uid]
        family = self._families[entry.claim.key.family]
        del family[entry.uid]
        if not family:
            del self._families[entry.claim.key.family]
        self._set_probe(entry, gone=True)
        account = self._accounts[entry.node]
        del account.pods[entry.uid]
        self._refresh(account)
        self.touched.add(account.row)
        self._close_if_unused(entry.node, account)

    def _overdue(self, entry: PodEntry) -> None:
        entry.overdue = True
        if entry.pending or entry.probe is not None:
            self._set_probe(entry)
            account = self._accounts[entry.node]
            self._recount(account)
            self.touched.add(account.row)

    def _set_probe(self, entry: PodEntry, *, gone: bool = False) -> None:
        wanted = None if gone or entry.overdue else entry.charge.probe
        if wanted == entry.probe:
            return
        row = self._accounts[entry.node].row
        if entry.probe is not None:
            self.probes.remove(entry.probe, row)
            self.unmeasured[row] -= 1
        if wanted is not None:
            self.probes.add(wanted, row)
            self.unmeasured[row] += 1
        entry.probe = wanted

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
        families = {uid for pods in self._families.values() for uid in pods}
        assert standing == families, f"pods in no family, or in two: {standing ^ families}"
        ending = set(self._ends)
        for hold in self.holds():
            assert (hold.until, HOLD + hold.name) in ending, f"hold {hold.name} never ends"
        probes: Counter[tuple[ClassKey, int]] = Counter()
        for node, account in self._accounts.items():
            assert self._rows.number[node] == account.row, f"{node} is not at row {account.row}"
            assert all(entry.node == node for entry in account.pods.values()), f"a pod of another node on {node}"
            probes.update((e.probe, account.row) for e in account.pods.values() if e.probe is not None)
            self._validate_sums(node, account)
        counted = {(key, row): pods for key, row, pods in self.probes}
        assert counted == probes, f"unmeasured pods are {counted}, should be {probes}"
        there = {row: pods for row, pods in enumerate(self.unmeasured.tolist()) if pods}
        by_row = Counter(row for _, row in probes.elements())
        assert there == by_row, f"unmeasured pods by row are {there}, should be {by_row}"

    def _validate_sums(self, node: str, account: Account) -> None:
        left, free = self.after(account.row, account.sum_open())
        have = float(self.free[account.row])
        assert np.isclose(have, free, TOLERANCE, TOLERANCE), f"free of {node} is {have}, should be {free}"
        same = np.isclose(self.left[:, account.row], left, TOLERANCE, TOLERANCE)
        assert same.all(), f"left of {node} is {self.left[:, account.row]}, should be {left}"
