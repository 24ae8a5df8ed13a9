"""A plan, tried on snapshot and ledger: pods placed and removed hypothetically, on any number of rows.

    with Trial(snapshot, ledger, classes.claim, now) as trial:
        trial.place(first, "node-1")
        trial.move(other.uid, "node-2")      filters and scores see all of it
        ...                                  at the end everything is as it was before, bit for bit

No waiting pod is woken up and nothing is written to a journal, so nothing may await inside. Trials do not nest; the
latest steps of one are undone by `undo(mark)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from carico.errors import CaricoError
from carico.scheduler.cache.accounts import PodEntry, SavedAccount
from carico.scheduler.cache.charge import Claim
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cache.units import counts

__all__ = ["Trial"]


class _Step(NamedTuple):
    row: int
    on: dict[str, PodInfo]  # the pods of the row before it
    saved: SavedAccount | None  # the node's account before it; None: the ledger has no account of it
    uid: str
    before: PodEntry | None  # the pod's entry before it


class Trial:
    def __init__(self, snapshot: Snapshot, ledger: Ledger, claim_of: Callable[[PodInfo], Claim], now: float) -> None:
        self._snapshot, self._ledger, self._claim_of, self._now = snapshot, ledger, claim_of, now
        self._steps: list[_Step] = []

    def __enter__(self) -> Trial:
        if self._ledger.trying:
            raise CaricoError("a trial is in progress already")
        self._ledger.trying = True
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()
        self._ledger.trying = False

    def place(self, pod: PodInfo, node: str) -> None:
        """The pod is on this node, and on no other."""
        if pod.uid in self._snapshot.pods:
            raise CaricoError(f"{pod.pod.key} has a node already; move it")
        row = self._snapshot.rows.number.get(node)
        if row is None or row >= len(self._snapshot):
            raise CaricoError(f"no node is called {node!r}")
        self._begin(pod.uid, row)
        self._snapshot.try_pod(pod, row)
        if counts(pod.pod):
            self._ledger.reserve(pod.uid, node, self._claim_of(pod), self._now)

    def remove(self, uid: str) -> PodInfo:
        """The pod is on no node; where the node's report counts it, the report's room stays as it is."""
        pod, row = self._snapshot.pods[uid]
        self._begin(uid, row)
        self._snapshot.try_without(uid)
        self._ledger.forget(uid)
        return pod

    def move(self, uid: str, node: str) -> None:
        self.place(self.remove(uid), node)

    def mark(self) -> int:
        """The present state, for `undo`."""
        return len(self._steps)

    def undo(self, mark: int = 0) -> None:
        """Undoes everything since the mark, the newest first."""
        while len(self._steps) > mark:
            step = self._steps.pop()
            self._snapshot.undo_try(step.row, step.on)
            if step.saved is not None:
                self._ledger.put_back(step.uid, step.before, step.saved)

    def _begin(self, uid: str, row: int) -> None:
        node = self._snapshot.name(row)
        saved = self._ledger.save(node) if self._ledger.account(node) is not None else None
        self._steps.append(_Step(row, dict(self._snapshot.on[row]), saved, uid, self._ledger.entry(uid)))
