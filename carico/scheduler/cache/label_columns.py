"""Labels of all nodes, one column of small integers per key, so that a requirement is a comparison of arrays.

A column is created when its key is first used and kept up to date from then on: clusters have hundreds of labels, of
which pods use a handful. Memory is bounded: the least recently used columns are dropped, and so are the values that no
node has any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from carico.columns import grown
from carico.kube.selectors import Requirement, Selector, as_integer
from carico.scheduler.cache.rows import Mask, RowArray, among

MISSING = -1  # the code of a row whose node lacks the label; also the last entry of a lookup table


KEPT = 256  # columns; the least recently used is dropped first
MASKS = 64  # results of requirements; at 20,000 nodes 20 KB each
SPARE = 64  # unused values that are kept, in case a node gets them again


class Column:
    """The values of one label: `codes[row]` is an index into `values`, or MISSING.

    `values` may hold some that no row has any more; when they become too many, the codes are renumbered.

    >>> column = Column(["a", "b", None])
    >>> column.set(0, "b")
    >>> column.codes.tolist(), column.values, column.living
    ([1, 1, -1], ['a', 'b'], 1)
    """

    def __init__(self, values: Iterable[str | None]) -> None:
        self.values: list[str] = []
        self.code: dict[str, int] = {}
        self._rows: list[int] = []  # how many rows have each value
        self._unused = 0  # values that no row has
        self._integers: tuple[NDArray[np.int64], Mask] | None = None
        self.version = 0  # incremented when a row gets another value
        self.codes: NDArray[np.int32] = np.array([self._add_row(value) for value in values], dtype=np.int32)

    @property
    def living(self) -> int:
        """Number of values that at least one row has."""
        return len(self.values) - self._unused

    def fit(self, length: int) -> None:
        self.codes = grown(self.codes, length, MISSING)

    def set(self, row: int, value: str | None) -> None:
        self.fit(row + 1)
        before = int(self.codes[row])
        if value != (None if before == MISSING else self.values[before]):
            self.codes[row] = self._add_row(value)
            self._remove_row(before)
            self.version += 1

    def _add_row(self, value: str | None) -> int:
        """Counts one more row with this value; returns its code."""
        if value is None:
            return MISSING
        code = self.code.get(value)
        if code is None:
            code = self.code[value] = len(self.values)
            self.values.append(value)
            self._rows.append(0)
            self._unused += 1
            self._integers = None
        self._unused -= not self._rows[code]
        self._rows[code] += 1
        return code

    def _remove_row(self, code: int) -> None:
        """Counts one row less with the value of this code."""
        if code == MISSING:
            return
        self._rows[code] -= 1
        if not self._rows[code]:
            self._unused += 1
            if self._unused > max(SPARE, self.living // 4):
                self._renumber()

    def _renumber(self) -> None:
        living = [code for code, rows in enumerate(self._rows) if rows]
        renumbered = np.full(len(self.values) + 1, MISSING, dtype=np.int32)  # the last entry is for MISSING
        renumbered[living] = np.arange(len(living), dtype=np.int32)
        self.codes = renumbered[self.codes]
        self.values = [self.values[code] for code in living]
        self.code = {value: code for code, value in enumerate(self.values)}
        self._rows = [self._rows[code] for code in living]
        self._unused, self._integers = 0, None

    def admitted(self, requirement: Requirement, codes: NDArray[np.int32]) -> Mask:
        """Which of `codes` meet the requirement."""
        operator = requirement.operator
        if operator in ("Exists", "DoesNotExist"):
            missing: Mask = codes == MISSING
            return missing if operator == "DoesNotExist" else ~missing
        if operator == "In":
            return self._among(requirement.values, codes)
        if operator == "NotIn":
            return ~self._among(requirement.values, codes)
        return self._compared(requirement, codes)

    def _among(self, values: Iterable[str], codes: NDArray[np.int32]) -> Mask:
        wanted = [self.code[value] for value in values if value in self.code]
        return among(codes, wanted, len(self.values) + 1)

    def _compared(self, requirement: Requirement, codes: NDArray[np.int32]) -> Mask:
        limit = as_integer(next(iter(requirement.values), None))
        if limit is None:
            return np.zeros(len(codes), dtype=np.bool_)
        numbers, valid = self._numbers()
        passed = (numbers > limit if requirement.operator == "Gt" else numbers < limit) & valid
        return passed[codes]

    def _numbers(self) -> tuple[NDArray[np.int64], Mask]:
        """Every value as a number, and whether it is one; the last entry is for MISSING."""
        if self._integers is None:
            read = [as_integer(value) for value in self.values]
            numbers = np.array([*(0 if n is None else n for n in read), 0], dtype=np.int64)
            valid = np.array([*(n is not None for n in read), False], dtype=np.bool_)
            self._integers = numbers, valid
        return self._integers


class LabelColumns:
    """Columns by label key. `labels_of(row)` is where a new column reads from."""

    def __init__(self, labels_of: Callable[[int], Mapping[str, str]], length: Callable[[], int]) -> None:
        self._labels_of = labels_of
        self._length = length
        self._columns: OrderedDict[str, Column] = OrderedDict()
        # Over all rows. Labels of nodes change rarely, and new templates often have the requirements of earlier ones.
        self._masks: dict[Requirement, tuple[Column, int, Mask]] = {}

    def __len__(self) -> int:
        return len(self._columns)

    def column(self, key: str) -> Column:
        column = self._columns.get(key)
        if column is None:
            rows = range(self._length())
            column = self._columns[key] = Column(self._labels_of(row).get(key) for row in rows)
        else:
            self._columns.move_to_end(key)
            column.fit(self._length())  # rows can be added without a call of `update`
        return column

    def update(self, row: int) -> None:
        """Call when the node of this row was added, changed or removed."""
        labels = self._labels_of(row)
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def trim(self) -> None:
        """Drops unused columns. Only between two cycles: a column that is re-created has different codes."""
        while len(self._columns) > KEPT:
            self._columns.popitem(last=False)

    def codes(self, key: str, rows: RowArray | None) -> NDArray[np.int32]:
        codes = self.column(key).codes
        return codes[: self._length()] if rows is None else codes[rows]

    def matching(self, requirements: Iterable[Requirement], rows: RowArray | None) -> Mask:
        """The rows whose labels meet all requirements."""
        mask: Mask | None = None
        for requirement in requirements:
            admitted = self._admitted(requirement, rows)
            mask = admitted.copy() if mask is None else np.logical_and(mask, admitted, out=mask)
        return np.ones(self._length() if rows is None else len(rows), dtype=np.bool_) if mask is None else mask

    def _admitted(self, requirement: Requirement, rows: RowArray | None) -> Mask:
        """Read-only."""
        column = self.column(requirement.key)
        if rows is not None:
            return column.admitted(requirement, column.codes[rows])
        known, length = self._masks.get(requirement), self._length()
        if known is not None and known[0] is column and known[1] == column.version and len(known[2]) == length:
            return known[2]
        if len(self._masks) >= MASKS:
            self._masks.clear()
        mask = column.admitted(requirement, column.codes[:length])
        self._masks[requirement] = column, column.version, mask
        return mask

    def selected(self, selector: Selector, rows: RowArray | None) -> Mask:
        mask = self.matching(selector.requirements, rows)
        return np.zeros_like(mask) if selector.never else mask
