"""TaintToleration and NodeUnschedulable plugins: taints keep pods off a node unless a pod tolerates them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carico.columns import grown
from carico.kube.objects import Node, Taint, Toleration
from carico.scheduler.cache.row_groups import Groups
from carico.scheduler.cache.rows import Mask, RowArray, among
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo, PodTemplate
from carico.scheduler.framework.cluster_events import Action, EventInterest, only_itself
from carico.scheduler.framework.contract import (
    OK,
    SKIP,
    Cycle,
    Filter,
    PreFilter,
    PreScore,
    Reuse,
    Score,
    Status,
    Verdict,
)
from carico.scheduler.framework.scoring import normalised
from carico.types import Vector

HARD_EFFECTS = ("NoSchedule", "NoExecute")
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect or key of the toleration matches every effect or key."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def tolerated(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def repels(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Whether an untolerated taint with a hard effect keeps the pod off the node."""
    return any(t.effect in HARD_EFFECTS and not tolerated(tolerations, t) for t in taints)


def untolerated(snapshot: Snapshot, template: PodTemplate, rows: RowArray | None) -> Mask:
    """The rows whose taints keep the pod off."""
    groups = _groups(snapshot, rows)
    repelling = np.flatnonzero(_table(snapshot, template, "repels", _repels))
    return among(groups, repelling.tolist(), len(snapshot.taints.members))


def _repels(taints: Sequence[Taint], template: PodTemplate) -> int:
    return int(repels(taints, template.spec.tolerations))


def _disliked(taints: Sequence[Taint], template: PodTemplate) -> int:
    """The number of PreferNoSchedule taints that the pod does not tolerate."""
    soft = [t for t in taints if t.effect == "PreferNoSchedule"]
    mine = [t for t in template.spec.tolerations if t.effect in ("", "PreferNoSchedule")]
    return sum(not tolerated(mine, taint) for taint in soft)


@dataclass(slots=True)
class _Answers:
    """A template's result for each distinct set of taints, by the set's number."""

    groups: Groups[tuple[Taint, ...]]
    mark: int  # of `groups`, up to which the answers are valid
    answers: NDArray[np.int32]


def _table(
    snapshot: Snapshot, template: PodTemplate, what: str, judge: Callable[[Sequence[Taint], PodTemplate], int]
) -> NDArray[np.int32]:
    """One answer per distinct set of taints: clusters have thousands of nodes but only a few such sets."""
    groups = snapshot.taints
    known: _Answers | None = template.memo.get(what)
    if known is None or known.groups is not groups:
        answers = np.array([judge(taints, template) for taints in groups.members], dtype=np.int32)
        known = template.memo[what] = _Answers(groups, groups.mark, answers)
    elif known.mark != groups.mark:
        known.answers = grown(known.answers, len(groups.members))
        for number in groups.changed_since(known.mark):
            known.answers[number] = judge(groups.members[number], template)
        known.mark = groups.mark
    return known.answers[: len(groups.members)]


def _groups(snapshot: Snapshot, rows: RowArray | None) -> NDArray[np.int32]:
    return snapshot.taints.of[: len(snapshot)] if rows is None else snapshot.taints.of[rows]


class TaintToleration(Filter, PreScore, Score):
    name = "TaintToleration"
    reuse = Reuse.NODE

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("Node", Action.ADD | Action.NODE_TAINT, _node_opened),
            EventInterest("Pod", Action.POD_TOLERATION, _same_pod, pod_set=only_itself),
        )

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        refused = untolerated(cycle.snapshot, cycle.pod.template, rows)
        return Verdict.refuse(refused, "node(s) had untolerated taint(s)", unresolvable=True)

    def pre_score(self, cycle: Cycle, rows: RowArray) -> Status:
        counts = _table(cycle.snapshot, cycle.pod.template, "disliked", _disliked)
        cycle.state[self.name] = counts
        return OK if counts.any() else SKIP

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        counts = cycle.state[self.name][_groups(cycle.snapshot, rows)]
        return normalised(counts.astype(np.float64), reverse=True)


class NodeUnschedulable(PreFilter, Filter):
    """Cordoned nodes are rejected unless the pod tolerates the `unschedulable` taint."""

    name = "NodeUnschedulable"
    reuse = Reuse.NODE

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("Node", Action.ADD | Action.NODE_TAINT, _uncordoned),
            EventInterest("Pod", Action.POD_TOLERATION, _same_pod, pod_set=only_itself),
        )

    def pre_filter(self, cycle: Cycle) -> Status:
        return SKIP if tolerated(cycle.pod.template.spec.tolerations, UNSCHEDULABLE) else OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        cordoned = cycle.snapshot.unschedulable
        refused = cordoned.copy() if rows is None else cordoned[rows]
        return Verdict.refuse(refused, "node(s) were unschedulable", unresolvable=True)


def _node_opened(pod: PodInfo, old: Node | None, new: Node) -> bool:
    tolerations = pod.pod.spec.tolerations
    return not repels(new.spec.taints, tolerations) and (old is None or repels(old.spec.taints, tolerations))


def _uncordoned(pod: PodInfo, old: Node | None, new: Node) -> bool:
    return not new.spec.unschedulable and (old is None or old.spec.unschedulable)


def _same_pod(pod: PodInfo, old: object, new: object) -> bool:
    return getattr(new, "uid", None) == pod.uid
