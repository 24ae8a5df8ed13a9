"""Unschedulable pods, in groups, so that the cost of an event is proportional to the pods that it may help.

Pods of one group get the same verdict from every filter that rejected them: the newest verdict about one is valid for
all, a queueing hint is called once for the group, and an event that may help wakes up only its first pod. If that one
is placed, the next one is woken up; if it fails, the others would fail too and stay.

    Change ─► groups whose interests name its kind, and that pod if it is one ─► hint ─► the group's first pod
    a row  ─► groups whose needs the row can hold  ─► as many pods as it holds, of all groups, in queue order
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from carico.scheduler.cache import affinity_terms
from carico.scheduler.cache.affinity_terms import PodSet
from carico.scheduler.cache.pod_set_index import PodSetIndex
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import ClusterEvent, EventInterest
from carico.scheduler.framework.needs import REQUESTS, Needs, NeedsIndex, Room

if TYPE_CHECKING:
    from carico.scheduler.queue.entries import Queued

Entry = tuple[Any, int, "Queued"]  # sort key, ticket, pod


POD = "Pod"  # the kind of a change


class Scope(Enum):
    """What the verdicts about a pod depend on, besides its priority, its profile and its needs."""

    TEMPLATE = "template"
    LABELS = "labels"  # template, namespace and labels
    POD = "pod"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a pod found no node, and what could help it."""

    plugins: frozenset[str] = frozenset()
    interests: tuple[EventInterest, ...] = ()
    needs: Needs = ()  # empty: not rejected for lack of an amount
    reachable: bytes | None = None  # a bit per row: rejected for lack of amounts only. None: all rows
    kept: frozenset[int] = frozenset()  # rows rejected because they are nominated for other pods
    # Rows, a bit each, on which only the node's report prevented preemption, and what the pod lacked there.
    unreported: bytes = b""
    reported_needs: Needs = ()
    resolvable: bytes = b""  # rows, a bit each, where it evicts pods of lower priority if that makes enough room
    scope: Scope = Scope.POD


NO_REFUSAL = Diagnosis()


class WaitingGroup:
    """Waiting pods that get the same verdicts."""

    __slots__ = (
        "_heap",
        "_reachable",
        "_unreported",
        "by_kind",
        "family",
        "info",
        "kept",
        "key",
        "on_the_way",
        "pod_group",
        "pod_set",
        "refusal",
        "size",
    )

    def __init__(self, key: Any, queued: Queued) -> None:
        self.key, self.info = key, queued.info
        self.pod_group = queued.pod_group  # then that is all of it
        claim = self.info.claim if self.pod_group is None else None
        self.family = claim.key.family if claim is not None else None  # of its pods' class
        self.refusal = NO_REFUSAL
        self.pod_set: tuple[PodSet, ...] | None = None  # see `_pod_set`; set when it is indexed
        self.by_kind: dict[str, list[EventInterest]] = {}  # its interests
        self.kept: set[int] = set()
        self.size = 0
        self.on_the_way = 0  # pods woken up by a change that have not been tried yet
        self._heap: list[Entry] = []
        self._reachable: bytearray | None = None
        self._unreported = bytearray()

    def judged(self, refusal: Diagnosis) -> None:
        """Stores the newest verdict about one of its pods."""
        self.refusal = refusal
        self.kept = set(refusal.kept)
        self._reachable = None if refusal.reachable is None else bytearray(refusal.reachable)
        self._unreported = bytearray(refusal.unreported)

    def waits_for_report(self, row: int) -> bool:
        """Whether the pods might preempt there, if the node's report allowed it."""
        return row < 8 * len(self._unreported) and bool(self._unreported[row >> 3] >> (row & 7) & 1)

    def could_preempt(self, row: int) -> bool:
        resolvable = self.refusal.resolvable
        return row >= 8 * len(resolvable) or bool(resolvable[row >> 3] >> (row & 7) & 1)

    def wait_for_report(self, row: int) -> None:
        self._unreported.extend(b"\0" * ((row >> 3) + 1 - len(self._unreported)))
        self._unreported[row >> 3] |= 1 << (row & 7)

    def has_report(self, row: int) -> None:
        self._unreported[row >> 3] &= ~(1 << (row & 7)) & 0xFF

    def push(self, sort_key: Any, queued: Queued) -> None:
        self.size += 1
        heapq.heappush(self._heap, (sort_key, queued.ticket, queued))
        if len(self._heap) > 2 * self.size + 16:
            self._heap = [entry for entry in self._heap if self._stands(entry)]
            heapq.heapify(self._heap)

    def best(self) -> Entry | None:
        """Its first pod in queue order; drops entries of pods that have left."""
        while self._heap and not self._stands(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def standing(self) -> list[Entry]:
        """All its pods."""
        return [entry for entry in self._heap if self._stands(entry)]

    def _stands(self, entry: Entry) -> bool:
        return entry[2].group is self and entry[1] == entry[2].ticket

    def reaches(self, row: int) -> bool:
        reachable = self._reachable
        if reachable is None or row >= 8 * len(reachable):
            return True
        return bool(reachable[row >> 3] >> (row & 7) & 1)

    def open(self, row: int) -> None:
        """The row is no longer nominated for another pod."""
        self.kept.discard(row)
        if self._reachable is not None and row < 8 * len(self._reachable):
            self._reachable[row >> 3] |= 1 << (row & 7)

    def close(self, row: int) -> None:
        """The row is rejected for another reason than amounts."""
        reachable = self._reachable if self._reachable is not None else bytearray()
        reachable.extend(b"\xff" * ((row >> 3) + 1 - len(reachable)))
        reachable[row >> 3] &= ~(1 << (row & 7)) & 0xFF
        self._reachable = reachable

    def could_be_helped(self, change: ClusterEvent) -> bool:
        for interest in self.by_kind[change.kind]:
            if not interest.bits & change.bits:
                continue
            if self.pod_group is None:
                if interest.could_help(self.info, change):
                    return True
            elif any(interest.could_help(info, change) for info in self.pod_group.first.infos):
                return True
        return False


class Unschedulable:
    """All groups, indexed by what could help them."""

    def __init__(self) -> None:
        self._groups: dict[Any, WaitingGroup] = {}
        self._by_kind: dict[str, dict[WaitingGroup, None]] = {}
        # Of groups that only changes of certain pods can help; they are not in _by_kind["Pod"].
        self._selective: dict[WaitingGroup, None] = {}
        self._pod_sets: PodSetIndex[tuple[WaitingGroup, int]] = PodSetIndex()
        self._by_needs: dict[Needs, dict[WaitingGroup, None]] = {}
        self._needs = NeedsIndex()  # the keys of `_by_needs`
        self._by_kept: dict[int, dict[WaitingGroup, None]] = {}
        self._by_family: dict[str, dict[WaitingGroup, None]] = {}  # of the pods' class
        self._unreported: dict[WaitingGroup, None] = {}  # groups that might preempt, but for the reports of nodes
        self._pod_groups: dict[WaitingGroup, None] = {}
        self._preempting: dict[WaitingGroup, None] = {}  # groups that evict pods where that makes enough room

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[WaitingGroup]:
        return iter(list(self._groups.values()))

    @property
    def any_needs(self) -> bool:
        return bool(self._by_needs)

    def add(self, queued: Queued, sort_key: Any, refusal: Diagnosis) -> None:
        key = _key(queued.info, refusal) if queued.pod_group is None else queued.pod_group.key
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = WaitingGroup(key, queued)
            group.judged(refusal)
            self._index(group)
        elif group.refusal.interests == refusal.interests and group.kept == refusal.kept:
            group.judged(refusal)
            self._index_reports(group)
        else:
            self._unindex(group)
            group.judged(refusal)
            self._index(group)
        queued.group = group
        group.push(sort_key, queued)

    def remove(self, queued: Queued) -> None:
        """The pod no longer waits. Its group is dropped when it has no pods, waiting or woken up and not tried yet."""
        group, queued.group = queued.group, None
        assert group is not None
        group.size -= 1
        self.forget_if_empty(group)

    def forget_if_empty(self, group: WaitingGroup) -> None:
        if not group.size and not group.on_the_way and self._groups.get(group.key) is group:
            del self._groups[group.key]
            self._unindex(group)

    def helped_by(self, change: ClusterEvent) -> list[WaitingGroup]:
        return [group for group in self._concerned(change) if group.size and group.could_be_helped(change)]

    def _concerned(self, change: ClusterEvent) -> Iterable[WaitingGroup]:
        found = self._by_kind.get(change.kind, {})
        if change.kind != POD or not self._selective:
            return found
        states = [state for state in (change.old, change.new) if state is not None]
        if any(affinity_terms.of_pod(state).anti_affinity for state in states):
            return found | self._selective
        chosen = (self._pod_sets.candidates(state.namespace, state.metadata.labels) for state in states)
        return found | {group: None for groups in chosen for group, _ in groups}

    def held_by(self, row: int, room: Room) -> list[WaitingGroup]:
        """Groups with a pod that the row could hold."""
        found: list[WaitingGroup] = []
        for needs in self._needs.candidates(room):
            reaching = [group for group in self._by_needs[needs] if group.size and group.reaches(row)]
            if reaching and room.holds(needs):
                found += reaching
        return found

    def groups_for_report(self, row: int, room: Room) -> list[WaitingGroup]:
        """Groups for which only the row's report prevented preemption, and does not any more."""
        groups = [
            group
            for group in self._unreported
            if group.size and group.waits_for_report(row) and room.holds(group.refusal.reported_needs)
        ]
        for group in groups:
            group.has_report(row)
        return groups

    def vacated(self, row: int, priority: int, room_for: Callable[[WaitingGroup], Room]) -> list[WaitingGroup]:
        """Groups that could preempt on the row now that a pod of this priority has left it.

        A pod that they could have evicted makes no difference. Where only the row's report is against it, they wait
        for a report.
        """
        found = []
        for group in self._preempting:
            if not group.size or group.info.priority > priority or not group.could_preempt(row):
                continue
            room, needs = room_for(group), group.refusal.needs
            if room.holds(needs):
                found.append(group)
            elif room.holds(tuple(need for need in needs if need.supply == REQUESTS)):
                group.wait_for_report(row)
                self._unreported[group] = None
        return found

    def open(self, row: int) -> list[WaitingGroup]:
        """Groups that were rejected because the row is nominated for another pod; marks it as reachable again."""
        for group in self._pod_groups:  # what the row has may help in combination with other rows
            group.open(row)
        groups = list(self._by_kept.pop(row, ()))
        for group in groups:
            group.open(row)
        return groups

    def reprice(self, families: Iterable[str], needs_of: Callable[[PodInfo, Needs], Needs]) -> None:
        """Recomputes the needs of pods of these families of classes, whose costs changed."""
        for family in families:
            for group in list(self._by_family.get(family, ())):
                before = group.refusal
                needs, reported = needs_of(group.info, before.needs), needs_of(group.info, before.reported_needs)
                if (needs, reported) != (before.needs, before.reported_needs):
                    self._unindex(group)
                    del self._groups[group.key]
                    group.refusal = replace(before, needs=needs, reported_needs=reported)
                    group.key = _key(group.info, group.refusal)
                    self._put_back(group)

    def _put_back(self, group: WaitingGroup) -> None:
        """Stores the group under its new key; if another group has that key, the pods join that one."""
        other = self._groups.setdefault(group.key, group)
        if other is group:
            self._index(group)
            return
        for sort_key, _, queued in group.standing():
            group.size -= 1
            queued.group = other
            other.push(sort_key, queued)

    def _index(self, group: WaitingGroup) -> None:
        group.by_kind = {}
        for interest in group.refusal.interests:
            group.by_kind.setdefault(interest.kind, []).append(interest)
        group.pod_set = _pod_set(group)
        for kind in group.by_kind:
            if kind == POD and group.pod_set is not None:
                self._selective[group] = None
                for number, pods in enumerate(group.pod_set):
                    self._pod_sets.add(pods, (group, number))
            else:
                self._by_kind.setdefault(kind, {})[group] = None
        for row in group.kept:
            self._by_kept.setdefault(row, {})[group] = None
        if group.refusal.needs:
            if group.refusal.needs not in self._by_needs:
                self._needs.add(group.refusal.needs)
            self._by_needs.setdefault(group.refusal.needs, {})[group] = None
        if group.family is not None:
            self._by_family.setdefault(group.family, {})[group] = None
        if group.pod_group is not None:
            self._pod_groups[group] = None
        self._index_reports(group)

    def _index_reports(self, group: WaitingGroup) -> None:
        if group.refusal.unreported:
            self._unreported[group] = None
        else:
            self._unreported.pop(group, None)
        if group.refusal.resolvable:
            self._preempting[group] = None
        else:
            self._preempting.pop(group, None)

    def _unindex(self, group: WaitingGroup) -> None:
        self._unreported.pop(group, None)
        self._preempting.pop(group, None)
        for kind in group.by_kind:
            if kind == POD and group.pod_set is not None:
                del self._selective[group]
                for number in range(len(group.pod_set)):
                    self._pod_sets.remove((group, number))
            else:
                _drop(self._by_kind, kind, group)
        for row in group.kept:
            _drop(self._by_kept, row, group)
        if group.refusal.needs:
            _drop(self._by_needs, group.refusal.needs, group)
            if group.refusal.needs not in self._by_needs:
                self._needs.remove(group.refusal.needs)
        if group.family is not None:
            _drop(self._by_family, group.family, group)
        self._pod_groups.pop(group, None)


def _pod_set(group: WaitingGroup) -> tuple[PodSet, ...] | None:
    """The pods whose changes can help the group; None: any pod."""
    if group.pod_group is not None:
        return None
    found: dict[PodSet, None] = {}
    for interest in group.by_kind.get(POD, ()):
        pods = interest.audience_of(group.info)
        if pods is None:
            return None
        found |= dict.fromkeys(pods)
    return tuple(found)


def _drop(index: dict[Any, dict[WaitingGroup, None]], key: Any, group: WaitingGroup) -> None:
    del index[key][group]
    if not index[key]:
        del index[key]


def _key(info: PodInfo, refusal: Diagnosis) -> tuple[Any, ...]:
    spec = info.pod.spec
    common = (spec.scheduler_name, info.priority, refusal.needs, info.claim and info.claim.key)
    if refusal.scope is Scope.POD:
        return (*common, info.uid)
    labels = info.identity if refusal.scope is Scope.LABELS else None
    return (*common, info.template, labels)
