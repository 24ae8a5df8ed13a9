"""Capacity plugin: filters and scores nodes by the room per resource that they report.

A node is rejected when one of its resources has less left than threshold × what a pod of this class costs; when too
many pods are starting there whose load is not visible yet; when it has a pod of the same class that is not measured
yet; or when its report is stale. A node whose agent reports only Pod-Capacity is rejected when less than threshold ×
the pod's units are free. The same check applies to every node for a pod that has a units annotation. None of this
evicts a pod unless `preempt_for_capacity` is set: telemetry alone is no reason to kill a pod.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from carico.config import setting
from carico.kube.objects import Pod
from carico.pod_class import COST_CLASS
from carico.scheduler.cache.charge import NUMBER, RESOURCES, Charge, Sum
from carico.scheduler.cache.class_costs import ClassCostTable
from carico.scheduler.cache.fits import MOST, Fits
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cache.units import ANNOTATION, counts, read_units
from carico.scheduler.framework import amounts as words
from carico.scheduler.framework.cluster_events import Action, EventInterest, only_itself
from carico.scheduler.framework.contract import (
    MAX_SCORE,
    OK,
    SKIP,
    Cycle,
    DecisionFigures,
    Explain,
    ExplainRows,
    MeasuredSupply,
    PreFilter,
    PreFilterExtensions,
    Reason,
    Reuse,
    Score,
    Status,
    Verdict,
    unresolvable,
)
from carico.scheduler.framework.needs import Need, Needs
from carico.scheduler.plugins.capacity_explained import RowTexts
from carico.settings import CapacitySettings
from carico.types import ClassKey, Vector

NO_CAPACITY = "had no free capacity"
NO_REPORT = "had no recent capacity report"
STARTING = "had too many pods starting"
UNMEASURED = "had a pod of the same class that is not measured yet"
# One per group of resources; a verdict has eight bits.
TOO_LITTLE = ("had too little cpu left", "had too little memory left", "had too much pressure",
              "had too little disk or network left")  # fmt: skip
REASON_OF = {"cpu": 4, "memory": 5, "memory_pressure": 6, "io_pressure": 6, "disk": 7, "network": 7}

# The amounts of this supply besides the resources: pods of free capacity, the same on nodes that report no room, pods
# that may start, and PROBE followed by a class: unmeasured pods of that class that may be added.
FREE, FREE_WITHOUT_ROOM, STARTS, PROBE = "free", "free without room", "starts", "probe:"
CHARGE = "Capacity.charge"  # in the state of a cycle
ROUNDING = 1 - 1e-9  # sums of amounts are not exact


@dataclass(frozen=True)
class CapacityArgs(CapacitySettings):
    """Settings of Capacity: those of the scheduler as a whole, unless a profile sets them."""

    release: str = setting(
        "handover",
        "a pod's reservation ends when its node counts the pod (handover) or when it leaves Pending (pending)",
        choices=("handover", "pending"),
    )

    @classmethod
    def of(cls, settings: CapacitySettings) -> CapacityArgs:
        """The scheduler's own settings, for use outside of a profile."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(CapacitySettings)})


@dataclass(slots=True)
class _Supposed:
    """What pods hypothetically added to or removed from one row would take."""

    taken: Sum = field(default_factory=Sum)
    probes: Counter[ClassKey] = field(default_factory=Counter)
    pods: dict[str, int] = field(default_factory=dict)  # by UID: added minus removed, where that is not 0


class Capacity(PreFilter, PreFilterExtensions, MeasuredSupply, Score, Explain, ExplainRows):
    name = "Capacity"
    reuse = Reuse.NEVER

    def __init__(
        self,
        ledger: Ledger,
        now: Callable[[], float],
        args: CapacityArgs | None = None,
        classes: ClassCostTable | None = None,
    ) -> None:
        self._ledger, self._now, self.args = ledger, now, args or CapacityArgs()
        self.classes = ClassCostTable() if classes is None else classes
        self.supply = f"capacity by {self.args}"  # with other arguments a row has other amounts, or a pod other needs
        self._by_pending = self.args.release == "pending"
        self._fits = Fits(ledger, pending=self._by_pending)
        fixed = not self.args.preempt_for_capacity
        self._reasons = (
            Reason(NO_CAPACITY, fixed),
            Reason(NO_REPORT, True, transient=True),
            Reason(STARTING, True, transient=True),
            Reason(UNMEASURED, True, transient=True),
            *(Reason(text, fixed) for text in TOO_LITTLE),
        )

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("Node", Action.ADD),
            EventInterest("Pod", Action.POD_ANNOTATION, _claims_otherwise, pod_set=only_itself),
            EventInterest("ClassCost", Action.UPDATE, self._is_of_family),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        if not counts(cycle.pod.pod):
            return SKIP  # the agent itself is such a pod: without it no report would ever arrive
        if read_units(cycle.pod.pod) is None:
            text = cycle.pod.pod.metadata.annotations[ANNOTATION]
            return unresolvable(f"annotation {ANNOTATION} is {text!r}, not a number above 0")
        return OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        self._ledger.extend()
        charge = self._own_charge(cycle)
        short: Mask = self._fitting(cycle, rows, charge) < self._least(1.0 if charge.cost is not None else charge.units)
        bits = self._lacking(cycle, rows, charge, short) if short.any() else short.view(np.uint8)
        crowded = self._crowded(cycle, rows)
        if crowded is not None:
            bits |= crowded.view(np.uint8) << np.uint8(2)
        if charge.probe is not None:
            self._mark_probed(bits, cycle, rows, charge.probe)
        if self.args.on_stale != "ignore":
            fresh = _pick(self._ledger.fresh(self._now()), cycle, rows)
            if not fresh.all():
                bits[~fresh] = 0 if self._requests_suffice() else 2
        return Verdict(bits, self._reasons)

    def _fitting(self, cycle: Cycle, rows: RowArray | None, charge: Charge) -> Vector:
        """How many pods like it fit, with hypothetical changes of this cycle; read-only if `rows` is None."""
        supposed: dict[int, _Supposed] = cycle.state.get(self.name, {})
        if rows is not None:
            fits = self._fits.at(rows, charge)
        else:
            fits = self._fits.everywhere(charge)[: len(cycle.snapshot)]
            fits = fits.copy() if supposed else fits
        for index, row in _indices(supposed, rows):
            fits[index] = self._fits.supposing(row, charge, supposed[row].taken)
        return fits

    def _lacking(self, cycle: Cycle, rows: RowArray | None, charge: Charge, short: Mask) -> NDArray[np.uint8]:
        """Which resources are short on the rows where the pod does not fit."""
        bits: NDArray[np.uint8] = np.zeros(len(short), dtype=np.uint8)
        at = np.flatnonzero(short)
        nodes = at if rows is None else rows[at]
        if charge.cost is None:
            bits[at] = 1
            return bits
        found = (~self._ledger.has_room.take(nodes)).view(np.uint8)
        _, left = self._fits.columns()
        supposed: dict[int, _Supposed] = cycle.state.get(self.name, {})
        for number in charge.numbers:
            column = left[number].take(nodes)
            for index, row in _indices(supposed, nodes):
                left_there, _ = self._ledger.supposing(row, supposed[row].taken, pending=self._by_pending)
                column[index] = left_there[number]
            lacking: Mask = column < self._least(charge.cost[number])
            found |= lacking.view(np.uint8) << np.uint8(REASON_OF[RESOURCES[number]])
        bits[at] = found
        return bits

    def _mark_probed(self, bits: NDArray[np.uint8], cycle: Cycle, rows: RowArray | None, key: ClassKey) -> None:
        """Mark rows that have enough unmeasured pods of the class, if their agents could measure one."""
        limit, ledger = self.args.unmeasured_per_node, self._ledger
        if not ledger.nodes_with_room:
            return
        known, supposed = ledger.probes.rows(key, limit), cycle.state.get(self.name, {})
        if not len(known) and not supposed:
            return
        taken: Mask = np.zeros(len(cycle.snapshot), dtype=np.bool_)
        taken[known[known < len(taken)]] = True
        for row, change in supposed.items():
            taken[row] = ledger.probes.on(key, row) + change.probes[key] >= limit
        taken &= ledger.has_room[: len(taken)]
        bits |= (taken if rows is None else taken.take(rows)).view(np.uint8) << np.uint8(3)

    def _requests_suffice(self) -> bool:
        """Whether a node without a recent report is judged by requests alone; not before its agent could report."""
        return self.args.on_stale == "requests" and not self._ledger.is_expected(self._now())

    def needs(self, cycle: Cycle) -> Needs:
        return self.needs_of(cycle.pod)

    def needs_of(self, pod: PodInfo) -> Needs:
        charge = self.charge(pod)
        starts = Need(self.supply, STARTS, 1, 1)
        if charge.cost is None:
            return (self._need(FREE, charge.units), starts)
        amounts = [self._need(RESOURCES[number], charge.cost[number]) for number in charge.numbers]
        needs = (self._need(FREE_WITHOUT_ROOM, charge.units), *amounts, starts)
        if charge.probe is None:
            return needs
        return (*needs, Need(self.supply, f"{PROBE}{'/'.join(charge.probe)}", 1, 1))

    def least(self, pod: PodInfo) -> Vector:
        """The amounts, in the order of `ledger.amounts`, that a node must have; −inf where the pod has no need."""
        charge = self.charge(pod)
        least = np.full(2 + len(RESOURCES), -np.inf)
        least[0 if charge.cost is None else 1] = self._least(charge.units)
        for number in charge.numbers:
            assert charge.cost is not None
            least[2 + number] = self._least(charge.cost[number])
        return least

    def unreported(self) -> Reason | None:
        return None if self.args.on_stale == "requests" else self._reasons[1]

    def _need(self, resource: str, amount: float) -> Need:
        return Need(self.supply, resource, self._least(amount), amount)

    def _least(self, amount: float) -> float:
        return self.args.threshold * amount * ROUNDING

    def available(self, resource: str, row: int) -> float:
        self._ledger.extend()
        if self.args.on_stale != "ignore" and not self._ledger.is_fresh(row, self._now()):
            return math.inf if self._requests_suffice() else -math.inf
        if resource == STARTS:
            return self._starts_left(row)
        free, left = self._fits.columns()
        if resource in NUMBER:
            return float(left[NUMBER[resource], row])
        has_room = bool(self._ledger.has_room[row])
        if resource.startswith(PROBE):
            namespace, rest = resource.removeprefix(PROBE).split("/", 1)
            family, _, revision = rest.rpartition("/")
            taken = self._ledger.probes.on(ClassKey(namespace, family, revision), row)
            return self.args.unmeasured_per_node - taken if has_room else math.inf
        return math.inf if has_room and resource == FREE_WITHOUT_ROOM else float(free[row])

    def _starts_left(self, row: int) -> float:
        rows = np.array([row], dtype=np.intp)
        return float(self._start_limit(rows)[0] - self._ledger.starting[row])

    def _start_limit(self, rows: RowArray | slice) -> Vector:
        """Pods that may be starting at once: fewer on a fuller node, and where the cost of a pod is still a guess."""
        few, many, ledger = self.args.startup_limit, self.args.startup_limit_idle, self._ledger
        limit = np.maximum(np.floor(few + (1 - ledger.usage[rows]) * (many - few)), min(few, many))
        guessed = (ledger.unmeasured[rows] > 0) & ledger.has_room[rows]
        return np.where(guessed, np.minimum(limit, few), limit)

    def _crowded(self, cycle: Cycle, rows: RowArray | None) -> NDArray[np.bool_] | None:
        """Nodes where as many pods are starting as the live usage allows; None if no node is near its limit."""
        starting = _pick(self._ledger.starting, cycle, rows)
        if starting.max(initial=0) < min(self.args.startup_limit, self.args.startup_limit_idle):
            return None
        return np.asarray(starting >= self._start_limit(slice(len(cycle.snapshot)) if rows is None else rows))

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        """Proportional to how many pods like it fit; a node judged by requests alone scores 0."""
        self._ledger.extend()
        free = self._fitting(cycle, rows, self._own_charge(cycle))
        if self.args.on_stale == "requests":
            free[~_pick(self._ledger.fresh(self._now()), cycle, rows)] = 0.0
        most = float(free.max(initial=0.0))
        if most > MOST or free.min(initial=0.0) < 0:  # rare, and reading is cheaper than writing
            np.clip(free, 0.0, MOST, out=free)
            most = min(most, MOST)
        if most > 0:
            free *= MAX_SCORE / most
        return free

    def add_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        """Simulate an added pod: it takes what it costs."""
        self._suppose(cycle, pod, row, 1)

    def remove_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        """Simulate a removed pod: what it costs becomes free."""
        self._suppose(cycle, pod, row, -1)

    def _suppose(self, cycle: Cycle, pod: PodInfo, row: int, times: int) -> None:
        if counts(pod.pod):
            charge = self.charge(pod)
            rows: dict[int, _Supposed] = cycle.state.setdefault(self.name, {})
            supposed = rows.setdefault(row, _Supposed())
            net = supposed.pods.pop(pod.uid, 0) + times
            if net:
                supposed.pods[pod.uid] = net
            elif not supposed.pods:
                del rows[row]  # as it was, without the rounding errors of its sum
                return
            supposed.taken.add(charge, times)
            if charge.probe is not None:
                supposed.probes[charge.probe] += times

    def explain_need(self, pod: PodInfo, *, exact: bool) -> str:
        """Empty if no node reports room: the amounts would mean nothing to the user."""
        if not self._ledger.nodes_with_room or not counts(pod.pod):
            return ""
        return words.need(self.classes, self.classes.claim(pod), exact=exact)

    def explain_decision(self, cycle: Cycle, row: int | None) -> DecisionFigures:
        """In the pods that `free` counts; without figures if the node was judged by requests alone."""
        need = self.args.threshold * self._own_charge(cycle).units
        if row is None:
            return DecisionFigures(need)
        remark, rule = "", ""
        if not self._ledger.is_fresh(row, self._now()):
            rule = self.args.on_stale
            remark = f" (its capacity report is stale; on_stale is {rule!r})"
            if rule == "requests":
                return DecisionFigures(remark=remark, stale_rule=rule)
        return DecisionFigures(need, self._free_on(cycle, row), remark, rule)

    def explain_rows(self, cycle: Cycle, rows: RowArray) -> RowTexts:
        _, columns = self._fits.columns()
        left = columns.take(rows, axis=1)
        supposed: dict[int, _Supposed] = cycle.state.get(self.name, {})
        for index, row in _indices(supposed, rows):
            left[:, index], _ = self._ledger.supposing(row, supposed[row].taken, pending=self._by_pending)
        texts = RowTexts(cycle.snapshot, self._ledger, rows, left)
        crowded = self._crowded(cycle, rows)
        if crowded is not None:
            texts.name_starting(cycle.snapshot, crowded, cycle.pod.uid, self._now())
        return texts

    def charge(self, pod: PodInfo) -> Charge:
        """What the pod takes of a node."""
        return self.classes.charge(self.classes.claim(pod))

    def _own_charge(self, cycle: Cycle) -> Charge:
        """Of the cycle's pod: looked up once, because costs do not change during a cycle."""
        found: Charge | None = cycle.state.get(CHARGE)
        if found is None:
            found = cycle.state[CHARGE] = self.charge(cycle.pod)
        return found

    def pods_that_fit(self, cycle: Cycle, rows: RowArray) -> Vector:
        """By room if a node reports it; for a pod with units, in mean recent pods."""
        fits = self._fitting(cycle, rows, self._own_charge(cycle))
        return np.minimum(fits, MOST)

    def _free_on(self, cycle: Cycle, row: int) -> float:
        """The same on one row. A scheduling cycle has computed it for all rows already."""
        if cycle.state.get(self.name):
            return float(self.pods_that_fit(cycle, np.array([row]))[0])
        return min(float(self._fits.everywhere(self._own_charge(cycle))[row]), MOST)

    def _is_of_family(self, pod: PodInfo, _: object, family: object) -> bool:
        """Whether the cost of the waiting pod's class changed, or was measured for the first time."""
        claim = self.classes.claim(pod)
        return claim.units is None and claim.key.family == family


def _claims_otherwise(pod: PodInfo, old: Pod, new: Pod) -> bool:
    """Whether the waiting pod itself changed its units or class annotation."""
    before, after = old.metadata.annotations, new.metadata.annotations
    return new.uid == pod.uid and any(before.get(name) != after.get(name) for name in (ANNOTATION, COST_CLASS))


def _indices(supposed: dict[int, _Supposed], rows: RowArray | None) -> list[tuple[int, int]]:
    """Of the rows with hypothetical changes: where they stand in `rows` (None: all rows), and their number."""
    if rows is None:
        return [(row, row) for row in supposed]
    return [(index, row) for index, row in enumerate(rows.tolist()) if row in supposed] if supposed else []


Column = TypeVar("Column", bound=np.generic)


def _pick(column: NDArray[Column], cycle: Cycle, rows: RowArray | None) -> NDArray[Column]:
    return column[: len(cycle.snapshot)] if rows is None else column.take(rows)
