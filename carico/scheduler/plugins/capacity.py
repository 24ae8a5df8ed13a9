"""Pod-Capacity as a plugin: filter and score by what the node can still take, reserve what was promised.

A node is refused when its free capacity is below threshold × units, when its report is too old to be believed, or when
so many pods are starting there that their load is not visible yet. None of that evicts anybody unless
`preempt_for_capacity` says so: telemetry alone is no reason to kill a pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from carico.scheduler.changes import NODE_CAPACITY, Action, Interest
from carico.scheduler.framework import MAX_SCORE, OK, SKIP, Cycle, Reason, Reuse, Status, Verdict, unresolvable
from carico.scheduler.ledger import Ledger
from carico.scheduler.rows import RowArray
from carico.scheduler.template import PodInfo
from carico.scheduler.units import ANNOTATION, counts, read_units, units_of
from carico.types import Vector

NO_CAPACITY = "had no free capacity"
NO_REPORT = "had no recent capacity report"
STARTING = "had too many pods starting"


@dataclass(frozen=True)
class CapacityRules:
    """The settings that this plugin obeys; settings.py gives the reasons."""

    threshold: float = 1.0  # pods of free capacity per unit
    on_stale: str = "filter"  # filter, requests or ignore
    release: str = "handover"  # handover or pending: which column of the ledger counts
    startup_limit: int = 8  # pods starting on a full node
    startup_limit_idle: int = 32  # … and on an idle one
    preempt: bool = False


class Capacity:
    name = "Capacity"
    reuse = Reuse.NEVER

    def __init__(self, ledger: Ledger, now: Callable[[], float], rules: CapacityRules | None = None) -> None:
        self._ledger, self._now, self.rules = ledger, now, rules or CapacityRules()
        self.interests = (Interest(NODE_CAPACITY, Action.CAPACITY), Interest("Node", Action.ADD))
        fixed = not self.rules.preempt
        self._reasons = (Reason(NO_CAPACITY, fixed), Reason(NO_REPORT, True), Reason(STARTING, True))

    def pre_filter(self, cycle: Cycle) -> Status:
        if not counts(cycle.pod.pod):
            return SKIP  # the agent itself is such a pod: without it there would be no report for ever
        if read_units(cycle.pod.pod) is None:
            text = cycle.pod.pod.metadata.annotations[ANNOTATION]
            return unresolvable(f"annotation {ANNOTATION} is {text!r}, not a number above 0")
        return OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        self._ledger.fit()
        short = self._supposed(cycle, rows) < self.need(cycle)
        bits: NDArray[np.uint8] = short.view(np.uint8)
        crowded = self._crowded(cycle, rows)
        if crowded is not None:
            bits |= crowded.view(np.uint8) << np.uint8(2)
        if self.rules.on_stale != "ignore":
            fresh = _pick(self._ledger.fresh(self._now()), cycle, rows)
            if not fresh.all():
                bits[~fresh] = 2 if self.rules.on_stale == "filter" else 0
        return Verdict(bits, self._reasons)

    def _crowded(self, cycle: Cycle, rows: RowArray | None) -> NDArray[np.bool_] | None:
        """Nodes where as many pods are starting as the live usage allows: fewer, the fuller the node is.

        None where no node is near its limit.
        """
        starting = _pick(self._ledger.starting, cycle, rows)
        few, many = self.rules.startup_limit, self.rules.startup_limit_idle
        if starting.max(initial=0) < min(few, many):
            return None
        limit = few + (1 - _pick(self._ledger.usage, cycle, rows)) * (many - few)
        return np.asarray(starting >= np.floor(limit))

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        """In proportion to the free capacity; a node judged by requests alone comes last."""
        self._ledger.fit()
        free = self._supposed(cycle, rows)
        np.maximum(free, 0.0, out=free)
        if self.rules.on_stale == "requests":
            free[~_pick(self._ledger.fresh(self._now()), cycle, rows)] = 0.0
        most = float(free.max(initial=0.0))
        if most > 0:
            free *= MAX_SCORE / most
        return free

    def add_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        """A pod is only thought there: it would take its units."""
        if counts(pod.pod):
            supposed: dict[int, float] = cycle.state.setdefault(self.name, {})
            supposed[row] = supposed.get(row, 0.0) - units_of(pod.pod)

    def remove_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        """A pod is thought away: its units would come back once it has ended."""
        if counts(pod.pod):
            supposed: dict[int, float] = cycle.state.setdefault(self.name, {})
            supposed[row] = supposed.get(row, 0.0) + units_of(pod.pod)

    def _supposed(self, cycle: Cycle, rows: RowArray | None) -> Vector:
        free = self.free(cycle, rows)
        if supposed := cycle.state.get(self.name):
            free = free.copy()
            for row, change in supposed.items():
                free[row if rows is None else rows == row] += change
        return free

    def reserve(self, cycle: Cycle, node: str) -> Status:
        if counts(cycle.pod.pod):
            self._ledger.reserve(cycle.pod.uid, node, units_of(cycle.pod.pod), self._now())
        return OK

    def unreserve(self, cycle: Cycle, node: str) -> None:
        self._ledger.release(cycle.pod.uid, self._now())

    def need(self, cycle: Cycle) -> float:
        """Pods of free capacity that the pod takes."""
        return self.rules.threshold * units_of(cycle.pod.pod)

    def remark(self, row: int) -> str:
        """What people should know of a node that was chosen although its report is old."""
        fresh = self._ledger.is_fresh(row, self._now())
        return "" if fresh else f" (its capacity report is stale; on_stale is {self.rules.on_stale!r})"

    def free(self, cycle: Cycle, rows: RowArray | None) -> Vector:
        column = self._ledger.free if self.rules.release == "handover" else self._ledger.free_pending
        return _pick(column, cycle, rows)


Column = TypeVar("Column", bound=np.generic)


def _pick(column: NDArray[Column], cycle: Cycle, rows: RowArray | None) -> NDArray[Column]:
    return column[: len(cycle.snapshot)] if rows is None else column.take(rows)
