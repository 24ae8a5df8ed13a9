"""The way of one pod, from the queue to the promise of a node.

    pre-filter ─► filter ─► score ─► choose ─► reserve ─► assumed: outside, permit ─► pre-bind ─► bind (binder.py)
                    └ no node ─► post-filter: would evicting pods make room? ─► back to the queue, with reasons

Nothing here waits: from the first filter to the reservation the cluster stands still.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from carico.scheduler.cluster import Cluster
from carico.scheduler.feasible import Feasibility
from carico.scheduler.framework import Code, Cycle, Nomination
from carico.scheduler.profiles import Profile
from carico.scheduler.queue import Refusal
from carico.scheduler.template import PodInfo
from carico.types import Vector


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
    nomination: Nomination | None = None


def decide(profile: Profile, cluster: Cluster, pod: PodInfo, rng: np.random.Generator) -> Decision:
    """One attempt. On success the pod is reserved and assumed on the node."""
    cycle = Cycle(pod, cluster.snapshot)
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
    return _reserved(profile, cluster, cycle, row, len(rows))


def _nominated_row(cycle: Cycle, feasibility: Feasibility) -> int | None:
    """The node on which others were evicted for this pod, if it is still good."""
    name = cycle.pod.pod.status.nominated_node_name
    row = cycle.snapshot.rows.number.get(name) if name else None
    return row if row is not None and row < len(feasibility.mask) and feasibility.mask[row] else None


def _best(scores: Vector, rng: np.random.Generator) -> int:
    """The index of the highest score; one of them by chance, so that equal nodes fill alike."""
    best = np.flatnonzero(scores == scores.max())
    return int(best[0] if len(best) == 1 else best[rng.integers(len(best))])


def _reserved(profile: Profile, cluster: Cluster, cycle: Cycle, row: int, feasible: int) -> Decision:
    node = cycle.snapshot.name(row)
    free, remark = 0.0, ""
    if profile.capacity is not None:
        free = float(profile.capacity.free(cycle, np.array([row]))[0])
        remark = profile.capacity.remark(row)
    with profile.timed("Reserve"):
        for plugin in profile.reserves:
            status = plugin.reserve(cycle, node)
            if not status.ok:
                unreserve(profile, cycle, node)
                code = Code.ERROR if status.code is Code.ERROR else Code.UNSCHEDULABLE
                refusal = Refusal(frozenset({plugin.name}), profile.interests({plugin.name}))
                return Decision(cycle, message=status.message, code=code, refusal=refusal)
    cluster.assume(cycle.pod, node)
    return Decision(cycle, node, feasible=feasible, free_before=free, remark=remark)


def unreserve(profile: Profile, cycle: Cycle, node: str) -> None:
    for plugin in reversed(profile.reserves):
        plugin.unreserve(cycle, node)


def _refused(profile: Profile, cycle: Cycle, feasibility: Feasibility) -> Decision:
    nomination = None
    if feasibility.status.code is not Code.ERROR:
        with profile.timed("PostFilter"):
            for plugin in profile.post_filters:
                nomination = nomination or plugin.post_filter(cycle, feasibility)
    refusal = Refusal(
        frozenset(feasibility.refusing),
        profile.interests(feasibility.refusing),
        _reachable(profile, feasibility),
        profile.capacity.need(cycle) if profile.capacity and profile.capacity.name in feasibility.refusing else 0.0,
    )
    code = Code.ERROR if feasibility.status.code is Code.ERROR else Code.UNSCHEDULABLE
    message = feasibility.message()
    return Decision(cycle, message=message, code=code, refusal=refusal, nomination=nomination)


def _reachable(profile: Profile, feasibility: Feasibility) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    """Rows that only Pod-Capacity keeps the pod from; a report of any other node cannot help it."""
    if profile.capacity is None or profile.capacity.name not in feasibility.refusing or not feasibility.verdicts:
        return None
    mask = feasibility.snapshot.present.copy()
    for name, verdict in feasibility.verdicts:
        if name != profile.capacity.name:
            mask &= verdict.bits == 0
    return mask


def broken(cluster: Cluster, pod: PodInfo, error: Exception) -> Decision:
    """A plugin raised: that is its fault and not the pod's, which is tried again after its pause."""
    message = f"a plugin broke: {type(error).__name__}: {error}"
    return Decision(Cycle(pod, cluster.snapshot), message=message, code=Code.ERROR, refusal=Refusal())
