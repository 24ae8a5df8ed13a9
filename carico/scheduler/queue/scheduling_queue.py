"""The scheduling queue: pods without a node.

    add ─► active ─► pop ─► (a cycle) ─► placed ─► done
             ▲                   └─ fail ─► waiting: unschedulable, until an event could help it
             │                                 │                     └─► backoff: for 1 … 10 s, or until no other pod
             └─────────────────────────────────┴───────────────────────────┘   is active
    gated: rejected by a PreEnqueue plugin     held: its victims are being evicted

State only: no clock, no await; every method that depends on time gets it as an argument. The QueueSort plugin sets the
order, by default priority, then age.

Waiting pods are requeued in two ways (unschedulable.py). A change of an object wakes up the first pod of every group
that it could help, and the next one when that was placed. A row that has enough of what pods lack wakes up as many as
it can hold. It is checked again whenever something on it changes or a pod that was woken up for it has been tried: what
was woken up already is subtracted, and after a failed attempt the next pod is woken up.

The back-off keeps pods that fail repeatedly from delaying the others. When no other pod is active it would delay only
the pod itself, so the pods that a change may have helped are popped early, as in kube-scheduler since 1.33. After an
error the back-off always runs to its end.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from carico.backoff import doubled
from carico.kube.objects import Pod
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, ClusterEvent, EventInterest
from carico.scheduler.framework.contract import Status
from carico.scheduler.framework.needs import Available, Needs, Promised, Room
from carico.scheduler.queue.unschedulable import Diagnosis, Entry, Unschedulable, WaitingGroup

SortKey = Callable[[PodInfo, float], tuple[Any, ...]]
RECENT = 1000  # changes that are kept for pods in flight
PLACES = ("active", "backoff", "waiting", "gated", "held", "flight")


@dataclass(frozen=True, slots=True)
class Gate:
    """The PreEnqueue plugin that keeps a pod out of the active queue."""

    plugin: str
    status: Status
    interests: tuple[EventInterest, ...]
    broken: bool = False  # the plugin raised an exception, or returned ERROR: called again later


@dataclass(slots=True, eq=False)
class Queued:
    """A pod and its state in the queue."""

    info: PodInfo
    queued_at: float  # s, monotonic: first seen
    attempts: int = 0
    refusal: Diagnosis = field(default_factory=Diagnosis)
    gate: Gate | None = None
    failed_at: float = 0.0  # s, monotonic: last failure
    ready_at: float = 0.0  # s, monotonic: end of the back-off
    place: str = ""  # one of PLACES
    after_flush: bool = False
    seen: int = 0  # number of the last change before its attempt began
    ticket: int = 0  # number of its newest entry in a heap; older ones are invalid. 0: none is valid
    group: WaitingGroup | None = None  # while it waits
    woken_from: WaitingGroup | None = None  # the group from which a change woke it up; until it is tried
    woken_for: int = -1  # the row that woke it up; until it is tried
    woken_needs: Needs = ()  # what it would take there

    @property
    def uid(self) -> str:
        return self.info.uid


class Queue:
    def __init__(
        self,
        sort_key: SortKey,
        gate: Callable[[PodInfo], Gate | None],
        *,
        first_backoff: float = 1.0,
        last_backoff: float = 10.0,
        flush_after: float = 300.0,
    ) -> None:
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
        self._promised = Promised()
        self._changes = 0  # while pods were in flight
        self._recent: deque[tuple[int, ClusterEvent]] = deque(maxlen=RECENT)
        self._count = dict.fromkeys(PLACES, 0)
        self.supplies: dict[str, Available] = {}  # amounts that pods may need, by the name of the supply
        self.needs_of: dict[str, Callable[[PodInfo], Needs]] = {}  # of supplies whose needs can change (class costs)
        self.on_move: Callable[[str, str], object] = _ignore  # queue and event, for the metrics

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
        return dict(self._count)

    def refused_by(self, plugin: str) -> int:
        """Pods that wait because of this plugin."""
        return sum(group.size for group in self._unschedulable if plugin in group.refusal.plugins)

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
        if queued.place == "waiting" and not alike:  # the verdict of its group does not apply to it any more
            self._requeue(queued, "PodUpdate", now)
        elif change is not None and queued.place in ("waiting", "gated"):
            interests = queued.gate.interests if queued.gate else queued.refusal.interests
            if any(interest.could_help(info, change) for interest in interests):
                self._requeue(queued, "PodUpdate", now)

    def delete(self, uid: str, now: float) -> None:
        """Removes a pod that is gone, or has a node."""
        if (queued := self._pods.pop(uid, None)) is not None:
            queued.ticket = 0
            self._move(queued, "")
            self._tried(queued, now)

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
                return queued
        return None

    def placed(self, uid: str, now: float) -> None:
        """The pod in flight was assumed on a node: what woke it up may help the next one too."""
        if (queued := self._pods.get(uid)) is not None:
            self._tried(queued, now)

    def done(self, uid: str, now: float) -> None:
        """The pod is bound, or must not be bound any more."""
        self.delete(uid, now)

    def fail(self, queued: Queued, refusal: Diagnosis, now: float, *, blindly: bool = False) -> None:
        """No node, or the binding failed. `blindly`: retry after the back-off, independent of events."""
        if self._pods.get(queued.uid) is not queued:
            return  # deleted meanwhile
        queued.refusal, queued.failed_at = refusal, now
        queued.ready_at = now + doubled(self._first, self._last, queued.attempts)
        queued.after_flush = False
        late = queued.seen != self._changes and self._helped_in_flight(queued)
        if blindly or late or not refusal.plugins:
            self._pause(queued, "ScheduleAttemptFailure", now, self._errors)
        else:
            self._move(queued, "waiting")
            self.on_move("unschedulable", "ScheduleAttemptFailure")
        self._tried(queued, now)

    def hold(self, uid: str) -> None:
        """Keeps a pod that has just failed out of the queue until `unhold`, independent of events."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place in ("waiting", "backoff", "active"):
            self._move(queued, "held")

    def unhold(self, uid: str, now: float) -> None:
        """Requeues a held pod: its evictions have ended."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place == "held":
            self._requeue(queued, "PreemptionFinished", now)

    # --- requeueing ---

    def on_change(self, change: ClusterEvent, now: float) -> int:
        """Requeues the pods that the change could help; returns how many."""
        if not change.bits:
            return 0
        if self._count["flight"]:
            self._changes += 1
            self._recent.append((self._changes, change))
        woken = 0
        for group in self._unschedulable.helped_by(change):
            woken += self._wake_group(group, f"{change.kind}{'Add' if change.old is None else 'Change'}", now)
        for queued in self._opened(change):
            self._requeue(queued, f"{change.kind}Change", now)
            woken += 1
        return woken

    def on_row(self, row: int, now: float) -> None:
        """The row may have more of something than before: wakes up the pods that it could hold now, in queue order.

        Also those that were rejected because the row is nominated for another pod: there may be enough for both. And
        those that may preempt there, now that the node's report does not reject them.
        """
        if not self._unschedulable:
            return
        for group in self._unschedulable.open(row):
            if not group.refusal.needs:
                self._wake_group(group, "NodeRoom", now)
        for group in self._unschedulable.reported(row, Room(row, self.supplies, self._promised)):
            self._wake_group(group, "NodeReported", now)
        self._wake_by_room(row, now)

    def on_vacated(self, row: int, priority: int, evictable: Callable[[int], Mapping[str, float]], now: float) -> None:
        """A pod of this priority has left the row: wakes up pods for which evicting others there is enough now.

        `evictable` returns what the row's pods below a priority request.
        """
        for group in self._unschedulable.vacated(
            row, priority, lambda g: Room(row, self.supplies, self._promised, evictable(g.info.priority))
        ):
            self._wake_group(group, "NodeVacated", now)

    def reprice(self, families: Iterable[str], now: float) -> None:
        """The cost of these families of classes changed: one pod of each group is retried."""
        families = set(families)
        self._unschedulable.reprice(families, self._repriced)
        for family in families:
            self.on_change(ClusterEvent("ClassCost", Action.UPDATE, None, family), now)

    def _repriced(self, info: PodInfo, needs: Needs) -> Needs:
        supplies = dict.fromkeys(need.supply for need in needs)
        found = [
            self.needs_of[supply](info) if supply in self.needs_of else [n for n in needs if n.supply == supply]
            for supply in supplies
        ]
        return tuple(need for part in found for need in part)

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
        """Requeues a waiting pod at the request of the caller."""
        queued = self._pods.get(uid)
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
            if any(interest.could_help(queued.info, change) for interest in interests)
        ]

    def _helped_in_flight(self, queued: Queued) -> bool:
        """Whether a change since the pod's attempt began could have helped it: its verdict is older."""
        if self._recent and self._recent[0][0] > queued.seen + 1:
            return True  # older changes were dropped: assume yes
        return any(
            number > queued.seen and not _is_about(change, queued.uid) and self._could_help(queued, change)
            for number, change in self._recent
        )

    def _could_help(self, queued: Queued, change: ClusterEvent) -> bool:
        return any(interest.could_help(queued.info, change) for interest in queued.refusal.interests)

    def _stale(self, queued: Queued, now: float) -> bool:
        if queued.place == "gated":
            return queued.gate is not None and queued.gate.broken
        return queued.place == "waiting" and now - queued.failed_at > self._flush_after

    def _wake_by_room(self, row: int, now: float) -> int:
        if not self._unschedulable.any_needs:
            return 0
        room = Room(row, self.supplies, self._promised)
        heads = [(group.best(), group) for group in self._unschedulable.held_by(row, room)]
        best = [(*entry[:2], group) for entry, group in heads if entry is not None]
        heapq.heapify(best)
        woken = 0
        while best:
            _, _, group = heapq.heappop(best)
            entry, needs = group.best(), group.refusal.needs
            if entry is None or not room.holds(needs):
                continue
            self._wake_for(entry[2], row, needs, now)
            woken += 1
            if (following := group.best()) is not None:
                heapq.heappush(best, (*following[:2], group))
        return woken

    def _wake_group(self, group: WaitingGroup, event: str, now: float) -> int:
        """Unless a pod of the group was woken up already and not tried yet: its attempt will see the change."""
        return 0 if group.on_the_way else self._wake_next(group, event, now)

    def _wake_next(self, group: WaitingGroup, event: str, now: float) -> int:
        """Wakes up the first pod of the group; if it is in back-off, also the next ones, up to an active one."""
        woken = 0
        while (entry := group.best()) is not None:
            queued = entry[2]
            self._requeue(queued, event, now)
            if queued.place not in ("active", "backoff"):
                continue  # gated now
            queued.woken_from = group
            group.on_the_way += 1
            woken += 1
            if queued.place == "active":
                break
        return woken

    def _wake_for(self, queued: Queued, row: int, needs: Needs, now: float) -> None:
        self._requeue(queued, "NodeRoom", now)
        if queued.place in ("active", "backoff"):
            queued.woken_for = row
            queued.woken_needs = needs
            self._promised.add(row, needs)

    def _tried(self, queued: Queued, now: float) -> None:
        """The pod was tried, or will not be: others may be woken up by what woke it up."""
        group, row = queued.woken_from, queued.woken_for
        queued.woken_from, queued.woken_for = None, -1
        if group is not None:
            group.on_the_way -= 1
            if queued.group is not group:  # it was placed, deleted, or failed for another reason
                self._wake_next(group, "PreviousPodTried", now)
            self._unschedulable.forget_if_empty(group)
        if row >= 0:
            self._promised.remove(row, queued.woken_needs)
            self._look_again(row, queued, now)

    def _look_again(self, row: int, queued: Queued, now: float) -> None:
        """Checks the row again after a pod that was woken up for it has been tried."""
        group = queued.group
        if group is not None and group.reaches(row):
            room = Room(row, self.supplies, self._promised)
            if room.holds(group.refusal.needs):  # the filters reject what the amounts allow: no wake-up can help
                group.close(row)
        self._wake_by_room(row, now)

    def _requeue(self, queued: Queued, event: str, now: float) -> None:
        if queued.ready_at > now and queued.place != "gated":
            self._pause(queued, event, now, self._backoff)
        else:
            self._activate(queued, event, now)

    def _pause(self, queued: Queued, event: str, now: float, heap: list[Entry]) -> None:
        if queued.ready_at <= now:
            self._activate(queued, event, now)
            return
        self._move(queued, "backoff")
        self._push(heap, queued.ready_at, queued)
        self.on_move("backoff", event)

    def _activate(self, queued: Queued, event: str, now: float) -> None:
        queued.gate = self._gate(queued.info)
        if queued.gate is not None:
            self._move(queued, "gated")
            self.on_move("gated", event)
            self._tried(queued, now)  # its gate was shut during its back-off: what woke it up is for the next one
            return
        self._move(queued, "active")
        self._push(self._active, self._key(queued), queued)
        self.on_move("active", event)

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
