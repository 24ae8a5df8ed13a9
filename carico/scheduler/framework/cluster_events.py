"""Cluster events and the events that plugins register for (kube-scheduler: ClusterEvent, EventsToRegister).

An unschedulable pod waits until an event could change the verdict of a plugin that rejected it. Each plugin lists its
`EventInterest`s; the queue compares them with every `ClusterEvent`.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/4247-queueinghint
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any

from carico.kube.objects import Node, Pod
from carico.scheduler.cache import requests
from carico.scheduler.cache.affinity_terms import PodSet
from carico.scheduler.cache.template import PodInfo

__all__ = ["Action", "ClusterEvent", "EventInterest", "Hint", "only_itself"]


class Action(Flag):
    NONE = 0
    ADD = auto()
    DELETE = auto()
    UPDATE = auto()  # anything without a flag below
    NODE_ALLOCATABLE = auto()
    NODE_LABEL = auto()
    NODE_TAINT = auto()  # spec.unschedulable counts as one
    NODE_FEATURES = auto()
    POD_LABEL = auto()
    POD_SCALE_DOWN = auto()  # a pod was resized and needs less of something
    POD_TOLERATION = auto()
    POD_GATES = auto()  # scheduling gates were removed
    POD_ANNOTATION = auto()
    POD_TERMINATING = auto()  # a pod is being deleted; topology spread no longer counts it


# A queueing hint gets the waiting pod and the object before and after; False: the event cannot help that pod. It is
# called once for all waiting pods with the same template, labels, namespace and priority, unless they have volumes.
Hint = Callable[[PodInfo, Any, Any], bool]

# Of a waiting pod: the pods whose changes can help it. An interest in pods that has one is not compared with changes of
# other pods; a pod with anti-affinity terms, which may exclude any pod, is compared with all.
PodSetsOf = Callable[[PodInfo], tuple[PodSet, ...]]


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    kind: str
    action: Action
    old: Any = None
    new: Any = None
    bits: int = field(init=False, compare=False)  # of the action: enum.Flag is slow, and every event needs them

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", self.action.value)


@dataclass(frozen=True, slots=True)
class EventInterest:
    """A kind of event that could change the plugin's verdict."""

    kind: str
    action: Action
    hint: Hint | None = None
    pod_set: PodSetsOf | None = field(default=None, kw_only=True)
    on_error: Callable[[Exception], object] | None = field(default=None, compare=False)  # called when the hint raises
    bits: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", self.action.value)

    def could_help(self, waiting: PodInfo, change: ClusterEvent) -> bool:
        if self.kind != change.kind or not self.bits & change.bits:
            return False
        try:
            return self.hint is None or self.hint(waiting, change.old, change.new)
        except Exception as error:  # as in kube-scheduler, the pod is requeued then
            self._failed(error)
            return True

    def audience_of(self, waiting: PodInfo) -> tuple[PodSet, ...] | None:
        """None: any pod may help."""
        try:
            return None if self.pod_set is None else self.pod_set(waiting)
        except Exception as error:
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> None:
        if self.on_error is not None:
            self.on_error(error)


def only_itself(_: PodInfo) -> tuple[PodSet, ...]:
    """The pod set of a hint that accepts only changes of the waiting pod itself, which `Queue.update` compares."""
    return ()


def node_change(old: Node | None, new: Node | None) -> ClusterEvent:
    """The change from one state of a node to the next; either may be missing."""
    if old is None or new is None:
        return ClusterEvent("Node", Action.ADD if old is None else Action.DELETE, old, new)
    action = Action.NONE
    if old.status.allocatable != new.status.allocatable:
        action |= Action.NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        action |= Action.NODE_LABEL
    if old.spec != new.spec:
        action |= Action.NODE_TAINT
    if old.status.declared_features != new.status.declared_features:
        action |= Action.NODE_FEATURES
    return ClusterEvent("Node", action, old, new)


def pod_change(old: Pod | None, new: Pod | None) -> ClusterEvent:
    """The change of a pending or assigned pod; hints distinguish the two by `spec.node_name`."""
    if old is None or new is None:
        return ClusterEvent("Pod", Action.ADD if old is None else Action.DELETE, old, new)
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
    return ClusterEvent("Pod", action, old, new)


def _needs_less(old: Pod, new: Pod) -> bool:
    """Whether any of the pod's requests decreased; most updates change nothing that requests are computed from."""
    if old.spec == new.spec and _resize_state(old) == _resize_state(new):
        return False
    before, after = (requests.of_pod(pod, running=bool(pod.spec.node_name)) for pod in (old, new))
    return any(after.get(name, 0) < amount for name, amount in before.items())


def _resize_state(pod: Pod) -> Any:
    status = pod.status
    kept = (*status.container_statuses, *status.init_container_statuses)
    return (
        [(s.name, s.resources, s.allocated_resources) for s in kept if s.resources is not None],
        status.resources,
        status.allocated_resources,
        [c.reason for c in status.conditions if c.type == "PodResizePending"],
    )
