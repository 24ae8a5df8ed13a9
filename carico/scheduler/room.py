"""What nodes have left, in arrays: one column per figure, one row per node.

A node of today's agents says how much room it has of each resource. One of an older agent says Pod-Capacity alone: it
has no amounts, which is written as infinitely much of each, so that the same comparison does for both. `free` is the
summary in pods for all of them: of the node's mean recent pod where it has room.
"""

from __future__ import annotations

import numpy as np

from carico.scheduler.charge import RESOURCES, Sum, vector
from carico.scheduler.rows import Mask, grown
from carico.types import Matrix, NodeReport, Vector

PODS = ("capacity", "reserved", "pending", "free", "free_pending", "usage", "starting")
AMOUNTS = ("room", "mean", "left", "left_pending")


class RoomColumns:
    """`left` and `free` go by the hand-over; `left_pending` and `free_pending` by the older rule."""

    def __init__(self) -> None:
        self.capacity: Vector = np.zeros(0)  # pods: Pod-Capacity
        self.reserved: Vector = np.zeros(0)
        self.pending: Vector = np.zeros(0)  # what would be reserved by the older rule
        self.free: Vector = np.zeros(0)
        self.free_pending: Vector = np.zeros(0)
        self.usage: Vector = np.zeros(0)  # of the fullest resource
        self.starting: Vector = np.zeros(0)  # pods that were promised or bound not long ago and are still Pending
        self.has_room: Mask = np.zeros(0, dtype=np.bool_)  # the last report says room per resource
        # Resources × rows, absolute.
        self.room: Matrix = np.zeros((len(RESOURCES), 0))  # by the last report; infinite where it says none
        self.mean: Matrix = np.zeros((len(RESOURCES), 0))  # what the node's mean recent pod costs; 0: not known
        self.left: Matrix = np.zeros((len(RESOURCES), 0))  # room − reserved
        self.left_pending: Matrix = np.zeros((len(RESOURCES), 0))

    def fit(self, length: int) -> bool:
        """Lengthens the columns; False where they were long enough."""
        if len(self.free) >= length:
            return False
        for name in PODS:
            setattr(self, name, grown(getattr(self, name), length))
        for name in AMOUNTS:
            wider = np.full((len(RESOURCES), len(self.free)), 0.0 if name == "mean" else np.inf)
            wider[:, : len(self.has_room)] = getattr(self, name)
            setattr(self, name, wider)
        self.has_room = grown(self.has_room, len(self.free), False)
        return True

    def clear(self, row: int) -> None:
        for name in PODS:
            getattr(self, name)[row] = 0.0
        for name in AMOUNTS:
            getattr(self, name)[:, row] = 0.0 if name == "mean" else np.inf
        self.has_room[row] = False

    def take_report(self, row: int, report: NodeReport) -> None:
        estimate = report.estimate
        self.capacity[row] = estimate.pod_capacity
        self.usage[row] = max(estimate.usage, default=0.0)
        self.has_room[row] = bool(estimate.room)
        self.room[:, row] = vector(report.dimensions, estimate.room, missing=np.inf)
        self.mean[:, row] = mean_cost(report)

    def balance(self, row: int, reserved: Sum, pending: Sum) -> None:
        """What is left after these have been taken from what the node said."""
        if not self.has_room[row]:  # its amounts are infinite, whatever is taken
            self.left[:, row] = self.left_pending[:, row] = np.inf
            self.reserved[row], self.pending[row] = reserved.units, pending.units
            self.free[row] = self.capacity[row] - reserved.units
            self.free_pending[row] = self.capacity[row] - pending.units
            return
        self.left[:, row], self.free[row] = self.after(row, reserved)
        self.left_pending[:, row], self.free_pending[row] = self.after(row, pending)
        self.reserved[row] = self.capacity[row] - self.free[row]
        self.pending[row] = self.capacity[row] - self.free_pending[row]

    def after(self, row: int, taken: Sum) -> tuple[Vector, float]:
        """Amounts and pods that the node would have left."""
        mean = self.mean[:, row]
        left = self.room[:, row] - taken.amounts(mean)
        if not self.has_room[row]:
            return left, float(self.capacity[row]) - taken.units
        return left, _in_pods(left, mean, float(self.capacity[row]) - taken.units)

    def amounts(self, row: int) -> Vector:
        """All that a pod may need: pods, pods where no room is reported, and the resources."""
        free = self.free[row]
        return np.concatenate(([free, np.inf if self.has_room[row] else free], self.left[:, row]))

    def supposing(self, row: int, change: Sum, *, pending: bool) -> tuple[Vector, float]:
        """Amounts and pods left, if so much were taken beside what is taken already; below 0: given back."""
        mean = self.mean[:, row]
        left = (self.left_pending if pending else self.left)[:, row] - change.amounts(mean)
        free = float((self.free_pending if pending else self.free)[row]) - change.units
        return left, _in_pods(left, mean, free) if self.has_room[row] else free


def _in_pods(left: Vector, mean: Vector, otherwise: float) -> float:
    """So many mean pods fit; `otherwise` where the node does not know yet what one costs."""
    known = mean > 0
    return float((left[known] / mean[known]).min()) if known.any() else otherwise


def mean_cost(report: NodeReport) -> Vector:
    """What the mean recent pod behind Pod-Capacity costs, absolute: such that min(room / cost) is Pod-Capacity."""
    estimate = report.estimate
    if not estimate.room or not report.full:
        return np.zeros(len(RESOURCES))
    cost = vector(report.dimensions, (c * f for c, f in zip(estimate.cost_ratio, report.full, strict=False)))
    room = vector(report.dimensions, estimate.room, missing=np.inf)
    if not (cost > 0).any():
        return cost
    fits = _in_pods(room, cost, 0.0)
    if estimate.pod_capacity > 0 and 0 < fits < np.inf:
        cost *= fits / estimate.pod_capacity
    return cost
