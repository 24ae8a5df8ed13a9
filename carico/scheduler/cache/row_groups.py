"""Rows grouped by a property that many nodes share, such as taints: evaluated once per group, not once per node."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from carico.columns import grown

Member = TypeVar("Member", bound=Hashable)


class Groups(Generic[Member]):
    """`of[row]` is the number of the row's group, `members[number]` the property that its rows share.

    New properties appear indefinitely (an autoscaler writes the time into a taint), so the number of a group that lost
    its last row is given to the next new group. A caller that caches a result per number uses `changed_since` to find
    the numbers whose property changed.

    >>> groups = Groups("")
    >>> groups.set(0, "spot"); groups.set(1, "gpu"); mark = groups.mark
    >>> groups.set(0, ""); groups.set(2, "arm")
    >>> groups.of[:3].tolist(), groups.members, groups.changed_since(mark)
    ([0, 2, 1], ['', 'arm', 'gpu'], [1])
    """

    def __init__(self, empty: Member) -> None:
        self._empty = empty
        self.members: list[Member] = [empty]  # 0 is the group of all rows that were not set
        self.of: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.mark = 0
        self._number: dict[Member, int] = {empty: 0}
        self._size: list[int] = [0]  # rows of each group; group 0 is never freed and not counted
        self._free: list[int] = []
        self._changed_at: NDArray[np.int64] = np.zeros(1, dtype=np.int64)  # the mark at which a number got its property

    def fit(self, length: int) -> None:
        self.of = grown(self.of, length)

    def set(self, row: int, member: Member) -> None:
        self.fit(row + 1)
        before, number = int(self.of[row]), self._number.get(member)
        if number is None:
            number = self._take(member)
        if number != before:
            self.of[row] = number
            self._size[number] += 1
            self._leave(before)

    def changed_since(self, mark: int) -> list[int]:
        """Numbers whose property changed after that mark; all of them for a mark below 0."""
        if mark == self.mark:
            return []
        return np.flatnonzero(self._changed_at[: len(self.members)] > mark).tolist()

    def _take(self, member: Member) -> int:
        if self._free:
            number = self._free.pop()
            self.members[number] = member
        else:
            number = len(self.members)
            self.members.append(member)
            self._size.append(0)
            self._changed_at = grown(self._changed_at, len(self.members))
        self._number[member] = number
        self._note(number)
        return number

    def _leave(self, number: int) -> None:
        self._size[number] -= 1
        if number and not self._size[number]:
            del self._number[self.members[number]]
            self.members[number] = self._empty
            self._free.append(number)
            self._note(number)

    def _note(self, number: int) -> None:
        self.mark += 1
        self._changed_at[number] = self.mark
