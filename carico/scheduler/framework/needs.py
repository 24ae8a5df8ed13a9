"""What a pod lacks, as amounts: finds the waiting pods that a row could hold.

A plugin whose filter rejects a node exactly when the node has too little of something (`Supply` in contract.py)
returns its `Need`s. The queue then compares amounts instead of calling queueing hints: a row that has room for three of
the waiting pods wakes up three of them, in queue order, and again as long as it has room. It is level-triggered: no
single rise of an amount has to be observed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import NamedTuple

__all__ = ["REQUESTS", "Available", "Need", "Needs"]

REQUESTS = "requests"  # the supply of what pods request: the only one of which evicting pods makes more
Available = Callable[[str, int], float]  # of a resource, on a row; −inf where the filter rejects the row for any need


class Need(NamedTuple):
    """The row must have `least` of the resource; the pod would take `takes` of it."""

    supply: str  # which plugin's amounts these are
    resource: str
    least: float
    takes: float


Needs = tuple[Need, ...]
SORTED_BY = 3  # amounts; later ones, as that of an unmeasured class, have names of few pods


class Promised:
    """Per row, what pods that were woken up for it and have not been tried yet would take."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[tuple[str, str], float]] = {}
        self._pods: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def on(self, row: int, supply: str, resource: str) -> float:
        amounts = self._rows.get(row)
        return 0.0 if amounts is None else amounts.get((supply, resource), 0.0)

    def add(self, row: int, needs: Needs) -> None:
        amounts = self._rows.setdefault(row, {})
        self._pods[row] = self._pods.get(row, 0) + 1
        for need in needs:
            key = (need.supply, need.resource)
            amounts[key] = amounts.get(key, 0.0) + need.takes

    def remove(self, row: int, needs: Needs) -> None:
        self._pods[row] -= 1
        if not self._pods[row]:  # exactly zero, without rounding errors
            del self._pods[row], self._rows[row]
            return
        for need in needs:
            self._rows[row][need.supply, need.resource] -= need.takes


class Room:
    """What one row has left for pods that were not woken up for it yet."""

    def __init__(
        self,
        row: int,
        supplies: Mapping[str, Available],
        promised: Promised,
        evictable: Mapping[str, float] | None = None,
    ) -> None:
        """`evictable`: what pods request that could be evicted, by resource; it counts as left."""
        self._row, self._supplies, self._promised, self._evictable = row, supplies, promised, evictable or {}
        self._available: dict[tuple[str, str], float] = {}

    def holds(self, needs: Needs) -> bool:
        return all(self.left(supply, resource) >= least for supply, resource, least, _ in needs)

    def left(self, supply: str, resource: str) -> float:
        """What the row has, less what pods that were woken up for it would take."""
        amount = self._available.get((supply, resource))
        if amount is None:
            amount = self._supplies[supply](resource, self._row)
            amount += self._evictable.get(resource, 0.0) if supply == REQUESTS else 0.0
            self._available[supply, resource] = amount
        return amount - self._promised.on(self._row, supply, resource)


class NeedsIndex:
    """Distinct needs. A row that changed can hold few of them, which are found without comparing each.

    Needs whose first amounts have the same names are sorted by each of these amounts. Candidates are those that the row
    holds by the amount that it holds the fewest of.

    >>> small, large = ((Need("s", "cpu", n, n), Need("s", "pods", 1, 1)) for n in (1, 9))
    >>> index, room = NeedsIndex(), Room(0, {"s": lambda resource, row: 5.0}, Promised())
    >>> index.add(small); index.add(large); index.candidates(room) == [small]
    True
    >>> index.remove(small); index.candidates(room)
    []
    """

    def __init__(self) -> None:
        # By the names of the first amounts: per amount, what each of the needs requires of it.
        self._sorted: dict[tuple[tuple[str, str], ...], tuple[list[tuple[float, Needs]], ...]] = {}

    def add(self, needs: Needs) -> None:
        lists = self._sorted.setdefault(_names(needs), tuple([] for _ in needs[:SORTED_BY]))
        for need, entries in zip(needs, lists, strict=False):
            insort(entries, (need.least, needs))

    def remove(self, needs: Needs) -> None:
        names = _names(needs)
        for need, entries in zip(needs, self._sorted[names], strict=False):
            del entries[bisect_left(entries, (need.least, needs))]
        if not self._sorted[names][0]:
            del self._sorted[names]

    def candidates(self, room: Room) -> list[Needs]:
        """Every one that the row holds, and few others."""
        found: list[Needs] = []
        for names, lists in self._sorted.items():
            fewest, end = lists[0], len(lists[0])
            for (supply, resource), entries in zip(names, lists, strict=True):
                held = bisect_right(entries, room.left(supply, resource), key=itemgetter(0))
                if held < end:
                    fewest, end = entries, held
                    if not held:
                        break
            found += [needs for _, needs in fewest[:end]]
        return found


def _names(needs: Needs) -> tuple[tuple[str, str], ...]:
    return tuple([(need.supply, need.resource) for need in needs[:SORTED_BY]])
