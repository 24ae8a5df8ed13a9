"""Labels of all nodes, one column of small integers per key, so that a requirement is a comparison of arrays.

A column is made when a key is first asked for and kept up to date from then on: clusters have hundreds of labels, of
which pods ask for a handful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from carico.kube.selectors import Requirement, Selector, as_integer
from carico.scheduler.rows import Mask, RowArray, among, grown

MISSING = -1  # the code of a row whose node lacks the label; also the last entry of a lookup table


class Column:
    """The values of one label: `codes[row]` is an index into `values`, or MISSING."""

    def __init__(self, length: int) -> None:
        self.values: list[str] = []
        self.code: dict[str, int] = {}
        self.codes: NDArray[np.int32] = np.full(length, MISSING, dtype=np.int32)
        self._integers: tuple[NDArray[np.int64], Mask] | None = None

    def set(self, row: int, value: str | None) -> None:
        self.codes = grown(self.codes, row + 1, MISSING)
        self.codes[row] = MISSING if value is None else self._coded(value)

    def _coded(self, value: str) -> int:
        code = self.code.get(value)
        if code is None:
            code = self.code[value] = len(self.values)
            self.values.append(value)
            self._integers = None
        return code

    def admitted(self, requirement: Requirement, codes: NDArray[np.int32]) -> Mask:
        """Which of `codes` a requirement lets pass."""
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
        """Every value as a number, and whether it is one; the last entry stands for MISSING."""
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
        self._columns: dict[str, Column] = {}

    def column(self, key: str) -> Column:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = Column(self._length())
            for row in range(self._length()):
                column.set(row, self._labels_of(row).get(key))
        # Rows of nodes that are not known yet come without news of labels.
        column.codes = grown(column.codes, self._length(), MISSING)
        return column

    def update(self, row: int) -> None:
        """The node of this row is new, changed or gone."""
        labels = self._labels_of(row)
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def codes(self, key: str, rows: RowArray | None) -> NDArray[np.int32]:
        codes = self.column(key).codes
        return codes[: self._length()] if rows is None else codes[rows]

    def matching(self, requirements: Iterable[Requirement], rows: RowArray | None) -> Mask:
        """The rows whose labels meet all requirements."""
        mask: Mask | None = None
        for requirement in requirements:
            admitted = self.column(requirement.key).admitted(requirement, self.codes(requirement.key, rows))
            mask = admitted if mask is None else np.logical_and(mask, admitted, out=mask)
        return np.ones(self._length() if rows is None else len(rows), dtype=np.bool_) if mask is None else mask

    def selected(self, selector: Selector, rows: RowArray | None) -> Mask:
        mask = self.matching(selector.requirements, rows)
        return np.zeros_like(mask) if selector.never else mask
