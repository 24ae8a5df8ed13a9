"""The scheduling cycle of a group of pods: all of them get a node, or none is reserved.

Each pod is planned as if those before it were on their nodes already, in a trial on snapshot and ledger
(cache/trial.py). If one finds no node, everything is undone, and the group waits for what could help any of its pods:
room for one of them on another node may make room for the one that found none. PostFilter plugins are not called for
groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cluster_cache import ClusterCache
from carico.scheduler.cycle.profiles import Profile
from carico.scheduler.cycle.scheduling_cycle import Decision, PodPlan, make_plan, message_of, reserve, unreserve
from carico.scheduler.framework.contract import Code
from carico.scheduler.framework.needs import Need, Needs
from carico.scheduler.queue.unschedulable import Diagnosis


@dataclass(slots=True)
class GroupDecision:
    """Either one decision for each pod, or why none has a node."""

    placed: list[Decision] = field(default_factory=list)
    refused: Decision | None = None  # of the first pod that found no node, with the diagnosis of the whole group


def decide_group(
    profile: Profile, cluster: ClusterCache, pods: Sequence[PodInfo], rng: np.random.Generator
) -> GroupDecision:
    """One attempt. On success all pods are reserved and assumed on their nodes."""
    plans: list[PodPlan] = []
    reserved: list[Decision] = []
    with cluster.trial() as trial:
        try:
            for pod in pods:
                plan = make_plan(profile, cluster, pod)
                plans.append(plan)
                decision = reserve(profile, plan, plan.best(rng)) if len(plan.rows) else _no_node(profile, plan)
                if not decision.node:
                    decision.refusal = _diagnosis(profile, plans, decision)
                    _undo(profile, reserved)
                    return GroupDecision(refused=decision)
                reserved.append(decision)
                trial.place(pod, decision.node)
        except BaseException:
            _undo(profile, reserved)
            raise
    for decision in reserved:
        cluster.assume(decision.cycle.pod, decision.node)
    return GroupDecision(reserved)


def _undo(profile: Profile, reserved: list[Decision]) -> None:
    for decision in reversed(reserved):
        unreserve(profile, decision.cycle, decision.node)


def _no_node(profile: Profile, plan: PodPlan) -> Decision:
    code = Code.ERROR if plan.feasibility.status.code is Code.ERROR else Code.UNSCHEDULABLE
    message = message_of(profile, plan.cycle, plan.feasibility)
    return Decision(plan.cycle, message=message, code=code, figures=profile.figures(plan.cycle, None))


def _diagnosis(profile: Profile, plans: list[PodPlan], refused: Decision) -> Diagnosis:
    """What could help: any change for any plugin that rejected a node for one of the pods, and room for any of them."""
    concerned = {name for plan in plans for name in plan.feasibility.concerned()}
    refusing = frozenset(refused.refusal.plugins if refused.refusal is not None else plans[-1].feasibility.refusing)
    kept = frozenset(row for plan in plans for row in plan.feasibility.nominated)
    interests = profile.interests(concerned | refusing)
    needs = _least_needs(profile, plans) if concerned.intersection(p.name for p in profile.supplies) else ()
    return Diagnosis(refusing or frozenset(concerned), interests, needs, kept=kept)


def _least_needs(profile: Profile, plans: list[PodPlan]) -> Needs:
    """What every row must have that can hold one of the pods planned so far: the least of each amount that all need.

    >>> both = _common([(Need("s", "cpu", 2, 2), Need("s", "memory", 5, 5)), (Need("s", "cpu", 3, 3),)])
    >>> [(need.resource, need.least) for need in both]
    [('cpu', 2)]
    """
    by_pod = [
        tuple(need for p in profile.supplies if p.name not in plan.cycle.skipped for need in p.needs(plan.cycle))
        for plan in plans
        if plan.feasibility.status.ok
    ]
    return _common([needs for needs in by_pod if needs])


def _common(by_pod: Sequence[Needs]) -> Needs:
    least: dict[tuple[str, str], Need] = {(need.supply, need.resource): need for need in by_pod[0]} if by_pod else {}
    for needs in by_pod[1:]:
        mine = {(need.supply, need.resource): need for need in needs}
        least = {key: min(least[key], mine[key]) for key in least.keys() & mine.keys()}
    return tuple(least[key] for key in sorted(least))
