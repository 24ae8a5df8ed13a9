"""What `carico explain` says about nodes that Capacity rejects: the room that is left, and the oldest starting pods."""

from __future__ import annotations

import math
from collections.abc import Mapping

from carico.scheduler.cache.accounts import Account
from carico.scheduler.cache.charge import RESOURCES
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.framework import amounts
from carico.types import Matrix

OLDEST = 3  # starting pods that are named


class RowTexts:
    """Copies of what the texts need; a call makes those of one row."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, rows: RowArray, left: Matrix) -> None:
        """`left` has a column per row."""
        self._accounts = _accounts(ledger, rows)
        self._reports = [account.report if account is not None else None for account in self._accounts]
        self._nodes = [snapshot.nodes[row] for row in rows.tolist()]
        self._left, self._has_room = left.T.tolist(), ledger.has_room[rows].tolist()
        self._starting: dict[int, list[str]] = {}

    def name_starting(self, snapshot: Snapshot, crowded: Mask, itself: str, now: float) -> None:
        """Adds the pods that have been starting longest on crowded rows, without the pod itself."""
        for index in crowded.nonzero()[0].tolist():
            account = self._accounts[index]
            others = [entry for entry in account.pods.values() if entry.uid != itself] if account is not None else []
            oldest = sorted((entry for entry in others if entry.pending), key=lambda entry: entry.since)[:OLDEST]
            self._starting[index] = [f"{_key(snapshot, entry.uid)} for {now - entry.since:.0f} s" for entry in oldest]

    def __call__(self, index: int) -> list[str]:
        room = self._room(index) if self._has_room[index] else ""
        return [*([f"has room for {room}"] if room else []), *self._starting.get(index, [])]

    def _room(self, index: int) -> str:
        left = {name: amount for name, amount in zip(RESOURCES, self._left[index], strict=True) if amount < math.inf}
        return room_left(left) + amounts.busy(self._reports[index], self._nodes[index])


def room_left(left: Mapping[str, float]) -> str:
    return amounts.amounts_text((name, max(0.0, amount)) for name, amount in left.items())


def _accounts(ledger: Ledger, rows: RowArray) -> list[Account | None]:
    by_row = {account.row: account for _, account in ledger.accounts()}
    return [by_row.get(row) for row in rows.tolist()]


def _key(snapshot: Snapshot, uid: str) -> str:
    known = snapshot.pods.get(uid)
    return known[0].pod.key if known is not None else f"pod {uid}"
