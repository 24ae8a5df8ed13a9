"""PodTopologySpread plugin: spreads matching pods evenly over zones, hosts or the values of another label.

Hard constraints filter: a domain may hold at most `maxSkew` more matching pods than the emptiest eligible one. Soft
constraints score: domains with fewer matching pods are better.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/895-pod-topology-spread
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carico.kube.objects import Node, Pod
from carico.kube.selectors import NOTHING
from carico.scheduler.cache.affinity_terms import PodSet
from carico.scheduler.cache.label_columns import MISSING
from carico.scheduler.cache.pod_match_counts import Counts, summed
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, EventInterest, only_itself
from carico.scheduler.framework.contract import (
    MAX_SCORE,
    OK,
    SKIP,
    Cycle,
    Filter,
    PreFilter,
    PreFilterExtensions,
    PreScore,
    Reason,
    Reuse,
    Score,
    Status,
    Verdict,
)
from carico.scheduler.plugins.topology import spread_constraints
from carico.scheduler.plugins.topology.spread_constraints import HOSTNAME, Constraint
from carico.types import Vector

NO_LABEL = Reason("node(s) didn't match pod topology spread constraints (missing required label)", unresolvable=True)
SKEWED = Reason("node(s) didn't match pod topology spread constraints")
COUNTED = Action.ADD | Action.DELETE | Action.POD_LABEL | Action.POD_TERMINATING  # what may change the counts


@dataclass(slots=True)
class _Spread:
    """State of one hard constraint during a cycle."""

    constraint: Constraint
    codes: NDArray[np.int32]  # the domain of every row
    counting: Mask  # rows whose pods count
    domains: Mask  # domains with at least one such row
    counts: Counts  # matching pods per domain
    itself: int  # 1 when the pod matches its own constraint

    def least(self) -> int:
        """Matching pods in the emptiest eligible domain; 0 while there are fewer domains than `minDomains`."""
        if np.count_nonzero(self.domains) < self.constraint.min_domains:
            return 0
        return int(self.counts[self.domains].min())

    def bits(self, rows: RowArray | None) -> NDArray[np.uint8]:
        codes = self.codes if rows is None else self.codes[rows]
        limit = self.constraint.max_skew + self.least() - self.itself
        # The last entry is for rows without the label.
        table = np.append((self.counts > limit).astype(np.uint8) << 1, np.uint8(1))
        return table.astype(np.uint8)[codes]


class PodTopologySpread(PreFilter, PreFilterExtensions, Filter, PreScore, Score):
    name = "PodTopologySpread"
    reuse = Reuse.NEVER  # counts pods of the whole cluster

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("Pod", COUNTED, _counts, pod_set=_pod_set),
            # nodeTaintsPolicy: other nodes may be counted now
            EventInterest("Pod", Action.POD_TOLERATION, _itself, pod_set=only_itself),
            EventInterest("Node", Action.ADD | Action.DELETE | Action.NODE_LABEL | Action.NODE_TAINT, _changes_domains),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        constraints = spread_constraints.of_pod(cycle.pod, "DoNotSchedule")
        if not constraints:
            return SKIP
        labelled = _labelled(cycle, constraints)
        cycle.state[self.name] = [self._spread(cycle, c, labelled) for c in constraints]
        return OK

    def _spread(self, cycle: Cycle, constraint: Constraint, labelled: Mask) -> _Spread:
        snapshot = cycle.snapshot
        column = snapshot.labels.column(constraint.key)
        codes = snapshot.labels.codes(constraint.key, None)
        counting = labelled & constraint.eligible(snapshot, cycle.pod)
        counts = constraint.counts(snapshot, cycle.pod.pod.namespace)
        return _Spread(
            constraint,
            codes,
            counting,
            summed(counting.astype(np.int64), codes, len(column.values)) > 0,
            summed(counts * counting, codes, len(column.values)),
            int(constraint.selector.matches(cycle.pod.identity.labels)),
        )

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        bits = np.zeros(len(cycle.snapshot) if rows is None else len(rows), dtype=np.uint8)
        for spread in cycle.state[self.name]:
            bits |= spread.bits(rows)
        return Verdict(bits, (NO_LABEL, SKEWED))

    def add_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        self._shift(cycle, pod, row, 1)

    def remove_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        self._shift(cycle, pod, row, -1)

    def _shift(self, cycle: Cycle, pod: PodInfo, row: int, change: int) -> None:
        if pod.pod.namespace != cycle.pod.pod.namespace or pod.pod.terminating:
            return
        for spread in cycle.state[self.name]:
            if spread.counting[row] and spread.constraint.counts_pod(pod):
                spread.counts[spread.codes[row]] += change

    def pre_score(self, cycle: Cycle, rows: RowArray) -> Status:
        pod = cycle.pod
        own = bool(pod.pod.spec.topology_spread_constraints)
        soft = (
            spread_constraints.of_pod(pod, "ScheduleAnyway")
            if own
            else spread_constraints.of_system(pod.pod, cycle.snapshot.store)
        )
        cycle.state["soft " + self.name] = soft
        return OK if soft else SKIP

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        constraints: tuple[Constraint, ...] = cycle.state["soft " + self.name]
        strict = bool(cycle.pod.pod.spec.topology_spread_constraints)
        usable = _labelled(cycle, constraints) if strict else cycle.snapshot.present
        scored = usable[rows]
        crowd = np.zeros(len(rows))
        for constraint in constraints:
            crowd += _crowd(cycle, constraint, rows, usable, scored)
        return _best_when_empty(np.round(crowd), scored)


def _labelled(cycle: Cycle, constraints: tuple[Constraint, ...]) -> Mask:
    """Rows that have the label of every constraint."""
    mask = cycle.snapshot.present.copy()
    for constraint in constraints:
        mask &= cycle.snapshot.labels.codes(constraint.key, None) != MISSING
    return mask


def _crowd(cycle: Cycle, constraint: Constraint, rows: RowArray, usable: Mask, scored: Mask) -> Vector:
    """How crowded a row's domain is; topologies with few domains weigh less, so that hosts do not outweigh zones."""
    snapshot = cycle.snapshot
    codes = snapshot.labels.codes(constraint.key, None)
    counts = constraint.counts(snapshot, cycle.pod.pod.namespace)
    mine = codes[rows]
    if constraint.key == HOSTNAME:
        size, found = int(np.count_nonzero(scored)), counts[rows].astype(np.float64)
    else:
        counting = usable & constraint.eligible(snapshot, cycle.pod)
        per_domain = summed(counts * counting, codes, len(snapshot.labels.column(constraint.key).values))
        size = len(np.unique(mine[scored]))
        found = np.append(per_domain, 0)[mine].astype(np.float64)
    crowd = found * math.log(size + 2) + (constraint.max_skew - 1)
    return np.where(mine == MISSING, 0.0, crowd)


def _best_when_empty(crowd: Vector, scored: Mask) -> Vector:
    if not scored.any():
        return np.zeros(len(crowd))
    most, least = crowd[scored].max(), crowd[scored].min()
    scores = np.full(len(crowd), MAX_SCORE) if most == 0 else MAX_SCORE * (most + least - crowd) / most
    return np.where(scored, scores, 0.0)


def _pod_set(pod: PodInfo) -> tuple[PodSet, ...]:
    constraints = spread_constraints.of_pod(pod, "DoNotSchedule")
    return tuple(PodSet(frozenset({pod.pod.namespace}), NOTHING, c.selector) for c in constraints)


def _counts(pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
    """Whether the changed pod is the waiting pod itself or one that its constraints count."""
    constraints = spread_constraints.of_pod(pod, "DoNotSchedule")
    states = [state for state in (old, new) if state is not None]
    if any(state.uid == pod.uid for state in states):
        return True
    return any(
        state.namespace == pod.pod.namespace and any(c.selector.matches(state.metadata.labels) for c in constraints)
        for state in states
    )


def _itself(pod: PodInfo, old: object, new: Pod) -> bool:
    return new.uid == pod.uid


def _changes_domains(pod: PodInfo, old: Node | None, new: Node | None) -> bool:
    """Whether the constraints count other nodes now, or count this one in another domain."""
    constraints = spread_constraints.of_pod(pod, "DoNotSchedule")
    keys = {c.key for c in constraints}
    counted = [node for node in (old, new) if node is not None and keys <= node.metadata.labels.keys()]
    if old is None or new is None or len(counted) == 1:
        return bool(counted)
    if not counted:
        return False
    before, after = old.metadata.labels, new.metadata.labels
    if old.spec.taints != new.spec.taints or any(before[key] != after[key] for key in keys):
        return True
    # A node that the pod's selector no longer admits, or newly admits, changes which domains are counted.
    spec = pod.pod.spec
    selects = bool(spec.node_selector) or (spec.affinity is not None and spec.affinity.node_affinity is not None)
    return selects and before != after
