"""What happened in the cluster, in the terms that plugins wait for.

A pod that found no node waits until something happens that could change the verdict of a plugin that refused it. Each
plugin lists its `Interest`s; the queue compares them with every `Change`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any

from carico.kube.objects import Node, Pod
from carico.scheduler import requests
from carico.scheduler.template import PodInfo


class Action(Flag):
    NONE = 0
    ADD = auto()
    DELETE = auto()
    UPDATE = auto()  # anything that has no word of its own below
    NODE_ALLOCATABLE = auto()
    NODE_LABEL = auto()
    NODE_TAINT = auto()  # spec.unschedulable counts as one
    NODE_FEATURES = auto()
    POD_LABEL = auto()
    POD_SCALE_DOWN = auto()  # a pod was resized and needs less of something
    POD_TOLERATION = auto()
    POD_GATES = auto()  # scheduling gates were lifted
    POD_ANNOTATION = auto()
    POD_TERMINATING = auto()  # a pod is being deleted; spreading no longer counts it


# A hint looks at the waiting pod and the object before and after; False: this cannot have helped that pod. It is asked
# once for all waiting pods that have the same template, labels, namespace and priority, unless they have volumes.
Hint = Callable[[PodInfo, Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    action: Action
    old: Any = None
    new: Any = None


@dataclass(frozen=True, slots=True)
class Interest:
    """A kind of change that could turn this plugin's verdict."""

    kind: str
    action: Action
    hint: Hint | None = None
    on_error: Callable[[Exception], object] | None = field(default=None, compare=False)  # of the hint

    def could_help(self, waiting: PodInfo, change: Change) -> bool:
        if self.kind != change.kind or not self.action & change.action:
            return False
        try:
            return self.hint is None or self.hint(waiting, change.old, change.new)
        except Exception as error:  # as in Kubernetes, the pod is tried then
            if self.on_error is not None:
                self.on_error(error)
            return True


def node_change(old: Node | None, new: Node | None) -> Change:
    """The change from one state of a node to the next; either may be missing."""
    if old is None or new is None:
        return Change("Node", Action.ADD if old is None else Action.DELETE, old, new)
    action = Action.NONE
    if old.status.allocatable != new.status.allocatable:
        action |= Action.NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        action |= Action.NODE_LABEL
    if old.spec != new.spec:
        action |= Action.NODE_TAINT
    if old.status.declared_features != new.status.declared_features:
        action |= Action.NODE_FEATURES
    return Change("Node", action, old, new)


def pod_change(old: Pod | None, new: Pod | None) -> Change:
    """The change of a pod, whether it waits or runs; hints tell the two apart by `spec.node_name`."""
    if old is None or new is None:
        return Change("Pod", Action.ADD if old is None else Action.DELETE, old, new)
    action = Action.NONE
    if old.metadata.labels != new.metadata.labels:
        action |= Action.POD_LABEL
    if old.spec.tolerations != new.spec.tolerations:
        action |= Action.POD_TOLERATION
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        action |= Action.POD_GATES
    if old.metadata.annotations != new.metadata.annotations:
        action |= Action.POD_ANNOTATION
    if new.terminating and not old.terminating:
        action |= Action.POD_TERMINATING
    if _needs_less(old, new):
        action |= Action.POD_SCALE_DOWN
    return Change("Pod", action, old, new)


def _needs_less(old: Pod, new: Pod) -> bool:
    """Whether the pod occupies less of anything; most updates touch nothing that requests are made from."""
    if old.spec == new.spec and _resize_state(old) == _resize_state(new):
        return False
    before, after = (requests.of_pod(pod, running=bool(pod.spec.node_name)) for pod in (old, new))
    return any(after.get(name, 0) < amount for name, amount in before.items())


def _resize_state(pod: Pod) -> Any:
    status = pod.status
    kept = (*status.container_statuses, *status.init_container_statuses)
    return (
        [(s.name, s.resources, s.allocated_resources) for s in kept],
        status.resources,
        status.allocated_resources,
        [c.reason for c in status.conditions if c.type == "PodResizePending"],
    )
