"""How many pods of one charge fit on each node, over all rows at once.

On a node that reports room it is the minimum over the resources of what is left / what the pod costs; on a node of an
older agent, and for a pod with the units annotation, the free pods of Pod-Capacity. Filter, score and commit of one
cycle need the same rows of the same ledger: the result is cached until a column changes.
"""

from __future__ import annotations

import numpy as np

from carico.scheduler.cache.charge import Charge, Sum
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.rows import RowArray
from carico.types import Matrix, Vector

FEW = 4  # a column is computed whole if more than 1/FEW of its rows are wanted
MOST = 1e6  # pods: the result where nothing limits them


class Fits:
    """`pending`: use the older rule of release, for comparison."""

    def __init__(self, ledger: Ledger, *, pending: bool) -> None:
        self._ledger, self._pending = ledger, pending
        self._kept: Vector = np.zeros(0)
        self._kept_for: tuple[Charge | None, int] = (None, -1)
        self._buffers: Matrix = np.zeros((2, 0))  # reused: allocating an array costs as much as the arithmetic

    def columns(self) -> tuple[Vector, Matrix]:
        """Free pods, and what is left of each resource."""
        ledger = self._ledger
        return (ledger.free_pending, ledger.left_pending) if self._pending else (ledger.free, ledger.left)

    def everywhere(self, charge: Charge) -> Vector:
        """Read-only, and valid only until the next call; may exceed MOST where nothing limits the pod."""
        if not self._is_kept(charge):
            self._kept = self._compute(charge)
            self._kept_for = (charge, self._ledger.version)
        return self._kept

    def at(self, rows: RowArray, charge: Charge) -> Vector:
        """The same on some rows, as a new array."""
        if self._is_kept(charge) or len(rows) * FEW > len(self._ledger.free):
            return self.everywhere(charge).take(rows)
        free, left = self.columns()
        if charge.cost is None:
            return free.take(rows)
        fits = np.where(self._ledger.has_room.take(rows), MOST, free.take(rows))
        for number in charge.numbers:
            np.minimum(fits, left[number].take(rows) / charge.cost[number], out=fits)
        return fits

    def supposing(self, row: int, charge: Charge, change: Sum) -> float:
        """The same on one row, with `change` hypothetically taken in addition."""
        left, free = self._ledger.supposing(row, change, pending=self._pending)
        if charge.cost is None or not self._ledger.has_room[row]:
            return free
        return min([float(left[number]) / charge.cost[number] for number in charge.numbers], default=MOST)

    def _is_kept(self, charge: Charge) -> bool:
        return self._kept_for[0] is charge and self._kept_for[1] == self._ledger.version

    def _compute(self, charge: Charge) -> Vector:
        ledger = self._ledger
        free, left = self.columns()
        if charge.cost is None or not ledger.nodes_with_room:
            return free
        length = ledger.length
        if self._buffers.shape[1] < length:
            self._buffers = np.zeros((2, len(free)))
        fits: Vector = self._buffers[0, :length]
        scaled: Vector = self._buffers[1, :length]
        if not charge.numbers:
            fits.fill(MOST)
        for i, number in enumerate(charge.numbers):
            np.multiply(left[number, :length], 1.0 / charge.cost[number], out=scaled if i else fits)
            if i:
                np.minimum(fits, scaled, out=fits)
        if not ledger.all_have_room:
            np.copyto(fits, free[:length], where=~ledger.has_room[:length])
        return fits
