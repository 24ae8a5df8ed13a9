"""What nodes can still take, as a plugin: filter and score by room per resource.

A node is refused when one of its resources has less left than threshold × what a pod of this class costs; when so many
pods are starting there that their load is not visible yet; when it has a pod of the same class that nobody has measured
so far; or when its report is too old to be believed. A node whose agent reports Pod-Capacity alone is refused when less
than threshold × the pod's units are free, and so is every node for a pod with units of its own. None of that evicts
anybody unless `preempt_for_capacity` says so: telemetry alone is no reason to kill a pod.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from carico.kube.objects import Pod
from carico.pod_class import COST_CLASS
from carico.scheduler import words
from carico.scheduler.changes import Action, Interest
from carico.scheduler.charge import NUMBER, RESOURCES, Charge, Sum
from carico.scheduler.class_costs import ClassTable
from carico.scheduler.framework import MAX_SCORE, OK, SKIP, Cycle, Reason, Reuse, Status, Verdict, unresolvable
from carico.scheduler.ledger import Ledger
from carico.scheduler.rows import Mask, RowArray
from carico.scheduler.supply import Need, Needs
from carico.scheduler.template import PodInfo
from carico.scheduler.units import ANNOTATION, counts, read_units
from carico.types import ClassKey, Matrix, Vector

NO_CAPACITY = "had no free capacity"
NO_REPORT = "had no recent capacity report"
STARTING = "had too many pods starting"
UNMEASURED = "had a pod of the same class that is not measured yet"
# By resource; a verdict has eight bits.
TOO_LITTLE = ("had too little cpu left", "had too little memory left", "had too much pressure",
              "had too little disk or network left")  # fmt: skip
REASON_OF = {"cpu": 4, "memory": 5, "memory_pressure": 6, "io_pressure": 6, "disk": 7, "network": 7}

# The amounts of this supply beside the resources: pods of free capacity, the same on nodes that report no room, pods
# that may start, and PROBE with a class: unmeasured pods of it that may come.
FREE, FREE_WITHOUT_ROOM, STARTS, PROBE = "free", "free without room", "starts", "probe:"
ROUNDING = 1 - 1e-9  # sums of amounts are not exact
FEW = 4  # a column of so many times as many rows as are wanted is looked at whole
MOST = 1e6  # pods that are said to fit where nothing limits them


@dataclass(frozen=True)
class CapacityRules:
    """The settings that this plugin obeys; settings.py gives the reasons."""

    threshold: float = 1.0  # times what a pod costs
    on_stale: str = "filter"  # filter, requests or ignore
    release: str = "handover"  # handover or pending: which columns of the ledger count
    startup_limit: int = 8  # pods starting on a full node
    startup_limit_idle: int = 32  # … and on an idle one
    unmeasured_per_node: int = 1  # pods of a class that nobody has measured
    preempt: bool = False


@dataclass(slots=True)
class _Supposed:
    """What pods that are only thought there, or thought away, would take on one row."""

    taken: Sum = field(default_factory=Sum)
    probes: Counter[ClassKey] = field(default_factory=Counter)


class Capacity:
    name = "Capacity"
    reuse = Reuse.NEVER

    def __init__(
        self,
        ledger: Ledger,
        now: Callable[[], float],
        rules: CapacityRules | None = None,
        classes: ClassTable | None = None,
    ) -> None:
        self._ledger, self._now, self.rules = ledger, now, rules or CapacityRules()
        self.classes = ClassTable() if classes is None else classes
        self.interests = (
            Interest("Node", Action.ADD),
            Interest("Pod", Action.POD_ANNOTATION, _claims_otherwise),
            Interest("ClassCost", Action.UPDATE, self._is_of_family),
        )
        self.supply = f"capacity by {self.rules.release}"
        self._by_pending = self.rules.release == "pending"
        fixed = not self.rules.preempt
        self._reasons = (
            Reason(NO_CAPACITY, fixed),
            Reason(NO_REPORT, True),
            Reason(STARTING, True),
            Reason(UNMEASURED, True),
            *(Reason(text, fixed) for text in TOO_LITTLE),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        if not counts(cycle.pod.pod):
            return SKIP  # the agent itself is such a pod: without it there would be no report for ever
        if read_units(cycle.pod.pod) is None:
            text = cycle.pod.pod.metadata.annotations[ANNOTATION]
            return unresolvable(f"annotation {ANNOTATION} is {text!r}, not a number above 0")
        return OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        self._ledger.extend()
        charge = self.charge(cycle.pod)
        bits = self._short(cycle, rows, charge)
        crowded = self._crowded(cycle, rows)
        if crowded is not None:
            bits |= crowded.view(np.uint8) << np.uint8(2)
        if charge.probe is not None:
            self._mark_probed(bits, cycle, rows, charge.probe)
        if self.rules.on_stale != "ignore":
            fresh = _pick(self._ledger.fresh(self._now()), cycle, rows)
            if not fresh.all():
                bits[~fresh] = 0 if self._requests_suffice() else 2
        return Verdict(bits, self._reasons)

    def _short(self, cycle: Cycle, rows: RowArray | None, charge: Charge) -> NDArray[np.uint8]:
        """Rows that lack pods or amounts."""
        free, left = self._columns(cycle, rows, charge)
        short: Mask = free < self._least(charge.units)
        if charge.cost is None:
            return short.view(np.uint8)
        short &= ~_pick(self._ledger.has_room, cycle, rows)
        bits = short.view(np.uint8)
        for number, column in left.items():
            lacking: Mask = column < self._least(float(charge.cost[number]))
            bits |= lacking.view(np.uint8) << np.uint8(REASON_OF[RESOURCES[number]])
        return bits

    def _columns(self, cycle: Cycle, rows: RowArray | None, charge: Charge) -> tuple[Vector, dict[int, Vector]]:
        """Pods, and the amounts of the resources that the pod takes; with what is only supposed in this cycle."""
        free, amounts = self._free_columns()
        chosen = _pick(free, cycle, rows)
        numbers = charge.numbers if self._ledger.has_room.any() else ()
        left = {number: _pick(amounts[number], cycle, rows) for number in numbers}
        supposed: dict[int, _Supposed] = cycle.state.get(self.name, {})
        if supposed:
            chosen, left = chosen.copy(), {number: column.copy() for number, column in left.items()}
        for row, change in supposed.items():
            at = row if rows is None else rows == row
            would, pods = self._ledger.supposing(row, change.taken, pending=self._by_pending)
            chosen[at] = pods
            for number, column in left.items():
                column[at] = would[number]
        return chosen, left

    def _mark_probed(self, bits: NDArray[np.uint8], cycle: Cycle, rows: RowArray | None, key: ClassKey) -> None:
        """Rows that have enough unmeasured pods of the class, if their agents could measure one."""
        limit, ledger = self.rules.unmeasured_per_node, self._ledger
        if not ledger.has_room.any():
            return
        taken: Mask = np.zeros(len(cycle.snapshot), dtype=np.bool_)
        known = ledger.probes.rows(key, limit)
        taken[known[known < len(taken)]] = True
        for row, change in cycle.state.get(self.name, {}).items():
            taken[row] = ledger.probes.on(key, row) + change.probes[key] >= limit
        taken &= ledger.has_room[: len(taken)]
        bits |= (taken if rows is None else taken.take(rows)).view(np.uint8) << np.uint8(3)

    def _requests_suffice(self) -> bool:
        """Whether a node without a recent report is judged by requests alone; not before its agent could report."""
        return self.rules.on_stale == "requests" and not self._ledger.is_expected(self._now())

    def needs(self, cycle: Cycle) -> Needs:
        return self.needs_of(cycle.pod)

    def needs_of(self, pod: PodInfo) -> Needs:
        charge = self.charge(pod)
        starts = Need(self.supply, STARTS, 1, 1)
        if charge.cost is None:
            return (self._need(FREE, charge.units), starts)
        amounts = [self._need(RESOURCES[number], float(charge.cost[number])) for number in charge.numbers]
        needs = (self._need(FREE_WITHOUT_ROOM, charge.units), *amounts, starts)
        if charge.probe is None:
            return needs
        return (*needs, Need(self.supply, f"{PROBE}{'/'.join(charge.probe)}", 1, 1))

    def least(self, pod: PodInfo) -> Vector:
        """What of `ledger.amounts` a node must have; −inf where the pod does not care."""
        charge = self.charge(pod)
        least = np.full(2 + len(RESOURCES), -np.inf)
        least[0 if charge.cost is None else 1] = self._least(charge.units)
        for number in charge.numbers:
            assert charge.cost is not None
            least[2 + number] = self._least(float(charge.cost[number]))
        return least

    def _need(self, resource: str, amount: float) -> Need:
        return Need(self.supply, resource, self._least(amount), amount)

    def _least(self, amount: float) -> float:
        return self.rules.threshold * amount * ROUNDING

    def available(self, resource: str, row: int) -> float:
        self._ledger.extend()
        if self.rules.on_stale != "ignore" and not self._ledger.is_fresh(row, self._now()):
            return math.inf if self._requests_suffice() else -math.inf
        if resource == STARTS:
            return self._starts_left(row)
        free, left = self._free_columns()
        if resource in NUMBER:
            return float(left[NUMBER[resource], row])
        has_room = bool(self._ledger.has_room[row])
        if resource.startswith(PROBE):
            namespace, rest = resource.removeprefix(PROBE).split("/", 1)
            family, _, revision = rest.rpartition("/")
            taken = self._ledger.probes.on(ClassKey(namespace, family, revision), row)
            return self.rules.unmeasured_per_node - taken if has_room else math.inf
        return math.inf if has_room and resource == FREE_WITHOUT_ROOM else float(free[row])

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
        """In proportion to how many pods like it fit; a node judged by requests alone comes last."""
        self._ledger.extend()
        free = self.free(cycle, rows)
        np.maximum(free, 0.0, out=free)
        if self.rules.on_stale == "requests":
            free[~_pick(self._ledger.fresh(self._now()), cycle, rows)] = 0.0
        most = float(free.max(initial=0.0))
        if most > 0:
            free *= MAX_SCORE / most
        return free

    def add_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        """A pod is only thought there: it would take what it costs."""
        self._suppose(cycle, pod, row, 1)

    def remove_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        """A pod is thought away: what it costs would come back once it has ended."""
        self._suppose(cycle, pod, row, -1)

    def _suppose(self, cycle: Cycle, pod: PodInfo, row: int, times: int) -> None:
        if counts(pod.pod):
            charge = self.charge(pod)
            supposed: _Supposed = cycle.state.setdefault(self.name, {}).setdefault(row, _Supposed())
            supposed.taken.add(charge, times)
            if charge.probe is not None:
                supposed.probes[charge.probe] += times

    def sentence(self, pod: PodInfo) -> str:
        """What the pod needs, for its condition; empty where no node reports room."""
        if not self._ledger.has_room.any():
            return ""
        return f" The pod {words.need(self.classes, self.classes.claim(pod), exact=False)}."

    def charge(self, pod: PodInfo) -> Charge:
        """What the pod takes of a node."""
        return self.classes.charge(self.classes.claim(pod))

    def need(self, cycle: Cycle) -> float:
        """Pods of free capacity, as `free` counts them, that the pod takes."""
        return self.rules.threshold * self.charge(cycle.pod).units

    def remark(self, row: int) -> str:
        """What people should know of a node that was chosen although its report is old."""
        fresh = self._ledger.is_fresh(row, self._now())
        return "" if fresh else f" (its capacity report is stale; on_stale is {self.rules.on_stale!r})"

    def free(self, cycle: Cycle, rows: RowArray | None) -> Vector:
        """So many pods like it fit, by room where a node reports it; of a pod with units, mean recent pods."""
        charge = self.charge(cycle.pod)
        if rows is not None and len(rows) * FEW > len(cycle.snapshot):  # whole columns are quicker than scattered rows
            return self.free(cycle, None).take(rows)
        free, left = self._columns(cycle, rows, charge)
        if not left or charge.cost is None:
            return free.copy()
        fits = np.where(_pick(self._ledger.has_room, cycle, rows), MOST, free)
        for number, column in left.items():
            np.minimum(fits, column * (1.0 / charge.cost[number]), out=fits)
        return fits

    def _free_columns(self) -> tuple[Vector, Matrix]:
        ledger = self._ledger
        return (ledger.free_pending, ledger.left_pending) if self._by_pending else (ledger.free, ledger.left)

    def _is_of_family(self, pod: PodInfo, _: object, family: object) -> bool:
        """The waiting pod's class costs something else, or was measured for the first time."""
        claim = self.classes.claim(pod)
        return claim.units is None and claim.key.family == family


def _claims_otherwise(pod: PodInfo, old: Pod, new: Pod) -> bool:
    """The waiting pod itself says something else about its units or its class."""
    before, after = old.metadata.annotations, new.metadata.annotations
    return new.uid == pod.uid and any(before.get(name) != after.get(name) for name in (ANNOTATION, COST_CLASS))


Column = TypeVar("Column", bound=np.generic)


def _pick(column: NDArray[Column], cycle: Cycle, rows: RowArray | None) -> NDArray[Column]:
    return column[: len(cycle.snapshot)] if rows is None else column.take(rows)
