"""Preemption: which pods of lower priority must be evicted so that this one fits, and on which node that costs least.

The order is kube-scheduler's. On a node all pods of lower priority are hypothetically removed. Then as many as possible
are put back, first those whose PodDisruptionBudget would be violated, in each group the more important first. Nodes are
compared by: fewest violated budgets, then the lowest highest priority among the victims, then the lowest sum of
priorities, the fewest victims, and the latest start of the most important victim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import thread_time

import numpy as np

from carico.kube.objects import Pod, PodDisruptionBudget
from carico.kube.selectors import from_selector
from carico.scheduler.cache import requests
from carico.scheduler.cache.object_store import ObjectStore
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import WAIT, Cycle, Nomination, PostFilter, PostFilterAction
from carico.scheduler.framework.filtering import FilterResult
from carico.scheduler.plugins.node_resources_fit import NodeResourcesFit

LEAST_CANDIDATES = 100  # candidate nodes to find, or a tenth of all nodes if that is more
SEARCH_LIMIT = 0.2  # s of CPU time after which fewer are enough: watches, reports and the Lease wait meanwhile
SURE_CANDIDATES = 10  # … but not fewer than these
NOT_STARTED = "9999"  # later than every time stamp
REPORT_LAG = 15.0  # s within which a node's report shows that a pod has ended
ABOVE_ALL = 2**31  # makes every priority positive, so that fewer victims of a low priority are better than more of them


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    row: int
    victims: tuple[PodInfo, ...]  # the most important first
    violations: int  # victims whose budget does not allow the eviction

    def cost(self) -> tuple[int, int, int, int, tuple[int, ...]]:
        """Smaller is better."""
        highest = self.victims[0].priority
        total = sum(pod.priority + ABOVE_ALL for pod in self.victims)
        first = min(_started(pod.pod) for pod in self.victims if pod.priority == highest)
        return (self.violations, highest, total, len(self.victims), tuple(-ord(letter) for letter in first))


class DefaultPreemption(PostFilter):
    name = "DefaultPreemption"
    interests: tuple[EventInterest, ...] = ()

    def __init__(
        self, now: Callable[[], float], seed: int | None = None, *, spent: Callable[[], float] = thread_time
    ) -> None:
        self._now, self._spent = now, spent
        self._rng = np.random.default_rng(seed)

    def post_filter(self, cycle: Cycle, feasibility: FilterResult) -> Sequence[PostFilterAction]:
        if _waits_for_victims(cycle, feasibility, self._now()):
            return (WAIT,)
        if cycle.pod.pod.spec.preemption_policy == "Never":
            return ()
        if min(cycle.snapshot.priorities, default=cycle.pod.priority) >= cycle.pod.priority:
            return ()  # the usual case in clusters without priorities
        rows = np.flatnonzero(feasibility.resolvable())
        if not len(rows):
            return ()
        candidates = self._candidates(cycle, feasibility, np.roll(rows, -int(self._rng.integers(len(rows)))))
        if not candidates:
            return ()
        best = min(candidates, key=PreemptionCandidate.cost)
        return (Nomination(cycle.snapshot.name(best.row), best.victims),)

    def _candidates(self, cycle: Cycle, feasibility: FilterResult, rows: RowArray) -> list[PreemptionCandidate]:
        """Stop at enough candidates: checking all nodes of a large cluster takes long and rarely finds a better one."""
        enough = max(LEAST_CANDIDATES, cycle.snapshot.node_count // 10)
        end = self._spent() + SEARCH_LIMIT
        found: list[PreemptionCandidate] = []
        acceptable = False  # one of them violates no budget
        for row in rows:
            candidate = _on_node(cycle, feasibility, int(row))
            if candidate is None:
                continue
            found.append(candidate)
            acceptable = acceptable or not candidate.violations
            if acceptable and (len(found) >= enough or (len(found) >= SURE_CANDIDATES and self._spent() >= end)):
                break
        return found


def _waits_for_victims(cycle: Cycle, feasibility: FilterResult, now: float) -> bool:
    """Whether the nominated node will hold the pod once its victims have ended; then no more pods are evicted.

    Victims are those that this process has chosen, for this pod or for another one nominated to the node, and those
    that a previous leader has marked. The node's capacity report is ignored: it changes when the victims end, and
    telemetry alone is no reason to evict more. So is a pod there that cannot be decoded, for as long as it cannot:
    it closes the node, but not because the node has no room.
    """
    nominated = cycle.snapshot.nominated.get(cycle.pod.uid)
    row = cycle.snapshot.rows.number.get(nominated.node) if nominated is not None else None
    if nominated is None or row is None or row >= len(cycle.snapshot) or not cycle.snapshot.present[row]:
        return False
    chosen = {uid for n in cycle.snapshot.nominated.values() if n.node == nominated.node for uid in n.victims}
    here = cycle.snapshot.on[row].values()
    leaving = [pod for pod in here if pod.uid in chosen or _is_leaving(pod, cycle.pod.priority)]
    if not feasibility.verdicts:  # a PreFilter plugin rejected the pod: no node was checked
        return bool(leaving)
    filters = feasibility.filters
    vacated = not leaving and now - nominated.vacated_at >= REPORT_LAG  # reports show it
    if vacated and not filters.is_closed_for_now(cycle, row):
        return False
    with filters.pretending(cycle, row, remove=leaving):
        return filters.will_fit(cycle, row, reported=vacated)


def _is_leaving(pod: PodInfo, priority: int) -> bool:
    """A pod of lower priority that was evicted by preemption and has not ended yet."""
    marked = (c for c in pod.pod.status.conditions if c.type == "DisruptionTarget")
    evicted = any(c.status == "True" and c.reason == "PreemptionByScheduler" for c in marked)
    return pod.priority < priority and pod.pod.terminating and evicted


def _lower(snapshot: Snapshot, row: int, priority: int) -> list[PodInfo]:
    return [pod for pod in snapshot.on[row].values() if pod.priority < priority]


def _on_node(cycle: Cycle, feasibility: FilterResult, row: int) -> PreemptionCandidate | None:
    filters = feasibility.filters
    potential = sorted(_lower(cycle.snapshot, row, cycle.pod.priority), key=_importance)
    if not potential or not _could_hold(cycle, feasibility, row, potential):
        return None
    with ExitStack() as pretence:
        pretence.enter_context(filters.pretending(cycle, row, remove=potential))
        if not filters.fits(cycle, row):
            return None
        violating, others = split_by_budget(potential, cycle.snapshot.store)
        victims: list[PodInfo] = []
        violations = 0
        for pod in (*violating, *others):
            if not _put_back(pretence, cycle, feasibility, row, pod):
                victims.append(pod)
                violations += pod in violating
    return PreemptionCandidate(row, tuple(sorted(victims, key=_importance)), violations) if victims else None


def _could_hold(cycle: Cycle, feasibility: FilterResult, row: int, gone: list[PodInfo]) -> bool:
    """Whether the node has enough without these pods, by requests alone: most nodes fail here, at a low cost."""
    if all(name != NodeResourcesFit.name for name, _ in feasibility.verdicts):
        return True
    if cycle.snapshot.unrequested(requests.PODS)[row] + len(gone) < 1:
        return False
    wanted = cycle.pod.template.requests
    return all(
        cycle.snapshot.unrequested(name)[row] + sum(pod.requests.get(name, 0) for pod in gone) >= amount
        for name, amount in wanted.items()
        if amount > 0
    )


def _put_back(pretence: ExitStack, cycle: Cycle, feasibility: FilterResult, row: int, pod: PodInfo) -> bool:
    """Puts a pod back if the new one still fits with it; returns whether it did."""
    with ExitStack() as attempt:
        attempt.enter_context(feasibility.filters.pretending(cycle, row, add=[pod]))
        if feasibility.filters.fits(cycle, row):
            pretence.push(attempt.pop_all())
            return True
    return False


def _started(pod: Pod) -> str:
    return pod.status.start_time or NOT_STARTED


def _importance(pod: PodInfo) -> tuple[int, str]:
    """Sorts the more important pods first: higher priority, then longer running."""
    return (-pod.priority, _started(pod.pod))


def split_by_budget(pods: list[PodInfo], store: ObjectStore) -> tuple[list[PodInfo], list[PodInfo]]:
    """Pods whose eviction would violate a PodDisruptionBudget, and the others; the order is kept."""
    left = {key: budget.status.disruptions_allowed for key, budget in store.disruption_budgets.items()}
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        violated = False
        for budget in store.disruption_budgets.values():
            if _covers(budget, pod.pod):
                left[budget.key] -= 1
                violated = violated or left[budget.key] < 0
        (violating if violated else others).append(pod)
    return violating, others


def _covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Whether the budget applies; evictions that the API server has already granted are not counted twice."""
    if budget.namespace != pod.namespace or not pod.metadata.labels or pod.name in budget.status.disrupted_pods:
        return False
    selector = from_selector(budget.spec.selector)
    return not selector.empty and selector.matches(pod.metadata.labels)
