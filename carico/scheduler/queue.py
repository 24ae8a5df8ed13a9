"""The pods that wait for a node, in the order of their turn.

    add ─► active ─► pop ─► (a cycle) ─► done
             ▲                   └─ fail ─► waiting: until a change could turn the verdict of a plugin that refused it
             │                                 │                     └─► backoff: while its pause of 1 … 10 s lasts
             └─────────────────────────────────┴───────────────────────────┘   or until nobody else wants a turn
    gated: a plugin does not even let it in

State only: no clock, no waiting; every method that depends on time is told the time. Priority goes first, then age.
A pod that waits for Pod-Capacity is woken by a report only if the node's other filters had let it pass, and a report
wakes no more pods than it has room for: otherwise each report would send the whole queue through a cycle.

A pause keeps pods that fail again and again from holding up the others. When no other pod is active it would hold up
nothing but the pod itself, so the pods that a change may have helped get their turn at once, as kube-scheduler's do
since 1.33. After an error the pause is for whoever is in trouble, and lasts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from carico.kube.objects import Pod
from carico.scheduler.changes import NODE_CAPACITY, Change, Interest
from carico.scheduler.framework import Status
from carico.scheduler.rows import Mask
from carico.scheduler.template import PodInfo

SortKey = Callable[[PodInfo, float], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod found no node, and what could help it."""

    plugins: frozenset[str] = frozenset()
    interests: tuple[Interest, ...] = ()
    reachable: Mask | None = None  # rows that refused the pod for want of Pod-Capacity alone
    need: float = 0.0  # pods of free capacity that it takes


@dataclass(frozen=True, slots=True)
class Gate:
    """A plugin that keeps a pod out of the queue."""

    plugin: str
    status: Status
    interests: tuple[Interest, ...]


@dataclass(slots=True, eq=False)
class Queued:
    """A pod and its history here."""

    info: PodInfo
    queued_at: float  # s, monotonic: first seen
    attempts: int = 0
    refusal: Refusal = field(default_factory=Refusal)
    gate: Gate | None = None
    failed_at: float = 0.0  # s, monotonic: last failure
    ready_at: float = 0.0  # s, monotonic: end of the pause
    place: str = ""  # active, backoff, waiting, gated, flight
    after_flush: bool = False
    ticket: int = 0  # number of its newest entry in a heap; older ones are void

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
        # Heaps may hold entries that are no longer true; place and ticket decide when they come up.
        self._active: list[tuple[Any, int, Queued]] = []
        self._backoff: list[tuple[float, int, Queued]] = []  # a change may have helped them
        self._errors: list[tuple[float, int, Queued]] = []  # something broke
        self._hungry: list[tuple[Any, int, Queued]] = []  # waiting for Pod-Capacity
        self._waiting: dict[str, Queued] = {}  # waiting and gated
        self._count = dict.fromkeys(("active", "backoff", "waiting", "gated", "flight"), 0)
        self.on_move: Callable[[str, str], object] = _nothing  # queue and event, for the metrics

    # --- questions ---

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

    @property
    def hungry(self) -> int:
        """Pods that wait for Pod-Capacity."""
        return sum(q.refusal.need > 0 for q in self._waiting.values() if q.place == "waiting")

    def next_due(self) -> float:
        """When the next pause ends, s on the monotonic clock; infinity if none is running."""
        return min(_first(self._backoff), _first(self._errors))

    @property
    def ready(self) -> bool:
        """Whether `pop` has a pod now, whatever the time."""
        return self._count["active"] > 0 or _first(self._backoff) < math.inf

    # --- the way of a pod ---

    def add(self, info: PodInfo, now: float) -> None:
        """A pod without a node was seen for the first time."""
        if info.uid in self._pods:
            self.update(info, None, now)
            return
        queued = self._pods[info.uid] = Queued(info, now)
        self._activate(queued, "PodAdd")

    def update(self, info: PodInfo, change: Change | None, now: float) -> None:
        """The pod itself changed; that may help it too."""
        queued = self._pods.get(info.uid)
        if queued is None:
            self.add(info, now)
            return
        queued.info = info
        if change is not None and queued.place in ("waiting", "gated") and self._helps(queued, change):
            self._requeue(queued, "PodUpdate", now)

    def delete(self, uid: str) -> None:
        if (queued := self._pods.pop(uid, None)) is not None:
            self._move(queued, "")

    def pop(self, now: float) -> Queued | None:
        """The pod whose turn it is; from here it is in flight until `done`, `fail` or `delete`."""
        self.tick(now)
        while self.ready:
            if not self._count["active"]:
                _, _, early = heapq.heappop(self._backoff)
                self._activate(early, "PopFromBackoffQ")
                continue
            _, ticket, queued = heapq.heappop(self._active)
            if queued.place == "active" and ticket == queued.ticket:
                self._move(queued, "flight")
                queued.attempts += 1
                return queued
        return None

    def done(self, uid: str) -> None:
        self.delete(uid)

    def fail(self, queued: Queued, refusal: Refusal, now: float, *, blindly: bool = False) -> None:
        """No node, or the binding failed. `blindly`: try again after the pause, whatever happens."""
        if queued.uid not in self._pods:
            return  # deleted meanwhile
        queued.refusal, queued.failed_at = refusal, now
        queued.ready_at = now + min(self._last, self._first * 2 ** min(queued.attempts - 1, 30))
        queued.after_flush = False
        if blindly or not refusal.plugins:
            self._requeue(queued, "ScheduleAttemptFailure", now, self._errors)
            return
        self._move(queued, "waiting")
        self.on_move("unschedulable", "ScheduleAttemptFailure")
        if refusal.need > 0:
            self._push(self._hungry, self._key(queued), queued)

    # --- what brings waiting pods back ---

    def on_change(self, change: Change, now: float) -> int:
        """Something happened; returns how many pods it brought back."""
        if not self._waiting or not change.action:
            return 0
        helped = [q for q in self._waiting.values() if self._helps(q, change)]
        for queued in helped:
            self._requeue(queued, f"{change.kind}{'Add' if change.old is None else 'Change'}", now)
        return len(helped)

    def wake_for_capacity(self, row: int, before: float, after: float, room: int, now: float) -> int:
        """A node can take more: at most `room` of the pods that it could now take, best first."""
        woken, passed = 0, []
        while woken < room and self._hungry:
            key, serial, queued = heapq.heappop(self._hungry)
            if queued.place != "waiting" or serial != queued.ticket:
                continue
            if before < queued.refusal.need <= after and _reaches(queued.refusal.reachable, row):
                self._requeue(queued, "NodeCapacityChange", now)
                woken += 1
            else:
                passed.append((key, serial, queued))
        for entry in passed:
            heapq.heappush(self._hungry, entry)
        return woken

    def tick(self, now: float) -> None:
        """Moves pods whose pause has ended."""
        for heap in (self._backoff, self._errors):
            while _first(heap) <= now:
                self._activate(heapq.heappop(heap)[2], "BackoffComplete")

    def flush(self, now: float) -> int:
        """Tries again what has waited very long, in case no change was recognised as helpful."""
        old = [q for q in self._waiting.values() if q.place == "waiting" and now - q.failed_at > self._flush_after]
        for queued in old:
            queued.after_flush = True
            self._requeue(queued, "UnschedulableTimeout", now)
        return len(old)

    def activate_all(self) -> None:
        """A new leader tries everything at once."""
        for queued in list(self._waiting.values()):
            self._activate(queued, "ForceActivate")

    # --- inside ---

    def _helps(self, queued: Queued, change: Change) -> bool:
        interests = queued.gate.interests if queued.gate else queued.refusal.interests
        return any(i.kind != NODE_CAPACITY and i.could_help(queued.info, change) for i in interests)

    def _requeue(
        self, queued: Queued, event: str, now: float, heap: list[tuple[float, int, Queued]] | None = None
    ) -> None:
        if queued.ready_at > now and queued.place != "gated":
            self._move(queued, "backoff")
            self._push(self._backoff if heap is None else heap, queued.ready_at, queued)
            self.on_move("backoff", event)
        else:
            self._activate(queued, event)

    def _activate(self, queued: Queued, event: str) -> None:
        queued.gate = self._gate(queued.info)
        if queued.gate is not None:
            self._move(queued, "gated")
            self.on_move("gated", event)
            return
        self._move(queued, "active")
        self._push(self._active, self._key(queued), queued)
        self.on_move("active", event)

    def _key(self, queued: Queued) -> tuple[Any, ...]:
        return self._sort_key(queued.info, queued.queued_at)

    def _push(self, heap: list[tuple[Any, int, Queued]], key: Any, queued: Queued) -> None:
        self._serial += 1
        queued.ticket = self._serial
        heapq.heappush(heap, (key, self._serial, queued))
        if len(heap) > 2 * len(self._pods) + 64:  # void entries have piled up
            heap[:] = [entry for entry in heap if entry[1] == entry[2].ticket]
            heapq.heapify(heap)

    def _move(self, queued: Queued, place: str) -> None:
        if queued.place:
            self._count[queued.place] -= 1
        if place:
            self._count[place] += 1
        queued.place = place
        if place in ("waiting", "gated"):
            self._waiting[queued.uid] = queued
        else:
            self._waiting.pop(queued.uid, None)


def _first(heap: list[tuple[float, int, Queued]]) -> float:
    """When the first pause in it ends; entries that are no longer true go."""
    while heap and not (heap[0][2].place == "backoff" and heap[0][1] == heap[0][2].ticket):
        heapq.heappop(heap)
    return heap[0][0] if heap else math.inf


def _nothing(*_: str) -> None:
    """Nobody counts."""


def _reaches(reachable: Mask | None, row: int) -> bool:
    return reachable is None or row >= len(reachable) or bool(reachable[row])


def is_waiting(pod: Pod) -> bool:
    """The pod has no node and could still get one."""
    return not pod.spec.node_name and not pod.terminal and not pod.terminating
