"""InterPodAffinity plugin: required terms filter, preferred terms score.

Anti-affinity applies in both directions: a running pod's required terms also keep a new pod away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from carico.kube.objects import Node, Pod
from carico.scheduler.cache import affinity_terms
from carico.scheduler.cache.affinity_terms import PodSet, Term
from carico.scheduler.cache.label_columns import MISSING
from carico.scheduler.cache.pod_match_counts import Counts, RowCounts, summed
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, EventInterest
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
from carico.types import Vector

AFFINITY = Reason("node(s) didn't match pod affinity rules", unresolvable=True)
ANTI_AFFINITY = Reason("node(s) didn't match pod anti-affinity rules")
EXISTING_ANTI_AFFINITY = Reason("node(s) didn't satisfy existing pods anti-affinity rules")

HARD_WEIGHT = 1  # weight of a running pod's required affinity in the score of pods that match it
MAX_FOREIGN_KEYS = 256  # above this, keys that no running pod uses any more are dropped


@dataclass(slots=True)
class _DomainCounts:
    """Pods per domain, by label key: the filter state of one cycle."""

    affinity: dict[str, Counts]  # pods that match all affinity terms
    anti_affinity: dict[str, Counts]  # pods that match an anti-affinity term of this pod
    existing_anti_affinity: dict[str, Counts]  # running pods with an anti-affinity term that matches this pod


class InterPodAffinity(PreFilter, PreFilterExtensions, Filter, PreScore, Score):
    name = "InterPodAffinity"
    reuse = Reuse.NEVER  # depends on pods of other nodes

    def __init__(self) -> None:
        self._foreign_keys: set[str] = set()  # topology keys of running pods' terms that have rejected a pod

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("Pod", Action.ADD | Action.DELETE | Action.POD_LABEL, _concerns, pod_set=_pod_set),
            EventInterest("Node", Action.ADD | Action.NODE_LABEL, self._changes_domain),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        snapshot, mine = cycle.snapshot, cycle.pod.terms
        existing_anti_affinity: dict[str, Counts] = {}
        for term, there in snapshot.match_counts.anti_affinity.items():
            if snapshot.match_counts.included(term.pod_set, cycle.pod.identity):
                _gather(existing_anti_affinity, snapshot, term.topology_key, there)
        if not existing_anti_affinity and not mine.affinity and not mine.anti_affinity:
            return SKIP
        self._foreign_keys.update(existing_anti_affinity)
        if len(self._foreign_keys) > MAX_FOREIGN_KEYS:
            self._foreign_keys = {term.topology_key for term in snapshot.match_counts.anti_affinity}
        counted = _DomainCounts({}, {}, existing_anti_affinity)
        matching_all = _matching_all(snapshot, mine.affinity) if mine.affinity else None
        for term in mine.affinity:
            _gather(counted.affinity, snapshot, term.topology_key, matching_all)
        for term in mine.anti_affinity:
            counts = snapshot.match_counts.count(term.pod_set, len(snapshot), terminating=True)
            _gather(counted.anti_affinity, snapshot, term.topology_key, counts)
        cycle.state[self.name] = counted
        return OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        counted: _DomainCounts = cycle.state[self.name]
        length = len(cycle.snapshot) if rows is None else len(rows)
        bits = np.zeros(length, dtype=np.uint8)
        if cycle.pod.terms.affinity:
            bits |= _without_affinity(cycle, counted, rows).view(np.uint8)
        bits |= _in_domain_of(cycle.snapshot, counted.anti_affinity, rows, length).view(np.uint8) << np.uint8(1)
        bits |= _in_domain_of(cycle.snapshot, counted.existing_anti_affinity, rows, length).view(np.uint8) << np.uint8(
            2
        )
        return Verdict(bits, (AFFINITY, ANTI_AFFINITY, EXISTING_ANTI_AFFINITY))

    def _changes_domain(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        """Whether the node is new, or has moved to another domain of a term that may have rejected the pod."""
        if old is None:
            return True
        before, after = old.metadata.labels, new.metadata.labels
        return any(before.get(key) != after.get(key) for key in self._foreign_keys) or any(
            before.get(term.topology_key) != after.get(term.topology_key)
            for term in (*pod.terms.affinity, *pod.terms.anti_affinity)
        )

    def add_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        self._shift(cycle, pod, row, 1)

    def remove_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        self._shift(cycle, pod, row, -1)

    def _shift(self, cycle: Cycle, pod: PodInfo, row: int, change: int) -> None:
        counted: _DomainCounts = cycle.state[self.name]
        snapshot, mine = cycle.snapshot, cycle.pod.terms
        included = snapshot.match_counts.included
        for term in pod.terms.anti_affinity:
            if included(term.pod_set, cycle.pod.identity):
                _bump(counted.existing_anti_affinity, snapshot, term.topology_key, row, change)
        if mine.affinity and all(included(term.pod_set, pod.identity) for term in mine.affinity):
            for term in mine.affinity:
                _bump(counted.affinity, snapshot, term.topology_key, row, change)
        for term in mine.anti_affinity:
            if included(term.pod_set, pod.identity):
                _bump(counted.anti_affinity, snapshot, term.topology_key, row, change)

    def pre_score(self, cycle: Cycle, rows: RowArray) -> Status:
        snapshot, match_counts = cycle.snapshot, cycle.snapshot.match_counts
        liking: dict[str, Counts] = {}
        for term, weight in cycle.pod.terms.preferred:
            counts = match_counts.count(term.pod_set, len(snapshot), terminating=True)
            _gather(liking, snapshot, term.topology_key, counts, weight)
        for (term, weight), there in match_counts.preferred.items():
            if match_counts.included(term.pod_set, cycle.pod.identity):
                _gather(liking, snapshot, term.topology_key, there, weight)
        for term, there in match_counts.affinity.items():
            if match_counts.included(term.pod_set, cycle.pod.identity):
                _gather(liking, snapshot, term.topology_key, there, HARD_WEIGHT)
        cycle.state["soft " + self.name] = liking
        return OK if liking else SKIP

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        liking: dict[str, Counts] = cycle.state["soft " + self.name]
        total = np.zeros(len(rows))
        for key, per_domain in liking.items():
            total += np.append(per_domain, 0)[cycle.snapshot.labels.codes(key, rows)]
        spread = total.max(initial=0.0) - total.min(initial=0.0)
        return (total - total.min()) * (MAX_SCORE / spread) if len(total) and spread > 0 else np.zeros(len(rows))


def _matching_all(snapshot: Snapshot, wanted: tuple[Term, ...]) -> Counts:
    """Pods per row that match all of the terms; the same pod must match every term."""
    pod_sets = tuple(term.pod_set for term in wanted)
    return snapshot.match_counts.count_all(pod_sets, len(snapshot), terminating=True)


def _gather(
    into: dict[str, Counts], snapshot: Snapshot, key: str, counts: RowCounts | Counts | None, weight: int = 1
) -> None:
    """Add pods per row to the pods per domain of a label key."""
    codes = snapshot.labels.codes(key, None)
    domains = len(snapshot.labels.column(key).values)
    if isinstance(counts, RowCounts):
        per_domain = counts.by_domain(codes, domains)
    else:
        assert counts is not None
        per_domain = summed(counts, codes, domains)
    into[key] = into[key] + weight * per_domain if key in into else weight * per_domain


def _bump(counted: dict[str, Counts], snapshot: Snapshot, key: str, row: int, change: int) -> None:
    code = snapshot.labels.column(key).codes[row]
    if code != MISSING:
        if key not in counted:
            counted[key] = np.zeros(len(snapshot.labels.column(key).values), dtype=np.int64)
        counted[key][code] += change


def _in_domain_of(snapshot: Snapshot, counted: dict[str, Counts], rows: RowArray | None, length: int) -> Mask:
    """Rows in a domain that has at least one of the counted pods."""
    mask = np.zeros(length, dtype=np.bool_)
    for key, counts in counted.items():
        mask |= np.append(counts > 0, False)[snapshot.labels.codes(key, rows)]
    return mask


def _without_affinity(cycle: Cycle, counted: _DomainCounts, rows: RowArray | None) -> Mask:
    """Rows that do not satisfy the pod's required affinity.

    If no pod matches yet and the pod matches its own terms, any node with the labels will do: it would otherwise wait
    without end.
    """
    wanted = cycle.pod.terms.affinity
    snapshot = cycle.snapshot
    none_match = not any(counts.any() for counts in counted.affinity.values())
    first = none_match and all(snapshot.match_counts.included(term.pod_set, cycle.pod.identity) for term in wanted)
    good = np.ones(len(snapshot) if rows is None else len(rows), dtype=np.bool_)
    for key in {term.topology_key for term in wanted}:
        codes = snapshot.labels.codes(key, rows)
        good &= (codes != MISSING) if first else np.append(counted.affinity[key] > 0, False)[codes]
    return ~good


def _all_match(wanted: Iterable[Term], pod: Pod) -> bool:
    """Whether the pod matches; a namespace selector is taken to match, as a queueing hint has no namespace labels."""
    found = [
        (pod.namespace in t.pod_set.namespaces or not t.pod_set.namespace_selector.never)
        and t.pod_set.selector.matches(pod.metadata.labels)
        for t in wanted
    ]
    return bool(found) and all(found)


def _pod_set(pod: PodInfo) -> tuple[PodSet, ...]:
    """A pod that helps by affinity matches all of its terms, so the first one suffices to find it."""
    return tuple(term.pod_set for term in (*pod.terms.affinity[:1], *pod.terms.anti_affinity))


def _concerns(pod: PodInfo, old: Pod | None, new: Pod | None) -> bool:
    """Whether a pod that was added, deleted or relabelled matches an affinity term between it and the waiting pod."""
    if new is not None and new.uid == pod.uid:
        return True
    states = [state for state in (old, new) if state is not None and state.spec.node_name]
    return any(
        _all_match(pod.terms.affinity, state)
        or any(_all_match([term], state) for term in pod.terms.anti_affinity)
        or any(_all_match([term], pod.pod) for term in affinity_terms.of_pod(state).anti_affinity)
        for state in states
    )
