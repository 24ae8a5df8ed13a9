"""The figures of all nodes as one matrix, so that finding what changed since the last message is a vector operation.

One row per node (the rows of snapshot and ledger), one column per figure. The usage comes from reports, the capacity
from the ledger, pods and Nodes from the snapshot; `refresh` reads the journals, and `matrix` combines all figures.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carico.columns import grown
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.settings import DIMENSIONS
from carico.types import Mode, NodeReport

Matrix32 = NDArray[np.float32]

# Column numbers; the usage of each dimension follows.
STATE, CAPACITY, RESERVED, PODS, STARTING, USAGE = range(6)
# Bits of STATE.
FRESH, REPORTED, CHURN, CORDONED = 1, 2, 4, 8
# The smallest change that is sent to readers: less than the page shows.
TOLERANCE = {STATE: 0.5, CAPACITY: 0.05, RESERVED: 0.005, PODS: 0.5, STARTING: 0.5}
USAGE_TOLERANCE = 0.005


class Columns:
    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        self._snapshot, self._ledger = snapshot, ledger
        self.dimensions: list[str] = []  # in the order in which reports first named them
        self._usage: Matrix32 = np.zeros((0, len(DIMENSIONS)), dtype=np.float32)
        self._churn: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._reported: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._pods: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._names: list[str] = []  # the node whose figures a row has
        self.handed_on: list[int] = []  # rows reassigned to another node; the history's owner takes and clears them
        self._node_mark = snapshot.node_changes.mark
        self._pod_mark = snapshot.pod_changes.mark
        self._count_pods(range(len(snapshot)))

    def __len__(self) -> int:
        return len(self._names)

    def name(self, row: int) -> str:
        return self._names[row]

    def record(self, report: NodeReport) -> None:
        """Record a report that was taken into the ledger."""
        row = self._snapshot.rows.number.get(report.node)
        if row is None:
            return
        self._fit(row + 1)
        self._own(row, report.node)
        for dimension, value in zip(report.dimensions, report.estimate.usage, strict=False):
            number = self._number(dimension)
            if number is not None:
                self._usage[row, number] = value
        self._churn[row] = report.estimate.mode is Mode.CHURN
        self._reported[row] = True

    def refresh(self) -> RowArray:
        """Read the snapshot's changes; returns the rows whose Node was added, deleted or changed."""
        snapshot = self._snapshot
        self._fit(len(snapshot))
        pods = snapshot.pod_changes.since(self._pod_mark)
        self._count_pods(range(len(snapshot)) if pods is None else np.unique(pods).tolist())
        nodes = snapshot.node_changes.since(self._node_mark)
        rows = snapshot.all_rows() if nodes is None else np.unique(nodes)
        self._node_mark, self._pod_mark = snapshot.node_changes.mark, snapshot.pod_changes.mark
        for row in rows.tolist():
            self._own(row, snapshot.rows.names[row])
        return rows

    def present(self) -> RowArray:
        return np.flatnonzero(self._snapshot.present)

    def matrix(self, now: float) -> Matrix32:
        """All figures of all rows, including rows without a node."""
        snapshot, ledger, length = self._snapshot, self._ledger, len(self._snapshot)
        self._fit(length)
        state = (
            FRESH * ledger.fresh(now)[:length]
            + REPORTED * self._reported[:length]
            + CHURN * self._churn[:length]
            + CORDONED * snapshot.unschedulable
        )
        table = np.empty((length, USAGE + len(self.dimensions)), dtype=np.float32)
        table[:, STATE] = state
        table[:, CAPACITY] = ledger.pod_capacity[:length]
        table[:, RESERVED] = ledger.reserved[:length]
        table[:, PODS] = self._pods[:length]
        table[:, STARTING] = ledger.starting[:length]
        table[:, USAGE:] = self._usage[:length, : len(self.dimensions)]
        return table

    def plain(self, matrix: Matrix32, rows: RowArray) -> list[list[Any]]:
        """Rows as a reader gets them: row number, name, state, capacity, reserved, pods, starting, usage …"""
        figures = np.round(matrix[rows].astype(np.float64), 3)
        shown: list[list[Any]] = [
            [row, self._names[row], *values] for row, values in zip(rows.tolist(), figures.tolist(), strict=True)
        ]
        for row in shown:
            for column in (STATE, PODS, STARTING):
                row[2 + column] = int(row[2 + column])
            row[2 + USAGE :] = [None if math.isnan(value) else value for value in row[2 + USAGE :]]
        return shown

    # --- inside ---

    def _fit(self, length: int) -> None:
        if len(self._names) >= length:
            return
        self._names += [""] * (length - len(self._names))
        self._usage = grown(self._usage, length, np.nan)
        self._churn, self._reported = grown(self._churn, length), grown(self._reported, length)
        self._pods = grown(self._pods, length)

    def _own(self, row: int, name: str) -> None:
        """Assign the row to this node; a reused row loses the figures of its previous node."""
        if self._names[row] != name:
            self._names[row] = name
            self.handed_on.append(row)
            self._usage[row], self._churn[row], self._reported[row] = np.nan, False, False

    def _number(self, dimension: str) -> int | None:
        """The dimension's column; None for names that no agent uses: invented ones could displace the real ones."""
        if dimension not in self.dimensions:
            if dimension not in DIMENSIONS:
                return None
            self.dimensions.append(dimension)
        return self.dimensions.index(dimension)

    def _count_pods(self, rows: Any) -> None:
        self._fit(len(self._snapshot))
        for row in rows:
            self._pods[row] = len(self._snapshot.on[row])


def changed(before: Matrix32, after: Matrix32) -> RowArray:
    """Rows that differ by more than the page shows; all rows if the number of columns differs."""
    if before.shape[1:] != after.shape[1:]:
        return np.arange(len(after), dtype=np.intp)
    known = min(len(before), len(after))
    limits = np.array([*TOLERANCE.values(), *[USAGE_TOLERANCE] * (after.shape[1] - USAGE)], dtype=np.float32)
    old, new = before[:known], after[:known]
    moved = (np.abs(new - old) >= limits) | (np.isnan(new) != np.isnan(old))
    return np.concatenate([np.flatnonzero(moved.any(axis=1)), np.arange(known, len(after), dtype=np.intp)])
