"""The scheduling queue: pods without a node.

    add ─► active ─► pop ─► (a cycle) ─► placed ─► done
             ▲                   └─ fail ─► waiting: unschedulable, until an event could help it
             │                                 │                     └─► backoff: for 1 … 10 s, or until no other pod
             └─────────────────────────────────┴───────────────────────────┘   is active
    gated: rejected by a PreEnqueue plugin     held: its victims are being evicted

State only: no clock, no await; every method that depends on time gets it as an argument. The QueueSort plugin sets the
order, by default priority, then age.

Waiting pods are requeued by changes of objects and by amounts on rows (wake_ups.py).

The back-off keeps pods that fail repeatedly from delaying the others. When no other pod is active it would delay only
the pod itself, so the pods that a change may have helped are popped early, as in kube-scheduler since 1.33. After an
error the back-off always runs to its end.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

from carico.backoff import doubled
from carico.kube.objects import Pod
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, ClusterEvent, EventInterest
from carico.scheduler.framework.needs import Available, Needs
from carico.scheduler.queue.entries import PLACES, Gate, Queued, QueuedGroup
from carico.scheduler.queue.pod_groups import PodGrouping, PodGroups
from carico.scheduler.queue.unschedulable import Diagnosis, Entry, Unschedulable
from carico.scheduler.queue.wake_ups import WakeUps

SortKey = Callable[[PodInfo, float], tuple[Any, ...]]
RECENT = 1000  # changes that are kept for pods in flight


class Queue:
    def __init__(
        self,
        sort_key: SortKey,
        gate: Callable[[PodInfo], Gate | None],
        *,
        first_backoff: float = 1.0,
        last_backoff: float = 10.0,
        flush_after: float = 300.0,
        supplies: Mapping[str, Available] | None = None,
        needs_of: Mapping[str, Callable[[PodInfo], Needs]] | None = None,
        on_move: Callable[[str, str], object] | None = None,
        groups: PodGrouping | None = None,
    ) -> None:
        """`supplies` and `needs_of`: see wake_ups.py. `on_move` is called with the queue and the event, for metrics."""
        self._sort_key, self._gate = sort_key, gate
        self._first, self._last, self._flush_after = first_backoff, last_backoff, flush_after
        self._pods: dict[str, Queued] = {}
        self._serial = 0
        # Heaps may hold outdated entries; place and ticket are checked when they are popped.
        self._active: list[Entry] = []
        self._backoff: list[Entry] = []  # pods that a change may have helped: popped early if no pod is active
        self._errors: list[Entry] = []  # pods that wait for the end of their back-off, e.g. after an error
        self._unschedulable = Unschedulable()
        self._gated: dict[tuple[EventInterest, ...], dict[str, Queued]] = {}  # by the interests of the gating plugin
        self._wake_ups = WakeUps(self._unschedulable, self._requeue, supplies or {}, needs_of or {})
        self.on_row, self.on_vacated = self._wake_ups.on_row, self._wake_ups.on_vacated
        self._changes = 0  # while pods were in flight
        self._recent: deque[tuple[int, ClusterEvent]] = deque(maxlen=RECENT)
        self._count = dict.fromkeys(PLACES, 0)
        self._on_move = on_move or _ignore
        self._groups = PodGroups(groups) if groups is not None else None

    # --- lookups ---

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> Queued | None:
        return self._pods.get(uid)

    def pods(self) -> Iterator[Queued]:
        return iter(self._pods.values())

    def counts(self) -> dict[str, int]:
        """Pods by place; those of a group count where its first pod is."""
        counts = dict(self._count)
        if self._groups is not None:
            for group in self._groups:
                counts[group.first.place] += len(group.members) - 1
        del counts["grouped"]
        return counts

    def refused_by(self, plugins: Set[str]) -> int:
        """Pods that wait because of one of these plugins."""
        return sum(group.size for group in self._unschedulable if not plugins.isdisjoint(group.refusal.plugins))

    def next_due(self) -> float:
        """When the next back-off ends, s on the monotonic clock; infinity if there is none."""
        return min(_first(self._backoff), _first(self._errors))

    @property
    def ready(self) -> bool:
        """Whether `pop` has a pod now, independent of the time."""
        return self._count["active"] > 0 or _first(self._backoff) < math.inf

    # --- life cycle of a pod ---

    def add(self, info: PodInfo, now: float) -> None:
        """Adds a pod without a node that was seen for the first time."""
        if info.uid in self._pods:
            self.update(info, None, now)
            return
        queued = self._pods[info.uid] = Queued(info, now)
        if self._groups is not None and not self._groups.enter(queued):
            self._join(queued, "PodAdd", now)
            return
        self._activate(queued, "PodAdd", now)

    def update(self, info: PodInfo, change: ClusterEvent | None, now: float) -> None:
        """Updates a pod; its own change may requeue it."""
        queued = self._pods.get(info.uid)
        if queued is None:
            self.add(info, now)
            return
        alike = info.template is queued.info.template and info.identity is queued.info.identity
        alike = alike and info.priority == queued.info.priority
        queued.info = info
        if self._groups is not None and self._changed_key(queued, now):
            return
        if queued.pod_group is not None:
            queued = queued.pod_group.first
        if queued.place == "waiting" and not alike:  # the verdict of its group does not apply to it any more
            self._requeue(queued, "PodUpdate", now)
        elif change is not None and queued.place in ("waiting", "gated"):
            interests = queued.gate.interests if queued.gate else queued.refusal.interests
            if any(interest.could_help(info, change) for interest in interests):
                self._requeue(queued, "PodUpdate", now)

    def delete(self, uid: str, now: float) -> None:
        """Removes a pod that is gone, or has a node."""
        if (queued := self._pods.pop(uid, None)) is not None:
            group = queued.pod_group
            queued.ticket = 0
            self._move(queued, "")
            self._wake_ups.tried(queued, now)
            if group is not None:
                self._left_group(group, queued, now)

    def pop(self, now: float) -> Queued | None:
        """The next pod; it is in flight until `done`, `fail` or `delete`."""
        self.tick(now)
        while self.ready:
            if not self._count["active"]:
                _, _, early = heapq.heappop(self._backoff)
                self._activate(early, "PopFromBackoffQ", now)
                continue
            _, ticket, queued = heapq.heappop(self._active)
            if queued.place == "active" and ticket == queued.ticket:
                self._move(queued, "flight")
                queued.attempts += 1
                queued.seen = self._changes
                if queued.pod_group is not None:
                    self._pop_others(queued)
                return queued
        return None

    def split(self, queued: Queued) -> list[Queued]:
        """All pods of the group have a node: from now on each one is an entry of its own, in flight."""
        group = queued.pod_group
        assert group is not None
        assert self._groups is not None
        return self._groups.dissolve(group)

    def placed(self, uid: str, now: float) -> None:
        """The pod in flight was assumed on a node: what woke it up may help the next one too."""
        if (queued := self._pods.get(uid)) is not None:
            self._wake_ups.tried(queued, now)

    def done(self, uid: str, now: float) -> None:
        """The pod is bound, or must not be bound any more."""
        self.delete(uid, now)

    def fail(self, queued: Queued, refusal: Diagnosis, now: float, *, blindly: bool = False) -> None:
        """No node, or the binding failed. `blindly`: retry after the back-off, independent of events."""
        if self._pods.get(queued.uid) is not queued:
            return  # deleted meanwhile
        if self._groups is not None and not self._groups.fail(queued, self._move):
            self._join(queued, "ScheduleAttemptFailure", now)  # its group waits already
            return
        queued.refusal, queued.failed_at = refusal, now
        queued.ready_at = now + doubled(self._first, self._last, queued.attempts)
        queued.after_flush = False
        late = queued.seen != self._changes and self._helped_in_flight(queued)
        if blindly or late or not refusal.plugins:
            self._pause(queued, "ScheduleAttemptFailure", now, self._errors)
        else:
            self._move(queued, "waiting")
            self._on_move("unschedulable", "ScheduleAttemptFailure")
        self._wake_ups.tried(queued, now)

    def hold(self, uid: str) -> None:
        """Keeps a pod that has just failed out of the queue until `unhold`, independent of events."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place in ("waiting", "backoff", "active"):
            self._move(queued, "held")

    def unhold(self, uid: str, now: float, *, failed: bool = False) -> None:
        """Requeues a held pod: its evictions have ended. After failed ones its back-off ends first, always."""
        queued = self._pods.get(uid)
        if queued is None or queued.place != "held":
            return
        if failed:  # popped early, it would send the next evictions at once, several times a second
            self._pause(queued, "PreemptionFailed", now, self._errors)
        else:
            self._requeue(queued, "PreemptionFinished", now)

    # --- requeueing ---

    def on_change(self, change: ClusterEvent, now: float) -> int:
        """Requeues the pods that the change could help; returns how many."""
        if not change.bits:
            return 0
        if self._count["flight"]:
            self._changes += 1
            self._recent.append((self._changes, change))
        woken = self._wake_ups.on_change(change, f"{change.kind}{'Add' if change.old is None else 'Change'}", now)
        for queued in self._opened(change):
            self._requeue(queued, f"{change.kind}Change", now)
            woken += 1
        return woken

    def reprice(self, families: Iterable[str], now: float) -> None:
        """The cost of these families of classes changed: one pod of each group is retried."""
        families = set(families)
        self._wake_ups.reprice(families)
        for family in families:
            self.on_change(ClusterEvent("ClassCost", Action.UPDATE, None, family), now)

    def tick(self, now: float) -> None:
        """Activates pods whose back-off has ended."""
        for heap in (self._backoff, self._errors):
            while _first(heap) <= now:
                self._activate(heapq.heappop(heap)[2], "BackoffComplete", now)

    def flush(self, now: float) -> int:
        """Requeues pods that have waited for `flush_after`, in case a queueing hint missed an event."""
        old = [q for q in self._pods.values() if self._stale(q, now)]
        for queued in old:
            queued.after_flush = True
            self._requeue(queued, "UnschedulableTimeout", now)
        return len(old)

    def activate(self, uid: str, now: float) -> None:
        """Requeues a waiting pod, or its group, at the request of the caller."""
        queued = self._pods.get(uid)
        if queued is not None and queued.pod_group is not None:
            queued = queued.pod_group.first
        if queued is not None and queued.place == "waiting":
            self._requeue(queued, "ForceActivate", now)

    def activate_all(self, now: float) -> None:
        """Activates all waiting and gated pods, for a new leader."""
        for queued in [q for q in self._pods.values() if q.place in ("waiting", "gated")]:
            self._activate(queued, "ForceActivate", now)

    # --- inside ---

    def _opened(self, change: ClusterEvent) -> list[Queued]:
        """Gated pods whose gate the change may open; only those whose plugin registered for it are checked."""
        return [
            queued
            for interests, pods in self._gated.items()
            if any(i.kind == change.kind and i.bits & change.bits for i in interests)
            for queued in pods.values()
            if any(interest.could_help(info, change) for interest in interests for info in queued.infos)
        ]

    # --- groups (pod_groups.py) ---

    def _join(self, queued: Queued, event: str, now: float) -> None:
        """The pod is in a group that is in the queue already, which may be complete now."""
        self._move(queued, "grouped")
        self._wake_ups.tried(queued, now)
        assert queued.pod_group is not None
        self._changed_group(queued.pod_group, event, now)

    def _changed_group(self, group: QueuedGroup, event: str, now: float) -> None:
        """Other pods than before: neither its gate nor its verdict holds any more."""
        if group.first.place in ("waiting", "gated", "active"):
            self._requeue(group.first, event, now)

    def _changed_key(self, queued: Queued, now: float) -> bool:
        """Whether the pod belongs to another group than before; it is added to that one then."""
        assert self._groups is not None
        key = None if queued.pod_group is None else queued.pod_group.key
        if queued.place == "flight" or key == self._groups.key_of(queued.info):
            return False
        self.delete(queued.uid, now)
        self.add(queued.info, now)
        return True

    def _left_group(self, group: QueuedGroup, queued: Queued, now: float) -> None:
        assert self._groups is not None
        was_first = self._groups.leave(group, queued)
        if not group.members:
            return
        if was_first:
            group.first.ready_at, group.first.attempts = queued.ready_at, queued.attempts
            self._requeue(group.first, "PodDelete", now)
        else:
            self._changed_group(group, "PodDelete", now)

    def _pop_others(self, first: Queued) -> None:
        assert first.pod_group is not None
        for member in first.pod_group.members.values():
            if member is not first:
                self._move(member, "flight")
                member.attempts, member.seen = first.attempts, first.seen

    def _helped_in_flight(self, queued: Queued) -> bool:
        """Whether a change since the pod's attempt began could have helped it: its verdict is older."""
        if self._recent and self._recent[0][0] > queued.seen + 1:
            return True  # older changes were dropped: assume yes
        return any(
            number > queued.seen and not _is_about(change, queued.uid) and self._could_help(queued, change)
            for number, change in self._recent
        )

    def _could_help(self, queued: Queued, change: ClusterEvent) -> bool:
        infos = queued.infos
        return any(interest.could_help(info, change) for interest in queued.refusal.interests for info in infos)

    def _stale(self, queued: Queued, now: float) -> bool:
        if queued.place == "gated":
            return queued.gate is not None and queued.gate.broken
        return queued.place == "waiting" and now - queued.failed_at > self._flush_after

    def _requeue(self, queued: Queued, event: str, now: float) -> None:
        if queued.ready_at > now and queued.place != "gated":
            # A group is never popped early: each of its attempts costs many cycles.
            self._pause(queued, event, now, self._backoff if queued.pod_group is None else self._errors)
        else:
            self._activate(queued, event, now)

    def _pause(self, queued: Queued, event: str, now: float, heap: list[Entry]) -> None:
        if queued.ready_at <= now:
            self._activate(queued, event, now)
            return
        self._move(queued, "backoff")
        self._push(heap, queued.ready_at, queued)
        self._on_move("backoff", event)

    def _activate(self, queued: Queued, event: str, now: float) -> None:
        queued.gate = self._gate(queued.info) if queued.pod_group is None else self._group_gate(queued.pod_group)
        if queued.gate is not None:
            self._move(queued, "gated")
            self._on_move("gated", event)
            self._wake_ups.tried(queued, now)  # what woke it up before its gate was shut is for the next one
            return
        self._move(queued, "active")
        self._push(self._active, self._key(queued), queued)
        self._on_move("active", event)

    def _group_gate(self, group: QueuedGroup) -> Gate | None:
        """The first gate of one of its pods, or that of the group as a whole."""
        assert self._groups is not None
        gates = (self._gate(member.info) for member in group.members.values())
        return next((gate for gate in gates if gate is not None), None) or self._groups.gate(group)

    def _key(self, queued: Queued) -> tuple[Any, ...]:
        return self._sort_key(queued.info, queued.queued_at)

    def _push(self, heap: list[Entry], key: Any, queued: Queued) -> None:
        self._serial += 1
        queued.ticket = self._serial
        heapq.heappush(heap, (key, self._serial, queued))
        if len(heap) > 2 * self._count[queued.place] + 64:  # too many invalid entries
            heap[:] = [entry for entry in heap if entry[1] == entry[2].ticket and entry[2].place == queued.place]
            heapq.heapify(heap)

    def _move(self, queued: Queued, place: str) -> None:
        if queued.place:
            self._count[queued.place] -= 1
        if place:
            self._count[place] += 1
        if queued.place == "flight" and not self._count["flight"]:
            self._recent.clear()  # whole Pods and Nodes, several megabytes
        if queued.group is not None:
            self._unschedulable.remove(queued)
        if queued.place == "gated":
            self._ungate(queued)
        queued.place = place
        if place == "gated" and queued.gate is not None:
            self._gated.setdefault(queued.gate.interests, {})[queued.uid] = queued
        elif place == "waiting":
            self._serial += 1
            queued.ticket = self._serial
            self._unschedulable.add(queued, self._key(queued), queued.refusal)

    def _ungate(self, queued: Queued) -> None:
        for interests, pods in list(self._gated.items()):
            if pods.pop(queued.uid, None) is not None and not pods:
                del self._gated[interests]


def _first(heap: list[Entry]) -> float:
    """When the first back-off in the heap ends; drops invalid entries."""
    while heap and not (heap[0][2].place == "backoff" and heap[0][1] == heap[0][2].ticket):
        heapq.heappop(heap)
    return float(heap[0][0]) if heap else math.inf


def _is_about(change: ClusterEvent, uid: str) -> bool:
    return any(isinstance(state, Pod) and state.uid == uid for state in (change.old, change.new))


def _ignore(*_: object) -> None:
    """The default callback."""


def is_waiting(pod: Pod) -> bool:
    """The pod has no node and could still get one."""
    return not pod.spec.node_name and not pod.terminal and not pod.terminating
