"""The scheduling cycle of one pod, from the queue to the reservation of a node.

    pre-filter ─► filter ─► score ─► choose ─► reserve ─► assume; then permit ─► pre-bind ─► bind (binding_cycle.py)
                    └ no node ─► post-filter: would evicting pods make room? ─► back to the queue, with reasons

Nothing here awaits: snapshot and ledger do not change between the first filter and the reservation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cluster_cache import ClusterCache
from carico.scheduler.cycle.profiles import NO_FIGURES, Profile
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import (
    Code,
    Cycle,
    DecisionFigures,
    Nomination,
    PostFilterAction,
    Status,
    Wait,
)
from carico.scheduler.framework.filtering import FilterResult
from carico.scheduler.queue.unschedulable import Diagnosis, Scope
from carico.types import Vector

NO_NODES = "no nodes"  # in place of a plugin, where the cluster has no node to reject


@dataclass(slots=True)
class Decision:
    """The result of one scheduling cycle. Exactly one of `node` and `message` is filled."""

    cycle: Cycle
    node: str = ""
    message: str = ""
    code: Code = Code.SUCCESS  # UNSCHEDULABLE, or ERROR when a plugin failed
    feasible: int = 0  # nodes that could have taken the pod
    figures: DecisionFigures = NO_FIGURES
    refusal: Diagnosis | None = None
    actions: Sequence[PostFilterAction] = ()  # what PostFilter plugins want to be done

    @property
    def preemption(self) -> Nomination | Wait | None:
        """The action that determines the pod's nomination; None: it has none any more."""
        return next((action for action in self.actions if isinstance(action, Nomination | Wait)), None)


@dataclass(slots=True)
class PodPlan:
    """Where one pod could go; nothing is reserved. Valid until snapshot or ledger change."""

    cycle: Cycle
    feasibility: FilterResult
    rows: RowArray  # feasible ones; empty: the pod is unschedulable
    scores: Vector  # one per row
    nominated: int | None = None  # the row of the pod's nominated node, which takes precedence

    def best(self, rng: np.random.Generator) -> int:
        return self.nominated if self.nominated is not None else int(self.rows[_best(self.scores, rng)])

    def ranked(self, rng: np.random.Generator) -> list[int]:
        """All candidates, the best first; equal ones in random order."""
        order = np.lexsort((rng.random(len(self.rows)), -self.scores))
        rows = [int(row) for row in self.rows[order] if row != self.nominated]
        return rows if self.nominated is None else [self.nominated, *rows]


def decide(profile: Profile, cluster: ClusterCache, pod: PodInfo, rng: np.random.Generator) -> Decision:
    """One attempt. On success the pod is reserved and assumed on the node."""
    plan = make_plan(profile, cluster, pod)
    if not len(plan.rows):
        return refuse(profile, plan)
    return commit(profile, cluster, plan, plan.best(rng))


def make_plan(profile: Profile, cluster: ClusterCache, pod: PodInfo) -> PodPlan:
    """Filters and scores."""
    cycle = Cycle(pod, cluster.snapshot, times=profile.sampled())
    with profile.timed("Filter"):
        feasibility = profile.feasible.run(cycle)
    rows = feasibility.rows
    nominated = _nominated_row(cycle, feasibility)
    if nominated is not None or len(rows) <= 1:
        return PodPlan(cycle, feasibility, rows, np.zeros(len(rows)), nominated)
    with profile.timed("Score"):
        scores = profile.scoring.run(cycle, rows)
    return PodPlan(cycle, feasibility, rows, scores)


def _nominated_row(cycle: Cycle, feasibility: FilterResult) -> int | None:
    """The row of the pod's nominated node, if it is feasible."""
    nominated = cycle.snapshot.nominated.get(cycle.pod.uid)
    row = cycle.snapshot.rows.number.get(nominated.node) if nominated is not None else None
    return row if row is not None and row < len(feasibility.mask) and feasibility.mask[row] else None


def _best(scores: Vector, rng: np.random.Generator) -> int:
    """The index of the highest score; a random one of several, so that equal nodes fill evenly."""
    best = np.flatnonzero(scores == scores.max())
    return int(best[0] if len(best) == 1 else best[rng.integers(len(best))])


def commit(profile: Profile, cluster: ClusterCache, plan: PodPlan, row: int) -> Decision:
    """Reserves one of the plan's rows and assumes the pod; else the decision names the plugin that rejected it."""
    decision = reserve(profile, plan, row)
    if decision.node:
        cluster.assume(plan.cycle.pod, decision.node)
    return decision


def reserve(profile: Profile, plan: PodPlan, row: int) -> Decision:
    """Runs Reserve. If a plugin rejects the node, all have unreserved it."""
    cycle = plan.cycle
    node = cycle.snapshot.name(row)
    figures = profile.figures(cycle, row)
    try:
        with profile.timed("Reserve"):
            for plugin in profile.reserves:
                if cycle.times is None:
                    status = plugin.reserve(cycle, node)
                else:
                    status = cycle.times.call("Reserve", plugin.name, plugin.reserve, cycle, node)
                if not status.ok:
                    unreserve(profile, cycle, node)
                    return _not_reserved(profile, cycle, plugin.name, status, figures)
    except BaseException:
        unreserve(profile, cycle, node)
        raise
    return Decision(cycle, node, feasible=len(plan.rows), figures=figures)


def _not_reserved(profile: Profile, cycle: Cycle, plugin: str, status: Status, figures: DecisionFigures) -> Decision:
    code = Code.ERROR if status.code is Code.ERROR else Code.UNSCHEDULABLE
    refusal = Diagnosis(frozenset({plugin}), profile.interests({plugin}))
    return Decision(cycle, message=status.message, code=code, figures=figures, refusal=refusal)


def unreserve(profile: Profile, cycle: Cycle, node: str) -> None:
    """Calls `unreserve` of every plugin, in reverse order, also if one of them raises."""
    for plugin in reversed(profile.reserves):
        try:
            plugin.unreserve(cycle, node)
        except Exception as error:
            profile.contain(plugin.name, error)


def refuse(profile: Profile, plan: PodPlan) -> Decision:
    """The decision where no row is feasible, with what PostFilter plugins want to be done."""
    cycle, feasibility = plan.cycle, plan.feasibility
    code = Code.ERROR if feasibility.status.code is Code.ERROR else Code.UNSCHEDULABLE
    message, figures = message_of(profile, cycle, feasibility), profile.figures(cycle, None)
    decision = Decision(cycle, message=message, code=code, figures=figures)
    if code is not Code.ERROR:
        with profile.timed("PostFilter"):
            decision.actions = _post_filter(profile, cycle, feasibility)
    decision.refusal = refusal_of(profile, cycle, feasibility, may_preempt=_may_preempt(profile, cycle, decision))
    return decision


def message_of(profile: Profile, cycle: Cycle, feasibility: FilterResult) -> str:
    """Why there is no node, one clause per reason, and what the pod needs of the plugins that rejected nodes."""
    message = feasibility.message()
    if feasibility.verdicts and (need := profile.explain_need(cycle.pod, exact=False, of=feasibility.refusing)):
        message += f" The pod {need}."
    return message


def _may_preempt(profile: Profile, cycle: Cycle, decision: Decision) -> bool:
    """Whether the pod could evict others, now or once they are there, and did not."""
    lowest = min(cycle.snapshot.priorities, default=0)
    allowed = bool(profile.post_filters) and cycle.pod.pod.spec.preemption_policy != "Never"
    return allowed and decision.preemption is None and min(lowest, 0) < cycle.pod.priority


def _post_filter(profile: Profile, cycle: Cycle, feasibility: FilterResult) -> Sequence[PostFilterAction]:
    for plugin in profile.post_filters:
        if cycle.times is None:
            answer = plugin.post_filter(cycle, feasibility)
        else:
            answer = cycle.times.call("PostFilter", plugin.name, plugin.post_filter, cycle, feasibility)
        if answer:
            return answer
    return ()


def refusal_of(profile: Profile, cycle: Cycle, feasibility: FilterResult, *, may_preempt: bool = False) -> Diagnosis:
    """Which plugins rejected the pod, and what could help it; `may_preempt`: a new report could allow preemption."""
    if not feasibility.snapshot.node_count and not feasibility.refusing:
        return Diagnosis(frozenset({NO_NODES}), (EventInterest("Node", Action.ADD),))
    plugins = frozenset(feasibility.refusing)
    if not feasibility.verdicts:  # rejected by a pre-filter, which may depend on any field of the pod
        return Diagnosis(plugins, profile.interests(plugins))
    concerned = frozenset(feasibility.concerned())
    kept = frozenset(feasibility.nominated)
    # A node nominated for this pod is not available to similar pods: its verdict does not hold for them.
    nominated = cycle.pod.uid in cycle.snapshot.nominated
    scope = Scope.POD if nominated else profile.scope(cycle.pod, concerned)
    supplies = [p for p in profile.supplies if p.name not in cycle.skipped]
    if not concerned.intersection(p.name for p in supplies):
        return Diagnosis(plugins or concerned, profile.interests(concerned), kept=kept, scope=scope)
    needs = tuple(need for p in supplies for need in p.needs(cycle))
    mask = feasibility.without({p.name for p in supplies})
    refusal = Diagnosis(plugins or concerned, profile.interests(concerned), needs, _bits(mask), kept, scope=scope)
    if may_preempt:
        measured = profile.feasible.measured
        resolvable = feasibility.resolvable(ignoring=measured)
        unreported = feasibility.refused_by(measured) & resolvable
        reported_needs = tuple(need for p in supplies if p.name in measured for need in p.needs(cycle))
        bits = _bits(unreported) if unreported.any() and reported_needs else b""
        return replace(refusal, resolvable=_bits(resolvable), unreported=bits, reported_needs=reported_needs)
    return refusal


def _bits(mask: Mask) -> bytes:
    return np.packbits(mask, bitorder="little").tobytes()


def broken(cluster: ClusterCache, pod: PodInfo, error: Exception) -> Decision:
    """The decision after a plugin raised an exception: the pod is retried after its back-off."""
    message = f"a plugin raised an exception: {type(error).__name__}: {error}"
    return Decision(Cycle(pod, cluster.snapshot), message=message, code=Code.ERROR, refusal=Diagnosis())
