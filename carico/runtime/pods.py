"""Which pods run on this node, and whether the runtime is busy: state without I/O.

A source (containerd, CRI, cgroups) converts events to calls of `PodTable`, each with the time at which the event was
received; the agent calls `count(now)` at every tick. A pod is a sandbox whose task runs. What a container *is* and
whether its task *runs* are stored separately and joined when counted, so that events may arrive in any order; a listing
replaces everything received before it.

Not every pod whose sandbox runs is load, now or soon. One whose containers have all ended waits to be removed or for
its next restart; one that has been without a running container for long cannot pull its image or crashes at every
start. Neither counts as running. Both remain `counted`: the node's report includes them.

An event updates one pod, and a tick only those that are due: no operation takes time proportional to the pods of the
node.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from carico.pod_class import WORKLOAD, class_of_images
from carico.settings import RuntimeSettings
from carico.types import ClassKey, PodCount

FINISHED_FOR = 60.0  # s for which an ended pod is reported to the scheduler
ANNOUNCED_FOR = 0.6  # s from the creation of a pod's cgroup to the first event of the runtime, on a busy node
CREATING_AT_MOST = 10.0  # s; there is no event when a creation fails
STARTING_AT_MOST = 20.0  # s without a running container after which a pod's load is no longer expected
# s; containerd 2 does not always send an event when a sandbox that has exited is removed
TAKING_DOWN_AT_MOST = 2.0

DAEMONSET_LABEL = "pod-template-generation"  # not the revision hash: StatefulSets have that label too
SOURCE_ANNOTATION = "kubernetes.io/config.source"  # "file" and "http" are static pods


class Sandbox(NamedTuple):
    uid: str  # of the pod
    workload: bool  # False for DaemonSet and static pods, and those with the label carico.dev/workload: "false"
    namespace: str = ""  # empty: the source has neither namespace nor labels
    key: ClassKey | None = None  # None: derived from the images, or sent by the scheduler
    cgroup: str | None = None  # the pod's, below the hierarchy's mount; None: not known


class Member(NamedTuple):
    """A container of a pod."""

    sandbox: str  # its id
    image: str = ""  # as in the pod's specification; empty: not known


class PodListing(NamedTuple):
    """All sandboxes and containers of a runtime at one time."""

    sandboxes: Mapping[str, Sandbox]  # by the sandbox's id; stopped ones too
    containers: Mapping[str, Member]
    running: Mapping[str, float]  # ids of sandboxes and containers that run → s, monotonic, of their start


class WorkloadPod(NamedTuple):
    """A pod that a scheduler placed on this node, and whose sandbox runs."""

    uid: str
    key: ClassKey | None  # None: the source has no labels, and no scheduler has sent it yet
    started: float | None  # s, monotonic, when its first container started; None: none has run yet
    running: bool  # whether a container runs
    cgroup: str | None  # path below the hierarchy's mount, e.g. "/kubepods/burstable/pod<uid>"; None: not known


def is_workload(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """
    >>> is_workload({"app": "web"}, {"kubernetes.io/config.source": "api"})
    True
    >>> is_workload({"pod-template-generation": "1"}, {}), is_workload({}, {"kubernetes.io/config.source": "file"})
    (False, False)
    >>> is_workload({"app": "web", "carico.dev/workload": "false"}, {})
    False
    """
    if DAEMONSET_LABEL in labels or labels.get(WORKLOAD) == "false":
        return False
    return annotations.get(SOURCE_ANNOTATION, "api") == "api"


class _Pod:
    """State of one UID."""

    __slots__ = ("boxes", "due", "first", "images", "last", "running", "unsettled")

    def __init__(self) -> None:
        self.boxes: set[str] = set()  # ids of its sandboxes: more than one after a sandbox was re-created
        self.first: float | None = None  # s, when its first container started
        self.last = -math.inf  # s, when the youngest container so far started
        self.images: set[str] = set()  # of all its containers so far: the runtime removes init containers
        self.running = 0  # 1 while it counts as running
        self.unsettled = 0  # 1 while it counts as unsettled
        self.due = math.inf  # s, when one of the two changes without an event


class PodTable:
    """The pods of this node. Times are seconds of the monotonic clock and never decrease."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self.settings = settings
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Member] = {}
        self._members: dict[str, set[str]] = {}  # sandbox → its containers
        self._running: dict[str, float] = {}
        self._created: dict[str, float] = {}  # id that was created and has not started yet → s, when it was created
        self._busy: dict[str, float] = {}  # id that is being created or taken down → s, timeout of that
        self._busy_until = -math.inf
        self._finished: dict[str, float] = {}  # pod UID → when its sandbox ended
        self._listed = False
        self._now = -math.inf  # s, the latest time passed in
        self._pods: dict[str, _Pod] = {}
        self._classes_by_uid: dict[str, ClassKey | None] = {}  # by the scheduler, for UIDs in `_pods`
        self._due: list[tuple[float, str]] = []  # heap of `_Pod.due`; an entry that differs from the pod's is stale
        self._count_running = 0
        self._count_unsettled = 0
        self._uids: set[str] = set()
        self._counted: frozenset[str] | None = frozenset()  # None: `_uids` changed
        self._workload: dict[str, WorkloadPod] = {}
        self._workload_view: Mapping[str, WorkloadPod] | None = None  # None: `_workload` changed

    def count(self, now: float) -> PodCount:
        self._now = max(self._now, now)
        while self._due and self._due[0][0] <= self._now:
            due, uid = heapq.heappop(self._due)
            if (pod := self._pods.get(uid)) is not None and pod.due == due:
                self._recount(uid)
        return PodCount(self._count_running, self._churns(now), self._count_unsettled)

    def counted(self) -> frozenset[str]:
        """UIDs of all pods whose sandbox runs, of every kind; the same object until they change."""
        if self._counted is None:
            self._counted = frozenset(self._uids)
        return self._counted

    def workload(self) -> Mapping[str, WorkloadPod]:
        """The workload pods by UID, those without load too; the same object until something changes."""
        if self._workload_view is None:
            self._workload_view = MappingProxyType(self._workload.copy())
        return self._workload_view

    def finished(self, now: float) -> frozenset[str]:
        """UIDs of pods that ended less than FINISHED_FOR ago and do not run again."""
        self._finished = {uid: at for uid, at in self._finished.items() if now - at < FINISHED_FOR}
        return frozenset(self._finished.keys() - self._uids)

    def set_classes(self, classes: Mapping[str, ClassKey | None]) -> None:
        """Stores the classes of pods by UID from the scheduler; None: not a workload (DaemonSet and static pods).

        Used where the source has no labels. Labels take precedence.
        """
        for uid, key in classes.items():
            if uid in self._pods:
                self._classes_by_uid[uid] = key
                self._recount(uid)

    def expect_pod(self, now: float) -> None:
        """A pod is about to be created."""
        self._busy_for(now, ANNOUNCED_FOR)

    def creating(self, container: str, now: float) -> None:
        self._busy[container] = now + CREATING_AT_MOST
        if container not in self._running:
            self._created[container] = now
        self._changed(container, now)

    def add_sandbox(self, container: str, sandbox: Sandbox) -> None:
        before = self._sandboxes.get(container)
        if before is not None and before.uid != sandbox.uid:
            self._forget_sandbox(container)
        self._sandboxes[container] = sandbox
        self._pods.setdefault(sandbox.uid, _Pod()).boxes.add(container)
        for member in self._members.get(container, ()):
            self._note_image(sandbox.uid, self._containers[member].image)
        self._recount(sandbox.uid)

    def add_container(self, container: str, of_sandbox: str, image: str = "") -> None:
        before = self._containers.get(container)
        member = Member(of_sandbox, image or (before.image if before is not None else ""))
        if member == before:
            return
        self._containers[container] = member
        self._members.setdefault(of_sandbox, set()).add(container)
        if (sandbox := self._sandboxes.get(of_sandbox)) is not None:
            self._note_image(sandbox.uid, member.image)
            self._recount(sandbox.uid)

    def started(self, container: str, now: float) -> None:
        self._busy.pop(container, None)
        self._created.pop(container, None)
        self._running.setdefault(container, now)  # an event older than the listing does not change its start
        self._busy_for(now, self.settings.churn_after_start)
        self._changed(container, now)

    def exited(self, container: str, now: float) -> None:
        """Its process ended; the runtime now takes it down."""
        self._busy[container] = now + TAKING_DOWN_AT_MOST
        self._end(container, now)

    def stopped(self, container: str, now: float) -> None:
        self._busy.pop(container, None)
        self._end(container, now)

    def removed(self, container: str, now: float) -> None:
        """The runtime deleted it."""
        self._busy.pop(container, None)
        self._end(container, now)
        if container in self._sandboxes:
            self._forget_sandbox(container)
        if (member := self._containers.pop(container, None)) is not None:
            self._members[member.sandbox].discard(container)
            if not self._members[member.sandbox]:
                del self._members[member.sandbox]

    def replace_all(self, listing: PodListing, now: float) -> None:
        """Replaces everything. A start or end without an event since the previous listing counts as happening now."""
        came = listing.running.keys() - self._running.keys()
        for container in self._running.keys() - listing.running.keys():
            self._end(container, now)
        if came and self._listed:
            self._busy_for(now, self.settings.churn_after_start)
        self._listed = True
        self._now = max(self._now, now)
        self._running = {id: self._running.get(id, start) for id, start in listing.running.items()}
        listed = listing.sandboxes.keys() | listing.containers.keys()
        waiting = listed - self._running.keys()
        self._busy = {id: until for id, until in self._busy.items() if id in waiting}
        self._created = {id: at for id, at in self._created.items() if id in waiting}
        self._take_over(listing)

    def _take_over(self, listing: PodListing) -> None:
        for id in self._sandboxes.keys() - listing.sandboxes.keys():
            self._forget_sandbox(id)
        self._containers = dict(listing.containers)
        self._members = {}
        for container, member in listing.containers.items():
            self._members.setdefault(member.sandbox, set()).add(container)
        for id, sandbox in listing.sandboxes.items():
            self.add_sandbox(id, sandbox)

    def _forget_sandbox(self, id: str) -> None:
        uid = self._sandboxes.pop(id).uid
        pod = self._pods[uid]
        pod.boxes.discard(id)
        self._recount(uid)
        if not pod.boxes:
            del self._pods[uid]
            self._classes_by_uid.pop(uid, None)

    def _note_image(self, uid: str, image: str) -> None:
        if image:
            self._pods[uid].images.add(image)

    def _end(self, container: str, now: float) -> None:
        self._busy_for(now, self.settings.churn_after_delete)
        self._created.pop(container, None)
        if self._running.pop(container, None) is not None and container in self._sandboxes:
            self._finished[self._sandboxes[container].uid] = now
        self._changed(container, now)

    def _busy_for(self, now: float, seconds: float) -> None:
        self._busy_until = max(self._busy_until, now + seconds)

    def _churns(self, now: float) -> bool:
        if self._busy:
            self._busy = {id: until for id, until in self._busy.items() if now < until}
        return bool(self._busy) or now < self._busy_until

    def _changed(self, container: str, now: float) -> None:
        self._now = max(self._now, now)
        member = self._containers.get(container)
        sandbox = self._sandboxes.get(container if member is None else member.sandbox)
        if sandbox is not None:
            self._recount(sandbox.uid)

    def _recount(self, uid: str) -> None:
        """Recomputes one pod and updates the sums by the difference."""
        pod = self._pods[uid]
        boxes = [id for id in pod.boxes if id in self._running]
        members = [member for id in boxes for member in self._members.get(id, ())]
        starts = [self._running[member] for member in members if member in self._running]
        if starts:
            pod.first = min(starts) if pod.first is None else min(pod.first, *starts)
            pod.last = max(pod.last, *starts)
        sandbox = self._sandboxes[boxes[0]] if boxes else None
        workload = sandbox is not None and self._is_workload(sandbox)
        running, unsettled, due = self._load(pod, boxes, members, starts) if workload else (0, 0, math.inf)
        self._count_running += running - pod.running
        self._count_unsettled += unsettled - pod.unsettled
        pod.running, pod.unsettled = running, unsettled
        if due != pod.due:
            pod.due = due
            if due < math.inf:
                heapq.heappush(self._due, (due, uid))
        self._note(uid, sandbox is not None)
        self._show(uid, self._workload_pod(sandbox, pod, bool(starts)) if sandbox and workload else None)

    def _load(self, pod: _Pod, boxes: list[str], members: list[str], starts: list[float]) -> tuple[int, int, float]:
        """Whether it counts as running and as unsettled, and when that changes without an event."""
        if starts:
            settled = max(starts) + self.settings.settle
            return (1, 1, settled) if self._now < settled else (1, 0, math.inf)
        created = [self._created[member] for member in members if member in self._created]
        sandbox_started = max(self._running[id] for id in boxes)
        if not created and pod.last >= sandbox_started:  # all its containers ran and have ended
            return 0, 0, math.inf
        given_up = max([sandbox_started, *created]) + STARTING_AT_MOST
        return (1, 1, given_up) if self._now < given_up else (0, 0, math.inf)

    def _is_workload(self, sandbox: Sandbox) -> bool:
        classified_otherwise = not sandbox.namespace and self._classes_by_uid.get(sandbox.uid, sandbox) is None
        return sandbox.workload and not classified_otherwise

    def _workload_pod(self, sandbox: Sandbox, pod: _Pod, running: bool) -> WorkloadPod:
        key = sandbox.key or self._classes_by_uid.get(sandbox.uid)
        if key is None and sandbox.namespace:
            key = class_of_images(sandbox.namespace, pod.images)
        return WorkloadPod(sandbox.uid, key, pod.first, running, sandbox.cgroup)

    def _note(self, uid: str, runs: bool) -> None:
        if runs != (uid in self._uids):
            (self._uids.add if runs else self._uids.discard)(uid)
            self._counted = None

    def _show(self, uid: str, pod: WorkloadPod | None) -> None:
        if pod == self._workload.get(uid):
            return
        if pod is None:
            del self._workload[uid]
        else:
            self._workload[uid] = pod
        self._workload_view = None
