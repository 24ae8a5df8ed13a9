"""The assignment of nodes to rows of the arrays.

The snapshot and the ledger keep one array per figure and one row per node, and refer to a node by the number of its
row. They share one `RowIndex`, so that their arrays have the same index. A row belongs to a node as long as it has a
holder; a row without one is reused for the next node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RowArray = NDArray[np.intp]  # row numbers
Mask = NDArray[np.bool_]  # one boolean per row

FEW = 4  # up to this number of values, comparing the whole column is cheaper than a lookup table


class RowIndex:
    """Row numbers by node name.

    >>> rows = RowIndex()
    >>> rows.hold("a"), rows.hold("b"), rows.hold("a")
    (0, 1, 0)
    >>> rows.drop("a"), rows.drop("a"), rows.hold("c")
    (False, True, 0)
    """

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        self.names: list[str] = []  # "" where a row is free
        self._holders: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """Rows in use or free: the length that every array needs at least."""
        return len(self.names)

    def hold(self, name: str) -> int:
        """The node's row, taken if it has none; each `hold` needs one `drop`."""
        row = self.number.get(name)
        if row is None:
            row = self._take(name)
        self._holders[row] += 1
        return row

    def drop(self, name: str) -> bool:
        """Releases a node's row; True when it has no holder any more."""
        row = self.number[name]
        self._holders[row] -= 1
        if self._holders[row]:
            return False
        del self.number[name]
        self.names[row] = ""
        self._free.append(row)
        return True

    def _take(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            self._holders.append(0)
        self.number[name] = row
        return row


def among(codes: NDArray[np.int32], wanted: Sequence[int], length: int) -> Mask:
    """Which of the codes, all below `length`, are wanted; a code of −1 means `length` − 1.

    >>> among(np.array([2, 0, 1, 2], np.int32), [2, 1], 3).tolist()
    [True, False, True, True]
    """
    if len(wanted) > FEW:
        table = np.zeros(length, dtype=np.bool_)
        table[wanted] = True
        return table[codes]
    mask: Mask = codes == wanted[0] if wanted else np.zeros(len(codes), dtype=np.bool_)
    for code in wanted[1:]:
        mask |= codes == code
    return mask


class RowJournal:
    """Rows that changed, in order, so that a reader can get the changes since its last read.

    >>> journal = RowJournal()
    >>> mark = journal.mark
    >>> journal.note(4); journal.note(2); journal.note(4)
    >>> journal.since(mark).tolist(), journal.since(journal.mark).tolist()
    ([4, 2, 4], [])
    """

    LIMIT = 65_536  # entries kept; a reader that is further behind has to read all rows

    def __init__(self) -> None:
        self._entries: RowArray = np.zeros(self.LIMIT, dtype=np.intp)
        self._length = 0
        self._dropped = 0

    @property
    def mark(self) -> int:
        return self._dropped + self._length

    def note(self, row: int) -> None:
        if self._length == self.LIMIT:
            half = self.LIMIT // 2
            self._entries[:half] = self._entries[half:]
            self._dropped += half
            self._length -= half
        self._entries[self._length] = row
        self._length += 1

    def since(self, mark: int) -> RowArray | None:
        """The rows noted after `mark`, possibly with duplicates; None if entries since then were dropped."""
        if mark < self._dropped:
            return None
        return self._entries[mark - self._dropped : self._length]
