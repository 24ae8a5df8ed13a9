"""Who runs here, and is the runtime busy: state without I/O.

A source (containerd, CRI, cgroups) turns what it hears into calls of `PodTable`, each with the time at which it was
heard; the agent asks `count(now)` at every tick. A pod is a sandbox whose task runs. What a container *is* and whether
its task *runs* are kept apart and joined when counted, so that facts may come in any order; a listing overrules all
that was heard before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from carico.settings import RuntimeSettings
from carico.types import PodCount

FINISHED_FOR = 60.0  # s for which the scheduler is told that a pod has ended
ANNOUNCED_FOR = 0.6  # s from a pod's cgroup until the runtime itself speaks of it, on a busy node
CREATING_AT_MOST = 10.0  # s; a start that failed never ends its creation
# s; containerd 2 does not always tell when a sandbox that has exited is cleared away
TAKING_DOWN_AT_MOST = 2.0

DAEMONSET_LABEL = "pod-template-generation"  # the revision hash would do for DaemonSets, but StatefulSets have it too
SOURCE_ANNOTATION = "kubernetes.io/config.source"  # "file" and "http" are static pods


class Sandbox(NamedTuple):
    uid: str  # of the pod
    workload: bool  # placed by a scheduler, as DaemonSet and static pods are not


class Listing(NamedTuple):
    """All that a runtime has at one moment."""

    sandboxes: Mapping[str, Sandbox]  # by the sandbox's id; stopped ones too
    containers: Mapping[str, str]  # id → id of its sandbox
    running: Mapping[str, float]  # ids of sandboxes and containers that run → s, monotonic, of their start


def is_workload(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """
    >>> is_workload({"app": "web"}, {"kubernetes.io/config.source": "api"})
    True
    >>> is_workload({"pod-template-generation": "1"}, {}), is_workload({}, {"kubernetes.io/config.source": "file"})
    (False, False)
    """
    return DAEMONSET_LABEL not in labels and annotations.get(SOURCE_ANNOTATION, "api") == "api"


class PodTable:
    """The pods of this node. Times are seconds of the monotonic clock and never decrease."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, str] = {}
        self._running: dict[str, float] = {}
        self._busy: dict[str, float] = {}  # id of what is being created or taken down → s, when that must be over
        self._busy_until = -math.inf
        self._finished: dict[str, float] = {}  # pod UID → when its sandbox ended
        self._listed = False
        self._counted: frozenset[str] = frozenset()
        self._youngest: list[float] = []  # per running workload pod: s, when its youngest container started

    def count(self, now: float) -> PodCount:
        settle = self._settings.settle
        unsettled = sum([now - start < settle for start in self._youngest])
        return PodCount(running=len(self._youngest), churn=self._churns(now), unsettled=unsettled)

    def counted(self) -> frozenset[str]:
        """UIDs of all pods that run, of every class; the same object until they change."""
        return self._counted

    def finished(self, now: float) -> frozenset[str]:
        """UIDs of pods that ended a short while ago and do not run again."""
        self._finished = {uid: at for uid, at in self._finished.items() if now - at < FINISHED_FOR}
        return frozenset(self._finished.keys() - self._counted)

    def announced(self, now: float) -> None:
        """A pod will be created in a moment."""
        self._busy_for(now, ANNOUNCED_FOR)

    def creating(self, container: str, now: float) -> None:
        self._busy[container] = now + CREATING_AT_MOST

    def is_sandbox(self, container: str, sandbox: Sandbox) -> None:
        self._sandboxes[container] = sandbox
        self._recount()

    def is_container(self, container: str, of_sandbox: str) -> None:
        self._containers[container] = of_sandbox
        self._recount()

    def started(self, container: str, now: float) -> None:
        self._busy.pop(container, None)
        self._running.setdefault(container, now)  # an event older than the listing does not make it younger
        self._busy_for(now, self._settings.churn_after_start)
        self._recount()

    def exited(self, container: str, now: float) -> None:
        """Its process ended; the runtime now takes it down."""
        self._busy[container] = now + TAKING_DOWN_AT_MOST
        self._end(container, now)

    def taken_down(self, container: str, now: float) -> None:
        self._busy.pop(container, None)
        self._end(container, now)

    def removed(self, container: str, now: float) -> None:
        """The runtime forgot it."""
        self._busy.pop(container, None)
        self._end(container, now)
        self._sandboxes.pop(container, None)
        self._containers.pop(container, None)

    def relisted(self, listing: Listing, now: float) -> None:
        """Replaces everything. Who started or ended unseen since the listing before did so now."""
        came = listing.running.keys() - self._running.keys()
        for container in self._running.keys() - listing.running.keys():
            self._end(container, now)
        if came and self._listed:
            self._busy_for(now, self._settings.churn_after_start)
        self._listed = True
        self._sandboxes = dict(listing.sandboxes)
        self._containers = dict(listing.containers)
        self._running = {id: self._running.get(id, start) for id, start in listing.running.items()}
        listed = listing.sandboxes.keys() | listing.containers.keys()
        self._busy = {id: until for id, until in self._busy.items() if id in listed and id not in self._running}
        self._recount()

    def _end(self, container: str, now: float) -> None:
        self._busy_for(now, self._settings.churn_after_delete)
        if self._running.pop(container, None) is not None and container in self._sandboxes:
            self._finished[self._sandboxes[container].uid] = now
        self._recount()

    def _busy_for(self, now: float, seconds: float) -> None:
        self._busy_until = max(self._busy_until, now + seconds)

    def _churns(self, now: float) -> bool:
        if self._busy:
            self._busy = {id: until for id, until in self._busy.items() if now < until}
        return bool(self._busy) or now < self._busy_until

    def _recount(self) -> None:
        """What `count` needs ten times a second is worked out when something changes, which is rare."""
        youngest: dict[str, float] = {}  # sandbox → start of its youngest running container
        for container, sandbox_id in self._containers.items():
            if (start := self._running.get(container)) is not None:
                youngest[sandbox_id] = max(youngest.get(sandbox_id, start), start)
        pods = {id: sandbox for id, sandbox in self._sandboxes.items() if id in self._running}
        # A pod without a running container has all its load still to come, as if it started in the future.
        starts = {pod.uid: youngest.get(id, math.inf) for id, pod in pods.items() if pod.workload}
        self._youngest = list(starts.values())
        counted = frozenset(pod.uid for pod in pods.values())
        if counted != self._counted:
            self._counted = counted
