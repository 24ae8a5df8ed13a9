"""What every node reported of every class that it runs, one row each: absolute, in arrays.

Bounded on all sides: a class keeps the rows of at most NODES_PER_CLASS nodes, which is enough for a median, and a node
at most CLASSES_PER_NODE classes, those that it reported last. The columns are the resources that the kernel accounts
for each pod; other resources of a message are ignored.

Each change of a row returns the share by which it can move the mean over the class's nodes, each with equal weight: the
row's own change, as a share of what it was, divided by the nodes. So a class that thousands of small changes hardly
move need not be merged for each of them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

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
)  # columns; after FIGURES come mean, variance, high and use_high of each resource
COLUMNS = FIGURES + 4 * R
LEVELS = (*range(FIGURES, FIGURES + R), *range(FIGURES + 2 * R, FIGURES + 3 * R))  # the columns of mean and high
SPREADS = tuple((FIGURES + i, FIGURES + R + i) for i in range(R))  # those of mean and variance
COUNTS = 0.2  # the weight of a change of the pods, or of those measured, relative to one of the values


class ClassShift(NamedTuple):
    """A class, and the share by which a changed row can move it."""

    name: ClassName
    share: float


class ClassRows:
    def __init__(self) -> None:
        self._values: Matrix = np.zeros((FIRST_ROOM, COLUMNS))
        self._fading: Vector = np.zeros(FIRST_ROOM)  # the remaining weight of the node
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

    def put(self, node: str, cost: ClassCost, resources: tuple[str, ...]) -> list[ClassShift]:
        """Stores what a node reports of one class; returns the classes that change by it."""
        name = name_of(cost.key)
        mine = self._of_node.setdefault(node, {})
        row = mine.get(name)
        if cost.weight <= 0:
            return [] if row is None else [self._drop(node, name)]
        values = _values(cost, resources)
        if row is not None:
            share = _change(self._values[row].tolist(), values) / len(self._of_class[name])
            del mine[name]
            mine[name] = row  # as the last that it reported
            self._values[row] = values
            return [ClassShift(name, share)]
        if not self._make_room(name, cost):
            return []
        dropped = [self._drop(node, next(iter(mine)))] if len(mine) >= CLASSES_PER_NODE else []
        row = mine[name] = self._new_row()
        rows = self._of_class.setdefault(name, {})
        rows[node] = row
        self._values[row] = values
        self._fading[row] = 1.0
        return [ClassShift(name, 1.0 / len(rows)), *dropped]

    def _make_room(self, name: ClassName, cost: ClassCost) -> bool:
        """In a class that has all its rows, a node with pods replaces one that has none left."""
        rows = self._of_class.get(name)
        if rows is None or len(rows) < NODES_PER_CLASS:
            return True
        if cost.pods == 0:
            return False
        idle = np.flatnonzero(self._values[list(rows.values()), PODS] == 0)
        if not len(idle):
            return False
        self._drop(list(rows)[idle[0]], name)
        return True

    def _new_row(self) -> int:
        if not self._free:
            used = len(self._values)
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
            self._fading = np.concatenate([self._fading, np.zeros_like(self._fading)])
            self._free = list(range(used, 2 * used))
        return self._free.pop()

    def fade(self, node: str, left: float) -> list[ClassShift]:
        """Sets the remaining weight of a node, in [0, 1]; returns the classes that change by it."""
        rows = self._of_node.get(node)
        if not rows or (before := self._fading[next(iter(rows.values()))]) == left:
            return []
        self._fading[list(rows.values())] = left
        return [ClassShift(name, abs(float(before) - left) / len(self._of_class[name])) for name in rows]

    def forget(self, node: str) -> list[ClassShift]:
        """Removes a node; returns the classes that change by it."""
        shifts = [self._drop(node, name) for name in list(self._of_node.get(node, ()))]
        self._of_node.pop(node, None)
        return shifts

    def forget_class(self, name: ClassName) -> None:
        for node in list(self._of_class.get(name, ())):
            self._drop(node, name)

    def _drop(self, node: str, name: ClassName) -> ClassShift:
        self._of_node[node].pop(name, None)
        rows = self._of_class[name]
        share = 1.0 / len(rows)
        row = rows.pop(node)
        if not rows:
            del self._of_class[name]
        self._values[row] = 0.0
        self._fading[row] = 0.0
        self._free.append(row)
        return ClassShift(name, share)

    def block(self, names: list[ClassName], width: int) -> tuple[Matrix, Matrix]:
        """Values, classes × width × columns, and the remaining weight of each node; 0 where there is none."""
        index = np.zeros((len(names), width), dtype=np.intp)
        present = np.zeros((len(names), width))
        for i, name in enumerate(names):
            rows = self.rows(name)
            index[i, : len(rows)] = rows
            present[i, : len(rows)] = 1.0
        return self._values[index], self._fading[index] * present


def _values(cost: ClassCost, resources: tuple[str, ...]) -> list[float]:
    at = positions(resources)
    values = [float(cost.pods), cost.weight, cost.ramp]
    for figure in (cost.mean, cost.variance, cost.high, cost.use_high):
        values += [math.nan if i is None else figure[i] for i in at]
    return values


def _change(old: list[float], new: list[float]) -> float:
    """The largest change of a value as a share of what it was."""
    most = COUNTS * max(abs(new[PODS] - old[PODS]) / max(old[PODS], 1.0), abs(new[WEIGHT] - old[WEIGHT]) / old[WEIGHT])
    for i in LEVELS:
        before, now = old[i], new[i]
        if now != before and abs(now - before) > most * before:
            most = abs(now - before) / before if before > 0 else math.inf
    for mean, variance in SPREADS:
        now, before = new[variance], old[variance]
        if now != before and old[mean] > 0:
            most = max(most, abs(math.sqrt(now) - math.sqrt(before)) / old[mean])
    return most


@lru_cache(maxsize=256)
def positions(resources: tuple[str, ...]) -> tuple[int | None, ...]:
    """The positions of the columns' resources in a message."""
    return tuple(resources.index(name) if name in resources else None for name in RESOURCES)
