"""The last message of every node, one row each, in arrays that are summed in a few vector operations.

Columns are all dimensions that Carico knows, in one fixed order; a node that watches fewer leaves gaps, which `has`
marks. Everything is absolute, and squared sizes span twenty orders of magnitude: each entry is only ever added to and
divided by its own kind, never to another's, so float64 keeps its full precision in each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from carico.columns import grown
from carico.settings import DIMENSIONS
from carico.types import LocalModel, Matrix, Vector

COLUMN = {dimension: i for i, dimension in enumerate(DIMENSIONS)}
M = len(DIMENSIONS)
FIRST_ROWS = 64


class NodeTable:
    def __init__(self) -> None:
        self._row: dict[str, int] = {}
        self._names: list[str] = []
        for name, shape in _COLUMNS.items():
            setattr(self, name, np.zeros((FIRST_ROWS, *shape)))

    gram: Matrix  # rows × M·M
    has: Matrix  # rows × M, 1 where the node watches the dimension
    cost: Matrix  # rows × M
    cost_variance: Matrix  # rows × M
    has_cost: Matrix  # rows × M, 1 where the node knows the cost
    size: Matrix  # rows × M, absolute; 0 where the node does not watch the dimension
    pods: Vector
    seen: Vector  # s, monotonic: when its last message came

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, node: str) -> bool:
        return node in self._row

    @property
    def names(self) -> list[str]:
        """In the order of the rows."""
        return self._names

    def row(self, node: str) -> int:
        return self._row[node]

    def put(self, model: LocalModel, now: float) -> None:
        """Replaces the node's row, or adds one."""
        row = self._row.get(model.node)
        if row is None:
            row = self._row[model.node] = len(self._names)
            self._names.append(model.node)
            for name in _COLUMNS:
                setattr(self, name, grown(getattr(self, name), len(self._names)))
        self._fill(row, model)
        self.seen[row] = now

    def _fill(self, row: int, model: LocalModel) -> None:
        layout = _layout(model.dimensions)
        gram = absolute_gram(model)
        self.has[row] = layout.has
        self.gram[row] = 0.0
        self.gram[row, layout.entries] = gram.ravel() if layout.all_known else gram[layout.square].ravel()
        self.has_cost[row] = 0.0
        if model.cost is not None:
            self.has_cost[row] = layout.has
            self.cost[row, layout.columns] = [model.cost.mean[i] for i in layout.known]
            self.cost_variance[row, layout.columns] = [model.cost.variance[i] for i in layout.known]
        self.size[row] = 0.0
        self.size[row, layout.columns] = [model.size.of(model.dimensions[i]) for i in layout.known]
        self.pods[row] = model.pods

    def drop(self, node: str) -> None:
        """The last row replaces the removed one."""
        row, last = self._row.pop(node), len(self._names) - 1
        moved = self._names.pop()
        if row != last:
            for name in _COLUMNS:
                getattr(self, name)[row] = getattr(self, name)[last]
            self._names[row] = moved
            self._row[moved] = row


_COLUMNS: dict[str, tuple[int, ...]] = {
    "gram": (M * M,),
    "has": (M,),
    "cost": (M,),
    "cost_variance": (M,),
    "has_cost": (M,),
    "size": (M,),
    "pods": (),
    "seen": (),
}


class _Layout(NamedTuple):
    """Where the dimensions of a message go."""

    known: list[int]  # positions in the message
    columns: list[int]  # and here
    entries: list[int]  # of a row of `gram`
    square: tuple[Any, ...]  # of the message's own Gram matrix
    has: Vector
    all_known: bool


@lru_cache(maxsize=256)
def _layout(dimensions: tuple[str, ...]) -> _Layout:
    """Cached: a cluster has a handful of them, and this is on the path of every message."""
    known = [i for i, dimension in enumerate(dimensions) if dimension in COLUMN]
    columns = [COLUMN[dimensions[i]] for i in known]
    has = np.zeros(M)
    has[columns] = 1.0
    entries = [M * i + j for i in columns for j in columns]
    return _Layout(known, columns, entries, np.ix_(known, known), has, len(known) == len(dimensions))


def absolute_gram(model: LocalModel) -> Matrix:
    """S·UΣ²Uᵀ·S with S = diag(node size)."""
    basis = model.basis * model.size.vector(model.dimensions)[:, None]
    gram: Matrix = basis @ basis.T
    return gram
