"""Pods that found no node, in groups, so that a change costs time in proportion to the pods it concerns.

Pods of one group are judged alike by every filter that refused them: the newest verdict about one holds for all, a
hint is asked once for the group, and a change that may help wakes its best pod only. If that one is placed the next
one is woken; if it fails, the others would fail too and stay where they are.

    Change ─► groups whose interests name its kind ─► hint ─► the group's best pod
    a row  ─► groups whose needs the row can hold  ─► as many pods as it holds, the best of all groups first
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from carico.scheduler.changes import Change, Interest
from carico.scheduler.supply import Needs, Room
from carico.scheduler.template import PodInfo

if TYPE_CHECKING:
    from carico.scheduler.queue import Queued

Entry = tuple[Any, int, "Queued"]  # sort key, ticket, pod


class Scope(Enum):
    """What the verdicts about a pod depend on, beside its priority, its profile and its needs."""

    TEMPLATE = "template"
    LABELS = "labels"  # template, namespace and labels
    POD = "pod"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod found no node, and what could help it."""

    plugins: frozenset[str] = frozenset()
    interests: tuple[Interest, ...] = ()
    needs: Needs = ()  # empty: it is not for want of an amount
    reachable: bytes | None = None  # a bit per row: nothing but amounts keeps the pod from it. None: all rows
    kept: frozenset[int] = frozenset()  # rows that are kept for nominated pods
    # Rows, a bit each, on which nothing but a node's report kept the pod from evicting others, and what it lacked.
    unreported: bytes = b""
    reported_needs: Needs = ()
    scope: Scope = Scope.POD


NO_REFUSAL = Refusal()


class Group:
    """Waiting pods that are judged alike."""

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
        "refusal",
        "size",
    )

    def __init__(self, key: Any, info: PodInfo) -> None:
        self.key, self.info = key, info
        self.family = info.claim.key.family if info.claim is not None else None  # of its pods' class
        self.refusal = NO_REFUSAL
        self.by_kind: dict[str, list[Interest]] = {}  # its interests
        self.kept: set[int] = set()
        self.size = 0
        self.on_the_way = 0  # pods woken by a change that have not been tried yet
        self._heap: list[Entry] = []
        self._reachable: bytearray | None = None
        self._unreported = bytearray()

    def judged(self, refusal: Refusal) -> None:
        """The newest verdict about one of its pods."""
        self.refusal = refusal
        self.kept = set(refusal.kept)
        self._reachable = None if refusal.reachable is None else bytearray(refusal.reachable)
        self._unreported = bytearray(refusal.unreported)

    def waits_for_report(self, row: int) -> bool:
        """Whether the pods could perhaps evict others there, if the node's report let them."""
        return row < 8 * len(self._unreported) and bool(self._unreported[row >> 3] >> (row & 7) & 1)

    def has_report(self, row: int) -> None:
        self._unreported[row >> 3] &= ~(1 << (row & 7)) & 0xFF

    def push(self, sort_key: Any, queued: Queued) -> None:
        self.size += 1
        heapq.heappush(self._heap, (sort_key, queued.ticket, queued))
        if len(self._heap) > 2 * self.size + 16:
            self._heap = [entry for entry in self._heap if self._stands(entry)]
            heapq.heapify(self._heap)

    def best(self) -> Entry | None:
        """Its first pod in the queue's order; entries of pods that have left go."""
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
        """The row is no longer kept for another pod."""
        self.kept.discard(row)
        if self._reachable is not None and row < 8 * len(self._reachable):
            self._reachable[row >> 3] |= 1 << (row & 7)

    def close(self, row: int) -> None:
        """Something that is no amount keeps the pods from the row."""
        reachable = self._reachable if self._reachable is not None else bytearray()
        reachable.extend(b"\xff" * ((row >> 3) + 1 - len(reachable)))
        reachable[row >> 3] &= ~(1 << (row & 7)) & 0xFF
        self._reachable = reachable

    def could_be_helped(self, change: Change) -> bool:
        for interest in self.by_kind[change.kind]:
            if interest.bits & change.bits and interest.could_help(self.info, change):
                return True
        return False


class Unschedulable:
    """All groups, by what could help them."""

    def __init__(self) -> None:
        self._groups: dict[Any, Group] = {}
        self._by_kind: dict[str, dict[Group, None]] = {}
        self._by_needs: dict[Needs, dict[Group, None]] = {}
        self._by_kept: dict[int, dict[Group, None]] = {}
        self._by_family: dict[str, dict[Group, None]] = {}  # of the pods' class
        self._unreported: dict[Group, None] = {}  # groups that could perhaps evict others where reports are missing

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    @property
    def any_needs(self) -> bool:
        return bool(self._by_needs)

    def add(self, queued: Queued, sort_key: Any, refusal: Refusal) -> None:
        key = _key(queued.info, refusal)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, queued.info)
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
        """The pod no longer waits. Its group goes with the last pod that could still tell something about it."""
        group, queued.group = queued.group, None
        assert group is not None
        group.size -= 1
        self.forget_if_empty(group)

    def forget_if_empty(self, group: Group) -> None:
        if not group.size and not group.on_the_way and self._groups.get(group.key) is group:
            del self._groups[group.key]
            self._unindex(group)

    def helped_by(self, change: Change) -> list[Group]:
        found = self._by_kind.get(change.kind, ())
        return [group for group in found if group.size and group.could_be_helped(change)]

    def held_by(self, row: int, room: Room) -> list[Group]:
        """Groups whose pods the row could take."""
        return [
            group
            for needs, groups in self._by_needs.items()
            if room.holds(needs)
            for group in groups
            if group.size and group.reaches(row)
        ]

    def reported(self, row: int, room: Room) -> list[Group]:
        """Groups that were kept from evicting others on the row by its report alone, and are no longer."""
        groups = [
            group
            for group in self._unreported
            if group.size and group.waits_for_report(row) and room.holds(group.refusal.reported_needs)
        ]
        for group in groups:
            group.has_report(row)
        return groups

    def open(self, row: int) -> list[Group]:
        """Groups that were refused the row because it is kept for a nominated pod: they may try it again."""
        groups = list(self._by_kept.pop(row, ()))
        for group in groups:
            group.open(row)
        return groups

    def reprice(self, families: Iterable[str], needs_of: Callable[[PodInfo, Needs], Needs]) -> None:
        """Pods of these families of classes need something else than when they were judged."""
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

    def _put_back(self, group: Group) -> None:
        """Under its new key, where another group may stand already: then its pods join that one."""
        other = self._groups.setdefault(group.key, group)
        if other is group:
            self._index(group)
            return
        for sort_key, _, queued in group.standing():
            group.size -= 1
            queued.group = other
            other.push(sort_key, queued)

    def _index(self, group: Group) -> None:
        group.by_kind = {}
        for interest in group.refusal.interests:
            group.by_kind.setdefault(interest.kind, []).append(interest)
        for kind in group.by_kind:
            self._by_kind.setdefault(kind, {})[group] = None
        for row in group.kept:
            self._by_kept.setdefault(row, {})[group] = None
        if group.refusal.needs:
            self._by_needs.setdefault(group.refusal.needs, {})[group] = None
        if group.family is not None:
            self._by_family.setdefault(group.family, {})[group] = None
        self._index_reports(group)

    def _index_reports(self, group: Group) -> None:
        if group.refusal.unreported:
            self._unreported[group] = None
        else:
            self._unreported.pop(group, None)

    def _unindex(self, group: Group) -> None:
        self._unreported.pop(group, None)
        for kind in group.by_kind:
            _drop(self._by_kind, kind, group)
        for row in group.kept:
            _drop(self._by_kept, row, group)
        if group.refusal.needs:
            _drop(self._by_needs, group.refusal.needs, group)
        if group.family is not None:
            _drop(self._by_family, group.family, group)


def _drop(index: dict[Any, dict[Group, None]], key: Any, group: Group) -> None:
    del index[key][group]
    if not index[key]:
        del index[key]


def _key(info: PodInfo, refusal: Refusal) -> tuple[Any, ...]:
    spec = info.pod.spec
    common = (spec.scheduler_name, info.priority, refusal.needs, info.claim and info.claim.key)
    if refusal.scope is Scope.POD:
        return (*common, info.uid)
    labels = info.identity if refusal.scope is Scope.LABELS else None
    return (*common, info.template, labels)
