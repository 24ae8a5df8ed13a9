"""Taints and tolerations: a node's "keep off", and a pod's "I may"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from carico.kube.objects import Node, Taint, Toleration
from carico.scheduler.changes import Action, Interest
from carico.scheduler.framework import OK, SKIP, Cycle, Reuse, Status, Verdict
from carico.scheduler.groups import Groups
from carico.scheduler.rows import Mask, RowArray, among, grown
from carico.scheduler.scoring import normalised
from carico.scheduler.snapshot import Snapshot
from carico.scheduler.template import PodInfo, Template
from carico.types import Vector

HARD_EFFECTS = ("NoSchedule", "NoExecute")
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect or key of the toleration stands for all of them."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def tolerated(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def repels(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Whether some taint keeps the pod off the node for good."""
    return any(t.effect in HARD_EFFECTS and not tolerated(tolerations, t) for t in taints)


def untolerated(snapshot: Snapshot, template: Template, rows: RowArray | None) -> Mask:
    """The rows whose taints keep the pod off."""
    groups = _groups(snapshot, rows)
    repelling = np.flatnonzero(_table(snapshot, template, "repels", _repels))
    return among(groups, repelling.tolist(), len(snapshot.taints.members))


def _repels(taints: Sequence[Taint], template: Template) -> int:
    return int(repels(taints, template.spec.tolerations))


def _disliked(taints: Sequence[Taint], template: Template) -> int:
    """Taints that ask to stay off if possible, and that the pod does not tolerate."""
    soft = [t for t in taints if t.effect == "PreferNoSchedule"]
    mine = [t for t in template.spec.tolerations if t.effect in ("", "PreferNoSchedule")]
    return sum(not tolerated(mine, taint) for taint in soft)


@dataclass(slots=True)
class _Answers:
    """What a template has to say to each distinct set of taints, by the set's number."""

    groups: Groups[tuple[Taint, ...]]
    mark: int = -1  # of `groups`, up to which the answers hold
    answers: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))


def _table(
    snapshot: Snapshot, template: Template, what: str, judge: Callable[[Sequence[Taint], Template], int]
) -> NDArray[np.int32]:
    """One answer per distinct set of taints: clusters have thousands of nodes but a handful of these."""
    groups = snapshot.taints
    known: _Answers | None = template.memo.get(what)
    if known is None or known.groups is not groups:
        known = template.memo[what] = _Answers(groups)
    if known.mark != groups.mark:
        known.answers = grown(known.answers, len(groups.members))
        for number in groups.changed_since(known.mark):
            known.answers[number] = judge(groups.members[number], template)
        known.mark = groups.mark
    return known.answers[: len(groups.members)]


def _groups(snapshot: Snapshot, rows: RowArray | None) -> NDArray[np.int32]:
    return snapshot.taints.of[: len(snapshot)] if rows is None else snapshot.taints.of[rows]


class TaintToleration:
    name = "TaintToleration"
    reuse = Reuse.NODE

    @property
    def interests(self) -> tuple[Interest, ...]:
        return (
            Interest("Node", Action.ADD | Action.NODE_TAINT, _node_opened),
            Interest("Pod", Action.POD_TOLERATION, _same_pod),
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


class NodeUnschedulable:
    """Nodes that were cordoned; who tolerates the taint of the same meaning may go there all the same."""

    name = "NodeUnschedulable"
    reuse = Reuse.NODE

    @property
    def interests(self) -> tuple[Interest, ...]:
        return (
            Interest("Node", Action.ADD | Action.NODE_TAINT, _uncordoned),
            Interest("Pod", Action.POD_TOLERATION, _same_pod),
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
