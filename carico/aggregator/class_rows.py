"""What every node said of every class that it runs, one row each: absolute, in arrays.

Bounded on all sides: a class keeps the rows of at most NODES_PER_CLASS nodes, which is enough for a median, and a node
at most CLASSES_PER_NODE classes, those that it spoke of last. The columns are the resources that the kernel accounts
for each pod; what a message says of others is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from carico.types import ClassCost, Matrix, Vector
from carico.wire.codec.classes import ClassName, name_of

RESOURCES = ("cpu", "memory")
R = len(RESOURCES)
NODES_PER_CLASS = 64
CLASSES_PER_NODE = 512
FIRST_ROOM = 256  # rows
PODS, WEIGHT, RAMP, FIGURES = (
    0,
    1,
    2,
    3,
)  # columns; behind FIGURES come mean, variance, high and use_high of each resource
COLUMNS = FIGURES + 4 * R


class ClassRows:
    def __init__(self) -> None:
        self._values: Matrix = np.zeros((FIRST_ROOM, COLUMNS))
        self._fading: Vector = np.zeros(FIRST_ROOM)  # what is left of the node
        self._free = list(range(FIRST_ROOM))
        self._of_node: dict[str, dict[ClassName, int]] = {}
        self._of_class: dict[ClassName, dict[str, int]] = {}

    def __len__(self) -> int:
        """Rows in use."""
        return len(self._values) - len(self._free)

    def nodes(self, name: ClassName) -> int:
        return len(self._of_class.get(name, ()))

    def rows(self, name: ClassName) -> list[int]:
        return list(self._of_class.get(name, {}).values())

    def put(self, node: str, cost: ClassCost, resources: tuple[str, ...]) -> list[ClassName]:
        """Takes what a node says of one class; returns the classes that change by it."""
        name = name_of(cost.key)
        mine = self._of_node.setdefault(node, {})
        row = mine.get(name)
        changed = [name]
        if cost.weight <= 0:
            if row is not None:
                self._drop(node, name)
            return changed if row is not None else []
        if row is None:
            if not self._make_room(name, cost):
                return []
            if len(mine) >= CLASSES_PER_NODE:
                oldest = next(iter(mine))
                self._drop(node, oldest)
                changed.append(oldest)
            row = self._new_row()
            self._of_class.setdefault(name, {})[node] = row
        mine.pop(name, None)
        mine[name] = row  # as the last that it spoke of
        self._fill(row, cost, resources)
        self._fading[row] = 1.0
        return changed

    def _make_room(self, name: ClassName, cost: ClassCost) -> bool:
        """A class that has all its rows lets a node with pods in for one that has none left."""
        rows = self._of_class.get(name)
        if rows is None or len(rows) < NODES_PER_CLASS:
            return True
        idle = next((node for node, row in rows.items() if self._values[row, PODS] == 0), None)
        if cost.pods == 0 or idle is None:
            return False
        self._drop(idle, name)
        return True

    def _new_row(self) -> int:
        if not self._free:
            used = len(self._values)
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
            self._fading = np.concatenate([self._fading, np.zeros_like(self._fading)])
            self._free = list(range(used, 2 * used))
        return self._free.pop()

    def _fill(self, row: int, cost: ClassCost, resources: tuple[str, ...]) -> None:
        at = _positions(resources)
        figures = (cost.mean, cost.variance, cost.high, cost.use_high)
        values = [float(cost.pods), cost.weight, cost.ramp]
        values += [np.nan if i is None else figure[i] for figure in figures for i in at]
        self._values[row] = values

    def fade(self, node: str, left: float) -> Iterable[ClassName]:
        """Sets what is left of a node, in [0, 1]; returns the classes that change by it."""
        rows = self._of_node.get(node)
        if not rows or self._fading[next(iter(rows.values()))] == left:
            return ()
        self._fading[list(rows.values())] = left
        return list(rows)

    def forget(self, node: str) -> list[ClassName]:
        """The node is gone; returns the classes that change by it."""
        names = list(self._of_node.get(node, ()))
        for name in names:
            self._drop(node, name)
        self._of_node.pop(node, None)
        return names

    def forget_class(self, name: ClassName) -> None:
        for node in list(self._of_class.get(name, ())):
            self._drop(node, name)

    def _drop(self, node: str, name: ClassName) -> None:
        self._of_node[node].pop(name, None)
        rows = self._of_class[name]
        row = rows.pop(node)
        if not rows:
            del self._of_class[name]
        self._values[row] = 0.0
        self._fading[row] = 0.0
        self._free.append(row)

    def block(self, names: list[ClassName], width: int) -> tuple[Matrix, Matrix]:
        """Values, classes × width × columns, and what is left of each node; 0 where there is none."""
        index = np.zeros((len(names), width), dtype=np.intp)
        present = np.zeros((len(names), width))
        for i, name in enumerate(names):
            rows = self.rows(name)
            index[i, : len(rows)] = rows
            present[i, : len(rows)] = 1.0
        return self._values[index], self._fading[index] * present


@lru_cache(maxsize=256)
def _positions(resources: tuple[str, ...]) -> tuple[int | None, ...]:
    """Where a message has the columns."""
    return tuple(resources.index(name) if name in resources else None for name in RESOURCES)
