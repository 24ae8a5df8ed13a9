"""Pod-Capacity as a plugin: filter and score by what the node can still take.

A node is refused when its free capacity is below threshold × units, when its report is too old to be believed, or when
so many pods are starting there that their load is not visible yet. None of that evicts anybody unless
`preempt_for_capacity` says so: telemetry alone is no reason to kill a pod.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from carico.kube.objects import Pod
from carico.scheduler.changes import Action, Interest
from carico.scheduler.framework import MAX_SCORE, OK, SKIP, Cycle, Reason, Reuse, Status, Verdict, unresolvable
from carico.scheduler.ledger import Ledger
from carico.scheduler.rows import RowArray
from carico.scheduler.supply import Need, Needs
from carico.scheduler.template import PodInfo
from carico.scheduler.units import ANNOTATION, counts, read_units, units_of
from carico.types import Vector

NO_CAPACITY = "had no free capacity"
NO_REPORT = "had no recent capacity report"
STARTING = "had too many pods starting"

FREE, STARTS = "free", "starts"  # the amounts of this supply: pods of free capacity, pods that may start


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
        self.interests = (Interest("Node", Action.ADD), Interest("Pod", Action.POD_ANNOTATION, _other_units))
        self.supply = f"capacity by {self.rules.release}"
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
                bits[~fresh] = 0 if self._requests_suffice() else 2
        return Verdict(bits, self._reasons)

    def _requests_suffice(self) -> bool:
        """Whether a node without a recent report is judged by requests alone; not before its agent could report."""
        return self.rules.on_stale == "requests" and not self._ledger.is_expected(self._now())

    def needs(self, cycle: Cycle) -> Needs:
        units = units_of(cycle.pod.pod)
        return (Need(self.supply, FREE, self.need(cycle), units), Need(self.supply, STARTS, 1, 1))

    def available(self, resource: str, row: int) -> float:
        self._ledger.fit()
        if self.rules.on_stale != "ignore" and not self._ledger.is_fresh(row, self._now()):
            return math.inf if self._requests_suffice() else -math.inf
        return float(self._free_column()[row]) if resource == FREE else self._starts_left(row)

    def _starts_left(self, row: int) -> float:
        return float(self._start_limit(self._ledger.usage[row]) - self._ledger.starting[row])

    def _start_limit(self, usage: Vector) -> Vector:
        """Pods that may be starting at once: fewer, the fuller the node is."""
        few, many = self.rules.startup_limit, self.rules.startup_limit_idle
        return np.maximum(np.floor(few + (1 - usage) * (many - few)), min(few, many))

    def _crowded(self, cycle: Cycle, rows: RowArray | None) -> NDArray[np.bool_] | None:
        """Nodes where as many pods are starting as the live usage allows; None where no node is near its limit."""
        starting = _pick(self._ledger.starting, cycle, rows)
        if starting.max(initial=0) < min(self.rules.startup_limit, self.rules.startup_limit_idle):
            return None
        return np.asarray(starting >= self._start_limit(_pick(self._ledger.usage, cycle, rows)))

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

    def need(self, cycle: Cycle) -> float:
        """Pods of free capacity that the pod takes."""
        return self.rules.threshold * units_of(cycle.pod.pod)

    def remark(self, row: int) -> str:
        """What people should know of a node that was chosen although its report is old."""
        fresh = self._ledger.is_fresh(row, self._now())
        return "" if fresh else f" (its capacity report is stale; on_stale is {self.rules.on_stale!r})"

    def free(self, cycle: Cycle, rows: RowArray | None) -> Vector:
        return _pick(self._free_column(), cycle, rows)

    def _free_column(self) -> Vector:
        return self._ledger.free if self.rules.release == "handover" else self._ledger.free_pending


def _other_units(pod: PodInfo, old: Pod, new: Pod) -> bool:
    """The waiting pod itself says something else about its units."""
    return new.uid == pod.uid and old.metadata.annotations.get(ANNOTATION) != new.metadata.annotations.get(ANNOTATION)


Column = TypeVar("Column", bound=np.generic)


def _pick(column: NDArray[Column], cycle: Cycle, rows: RowArray | None) -> NDArray[Column]:
    return column[: len(cycle.snapshot)] if rows is None else column.take(rows)
