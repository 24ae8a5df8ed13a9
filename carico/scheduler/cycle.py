"""The way of one pod, from the queue to the promise of a node.

    pre-filter ─► filter ─► score ─► choose ─► reserve ─► assumed: outside, permit ─► pre-bind ─► bind (binder.py)
                    └ no node ─► post-filter: would evicting pods make room? ─► back to the queue, with reasons

Nothing here waits: from the first filter to the reservation the cluster stands still.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from carico.scheduler.changes import Action, Interest
from carico.scheduler.cluster import Cluster
from carico.scheduler.feasible import Feasibility
from carico.scheduler.framework import Code, Cycle, Nomination, Status, Wait
from carico.scheduler.profiles import Profile
from carico.scheduler.rows import Mask
from carico.scheduler.template import PodInfo
from carico.scheduler.unschedulable import Refusal, Scope
from carico.types import Vector

NO_NODES = "no nodes"  # stands for a plugin where there is no node that one could refuse


@dataclass(slots=True)
class Decision:
    """What one cycle came to. Exactly one of `node` and `message` is filled."""

    cycle: Cycle
    node: str = ""
    message: str = ""
    code: Code = Code.SUCCESS  # UNSCHEDULABLE, or ERROR when a plugin broke
    feasible: int = 0  # nodes that could have taken the pod
    free_before: float = 0.0  # pods of free capacity on the chosen node
    remark: str = ""  # for the Event, when the node was chosen without a recent report
    refusal: Refusal | None = None
    preemption: Nomination | Wait | None = None  # evict pods, wait for those that are leaving, or neither


def decide(profile: Profile, cluster: Cluster, pod: PodInfo, rng: np.random.Generator) -> Decision:
    """One attempt. On success the pod is reserved and assumed on the node."""
    cycle = Cycle(pod, cluster.snapshot, times=profile.sampled())
    with profile.timed("Filter"):
        feasibility = profile.feasible.run(cycle)
    rows = feasibility.rows
    if not len(rows):
        return _refused(profile, cycle, feasibility)
    row = _nominated_row(cycle, feasibility)
    if row is None:
        with profile.timed("Score"):
            scores = profile.scoring.run(cycle, rows) if len(rows) > 1 else np.zeros(1)
        row = int(rows[_best(scores, rng)])
    return _commit(profile, cluster, cycle, row, len(rows))


def _nominated_row(cycle: Cycle, feasibility: Feasibility) -> int | None:
    """The node on which others were evicted for this pod, if it is still good."""
    nominated = cycle.snapshot.nominated.get(cycle.pod.uid)
    row = cycle.snapshot.rows.number.get(nominated.node) if nominated is not None else None
    return row if row is not None and row < len(feasibility.mask) and feasibility.mask[row] else None


def _best(scores: Vector, rng: np.random.Generator) -> int:
    """The index of the highest score; one of them by chance, so that equal nodes fill alike."""
    best = np.flatnonzero(scores == scores.max())
    return int(best[0] if len(best) == 1 else best[rng.integers(len(best))])


def _commit(profile: Profile, cluster: Cluster, cycle: Cycle, row: int, feasible: int) -> Decision:
    """Reserves the node for the pod, or says which plugin could not."""
    node = cycle.snapshot.name(row)
    free, remark = 0.0, ""
    if profile.capacity is not None:
        free = float(profile.capacity.free(cycle, np.array([row]))[0])
        remark = profile.capacity.remark(row)
    try:
        with profile.timed("Reserve"):
            for plugin in profile.reserves:
                if cycle.times is None:
                    status = plugin.reserve(cycle, node)
                else:
                    status = cycle.times.call("Reserve", plugin.name, plugin.reserve, cycle, node)
                if not status.ok:
                    unreserve(profile, cycle, node)
                    return _not_reserved(profile, cycle, plugin.name, status)
    except BaseException:
        unreserve(profile, cycle, node)
        raise
    cluster.assume(cycle.pod, node)
    return Decision(cycle, node, feasible=feasible, free_before=free, remark=remark)


def _not_reserved(profile: Profile, cycle: Cycle, plugin: str, status: Status) -> Decision:
    code = Code.ERROR if status.code is Code.ERROR else Code.UNSCHEDULABLE
    refusal = Refusal(frozenset({plugin}), profile.interests({plugin}))
    return Decision(cycle, message=status.message, code=code, refusal=refusal)


def unreserve(profile: Profile, cycle: Cycle, node: str) -> None:
    """Undoes every `reserve`, also when one of the plugins breaks."""
    for plugin in reversed(profile.reserves):
        try:
            plugin.unreserve(cycle, node)
        except Exception as error:
            profile.contain(plugin.name, error)


def _refused(profile: Profile, cycle: Cycle, feasibility: Feasibility) -> Decision:
    code = Code.ERROR if feasibility.status.code is Code.ERROR else Code.UNSCHEDULABLE
    decision = Decision(cycle, message=_message(profile, cycle, feasibility), code=code)
    if code is not Code.ERROR:
        with profile.timed("PostFilter"):
            decision.preemption = _post_filter(profile, cycle, feasibility)
    decision.refusal = refusal_of(profile, cycle, feasibility, may_preempt=_may_preempt(profile, cycle, decision))
    return decision


def _message(profile: Profile, cycle: Cycle, feasibility: Feasibility) -> str:
    """Why there is no node, one clause per reason, and what the pod needs where that is the reason."""
    message = feasibility.message()
    if profile.capacity is not None and profile.capacity.name in feasibility.refusing and feasibility.verdicts:
        message += profile.capacity.sentence(cycle.pod)
    return message


def _may_preempt(profile: Profile, cycle: Cycle, decision: Decision) -> bool:
    """Whether the pod could evict others, and did not."""
    lowest = min(cycle.snapshot.priorities, default=cycle.pod.priority)
    allowed = bool(profile.post_filters) and cycle.pod.pod.spec.preemption_policy != "Never"
    return allowed and decision.preemption is None and lowest < cycle.pod.priority


def _post_filter(profile: Profile, cycle: Cycle, feasibility: Feasibility) -> Nomination | Wait | None:
    for plugin in profile.post_filters:
        if cycle.times is None:
            answer = plugin.post_filter(cycle, feasibility)
        else:
            answer = cycle.times.call("PostFilter", plugin.name, plugin.post_filter, cycle, feasibility)
        if answer is not None:
            return answer
    return None


def refusal_of(profile: Profile, cycle: Cycle, feasibility: Feasibility, *, may_preempt: bool = False) -> Refusal:
    """Who refused the pod, and what could help it; `may_preempt`: a report could, by letting it evict others."""
    if not feasibility.snapshot.node_count and not feasibility.refusing:
        return Refusal(frozenset({NO_NODES}), (Interest("Node", Action.ADD),))
    plugins = frozenset(feasibility.refusing)
    if not feasibility.verdicts:  # a pre-filter refused it, which may look at anything of the pod
        return Refusal(plugins, profile.interests(plugins))
    concerned = frozenset(feasibility.concerned())
    kept = frozenset(feasibility.nominated)
    # A node that is kept for this pod is kept from all others that are like it.
    nominated = cycle.pod.uid in cycle.snapshot.nominated
    scope = Scope.POD if nominated else profile.scope(cycle.pod, concerned)
    supplies = [p for p in profile.supplies if p.name not in cycle.skipped]
    if not concerned.intersection(p.name for p in supplies):
        return Refusal(plugins or concerned, profile.interests(concerned), kept=kept, scope=scope)
    needs = tuple(need for p in supplies for need in p.needs(cycle))
    mask = feasibility.without({p.name for p in supplies})
    refusal = Refusal(plugins or concerned, profile.interests(concerned), needs, _bits(mask), kept, scope=scope)
    if may_preempt:
        measured = profile.feasible.measured
        unreported = feasibility.refused_by(measured) & feasibility.resolvable(ignoring=measured)
        reported_needs = tuple(need for p in supplies if p.name in measured for need in p.needs(cycle))
        if unreported.any() and reported_needs:
            return replace(refusal, unreported=_bits(unreported), reported_needs=reported_needs)
    return refusal


def _bits(mask: Mask) -> bytes:
    return np.packbits(mask, bitorder="little").tobytes()


def broken(cluster: Cluster, pod: PodInfo, error: Exception) -> Decision:
    """A plugin raised: that is its fault and not the pod's, which is tried again after its pause."""
    message = f"a plugin broke: {type(error).__name__}: {error}"
    return Decision(Cycle(pod, cluster.snapshot), message=message, code=Code.ERROR, refusal=Refusal())
