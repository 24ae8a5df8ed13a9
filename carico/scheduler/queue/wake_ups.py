"""What wakes up waiting pods, and how many: changes of objects, and amounts on rows.

A change of an object wakes up the first pod of every group that it could help, and the next one when that was placed. A
row that has enough of what pods lack wakes up as many as it can hold. It is checked again whenever something on it
changes or a pod that was woken up for it has been tried: what was woken up already is subtracted, and after a failed
attempt the next pod is woken up.

A group of pods (pod_groups.py) is woken up whenever a row changes that could hold one of them, because that may make
room on another row. Such an attempt may fail, but it waits for the end of the back-off, of 10 s at most.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import ClusterEvent
from carico.scheduler.framework.needs import Available, Needs, Promised, Room
from carico.scheduler.queue.entries import Queued
from carico.scheduler.queue.unschedulable import Unschedulable, WaitingGroup

Requeue = Callable[[Queued, str, float], None]  # a pod, the event, and the time


class WakeUps:
    """`requeue` puts a pod into the active or the back-off queue.

    `supplies` are the amounts that pods may need, by name; `needs_of` are those whose needs can change (class costs).
    """

    def __init__(
        self,
        unschedulable: Unschedulable,
        requeue: Requeue,
        supplies: Mapping[str, Available],
        needs_of: Mapping[str, Callable[[PodInfo], Needs]],
    ) -> None:
        self._unschedulable, self._requeue = unschedulable, requeue
        self._supplies, self._needs_of = supplies, needs_of
        self.promised = Promised()

    def on_change(self, change: ClusterEvent, event: str, now: float) -> int:
        """Wakes up one pod of each group that the change could help; returns how many."""
        return sum(self._wake_group(group, event, now) for group in self._unschedulable.helped_by(change))

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
        for group in self._unschedulable.groups_for_report(row, Room(row, self._supplies, self.promised)):
            self._wake_group(group, "NodeReported", now)
        self._wake_by_room(row, now)

    def on_vacated(self, row: int, priority: int, evictable: Callable[[int], Mapping[str, float]], now: float) -> None:
        """A pod of this priority has left the row: wakes up pods for which evicting others there is enough now.

        `evictable` returns what the row's pods below a priority request.
        """
        for group in self._unschedulable.vacated(
            row, priority, lambda g: Room(row, self._supplies, self.promised, evictable(g.info.priority))
        ):
            self._wake_group(group, "NodeVacated", now)

    def reprice(self, families: Iterable[str]) -> None:
        """Recomputes what the pods of these families of classes need."""
        self._unschedulable.reprice(families, self._repriced)

    def tried(self, queued: Queued, now: float) -> None:
        """The pod was tried, or will not be: others may be woken up by what woke it up."""
        group, row = queued.woken_from, queued.woken_for
        queued.woken_from, queued.woken_for = None, -1
        if group is not None:
            group.on_the_way -= 1
            if queued.group is not group:  # it was placed, deleted, or failed for another reason
                self._wake_next(group, "PreviousPodTried", now)
            self._unschedulable.forget_if_empty(group)
        if row >= 0:
            self.promised.remove(row, queued.woken_needs)
            self._look_again(row, queued, now)

    # --- inside ---

    def _repriced(self, info: PodInfo, needs: Needs) -> Needs:
        supplies = dict.fromkeys(need.supply for need in needs)
        found = [
            self._needs_of[supply](info) if supply in self._needs_of else [n for n in needs if n.supply == supply]
            for supply in supplies
        ]
        return tuple(need for part in found for need in part)

    def _wake_by_room(self, row: int, now: float) -> int:
        if not self._unschedulable.any_needs:
            return 0
        room = Room(row, self._supplies, self.promised)
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

    def _wake_for(self, queued: Queued, row: int, needs: Needs, now: float) -> None:
        self._requeue(queued, "NodeRoom", now)
        if queued.place in ("active", "backoff"):
            queued.woken_for = row
            queued.woken_needs = needs
            self.promised.add(row, needs)

    def _look_again(self, row: int, queued: Queued, now: float) -> None:
        """Checks the row again after a pod that was woken up for it has been tried."""
        group = queued.group
        if group is not None and group.reaches(row):
            room = Room(row, self._supplies, self.promised)
            if room.holds(group.refusal.needs):  # the filters reject what the amounts allow: no wake-up can help
                group.close(row)
        self._wake_by_room(row, now)

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
