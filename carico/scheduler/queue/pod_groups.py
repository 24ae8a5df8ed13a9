"""Groups of pods that are one entry of the queue.

The first pod of a group represents all of them in the queue, with its place, its back-off and its attempts; the others
are "grouped". They are popped together, and when all have a node the group is dissolved: each is bound on its own. One
whose binding fails is in the group again, with those that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from carico.scheduler.cache.template import PodInfo
from carico.scheduler.queue.entries import Gate, Queued, QueuedGroup

GroupKey = tuple[str, str, str]  # profile, plugin, and the plugin's name for the group


class PodGrouping(Protocol):
    """What the profiles' plugins say about groups."""

    def key_of(self, pod: PodInfo) -> GroupKey | None:
        """None: the pod is on its own."""
        ...

    def gate(self, key: GroupKey, waiting: Sequence[PodInfo]) -> Gate | None:
        """Why these pods, all of the group that wait, must not be tried yet."""
        ...


class PodGroups:
    """The groups in the queue, by key. A pod in flight whose group was dissolved is in none."""

    def __init__(self, grouping: PodGrouping) -> None:
        self._grouping = grouping
        self._groups: dict[GroupKey, QueuedGroup] = {}

    def __iter__(self) -> Iterator[QueuedGroup]:
        return iter(self._groups.values())

    def key_of(self, pod: PodInfo) -> GroupKey | None:
        return self._grouping.key_of(pod)

    def gate(self, group: QueuedGroup) -> Gate | None:
        return self._grouping.gate(group.key, group.first.infos)

    def enter(self, queued: Queued) -> bool:
        """Whether the pod is an entry: on its own, or the first of its group."""
        key = self.key_of(queued.info)
        if key is None:
            return True
        group = self._groups.setdefault(key, QueuedGroup(key))
        group.members[queued.uid], queued.pod_group = queued, group
        return group.first is queued

    def leave(self, group: QueuedGroup, queued: Queued) -> bool:
        """Whether the pod was the first of its group."""
        was_first = group.first is queued
        del group.members[queued.uid]
        queued.pod_group = None
        if not group.members:
            del self._groups[group.key]
        return was_first

    def dissolve(self, group: QueuedGroup) -> list[Queued]:
        del self._groups[group.key]
        members = list(group.members.values())
        for member in members:
            member.pod_group = None
        return members

    def fail(self, queued: Queued, move: Callable[[Queued, str], object]) -> bool:
        """The attempt of the pod, or of its group, failed. False: its group has another entry, which it joins."""
        if (group := queued.pod_group) is None:
            return self.enter(queued)
        for member in group.members.values():
            if member is not group.first:
                move(member, "grouped")
        return True
