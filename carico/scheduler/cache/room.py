"""What nodes have left, in arrays: one column per figure, one row per node.

Current agents report the room of each resource. Older agents report Pod-Capacity alone: their amounts are stored as
infinite, so that the same comparison works for both. `free` is the summary in pods for all of them: where a node
reports room, in units of its mean recent pod.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from carico.columns import grown
from carico.scheduler.cache.charge import RESOURCES, Sum, in_order
from carico.scheduler.cache.rows import Mask
from carico.types import Matrix, Mode, NodeReport, Vector

PODS = (
    "pod_capacity",
    "reserved",
    "free",
    "free_pending",
    "usage",
    "starting",
    "unmeasured",
    "counted_pods",
    "churn",
)
REPORTED = ("room", "mean")  # rows × resources: only single rows are used, at every event
LEFT = ("left", "left_pending")  # resources × rows: whole columns are used, in every scheduling cycle


class RoomColumns:
    """`left` and `free` follow the hand-over rule; `left_pending` and `free_pending` the older one."""

    def __init__(self) -> None:
        self.pod_capacity: Vector = np.zeros(0)  # pods: Pod-Capacity
        self.reserved: Vector = np.zeros(0)
        self.free: Vector = np.zeros(0)
        self.free_pending: Vector = np.zeros(0)
        self.usage: Vector = np.zeros(0)  # of the fullest resource
        # Pods that were reserved or bound recently and are still Pending.
        self.starting: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.unmeasured: NDArray[np.int32] = np.zeros(0, dtype=np.int32)  # pods whose cost is a guess (probes.py)
        self.counted_pods: Vector = np.zeros(0)  # workload pods of the last report
        self.churn: Mask = np.zeros(0, dtype=np.bool_)  # Pod-Capacity is by baseline and cost (types.Mode)
        self.has_room: Mask = np.zeros(0, dtype=np.bool_)  # the last report has room per resource
        self.nodes_with_room = 0
        self.version = 0  # incremented when a column changes, so that results over all rows can be cached
        # Absolute amounts.
        self.room: Matrix = np.zeros((0, len(RESOURCES)))  # by the last report; infinite where it has none
        self.mean: Matrix = np.zeros((0, len(RESOURCES)))  # cost of the node's mean recent pod; 0: not known
        self.left: Matrix = np.zeros((len(RESOURCES), 0))  # room − reserved
        self.left_pending: Matrix = np.zeros((len(RESOURCES), 0))

    def fit(self, length: int) -> bool:
        """Lengthens the columns; False if they were long enough."""
        if len(self.free) >= length:
            return False
        for name in PODS:
            setattr(self, name, grown(getattr(self, name), length))
        for name in REPORTED:
            setattr(self, name, grown(getattr(self, name), length, 0.0 if name == "mean" else np.inf))
        for name in LEFT:
            setattr(self, name, grown(getattr(self, name), length, np.inf, axis=1))
        self.has_room = grown(self.has_room, length, False)
        self.version += 1
        return True

    def clear(self, row: int) -> None:
        for name in PODS:
            getattr(self, name)[row] = 0
        self._clear_room(row)
        self._set_has_room(row, False)
        self.version += 1

    def _clear_room(self, row: int) -> None:
        self.room[row], self.mean[row] = np.inf, 0.0
        self.left[:, row] = self.left_pending[:, row] = np.inf

    def _set_has_room(self, row: int, has_room: bool) -> None:
        self.nodes_with_room += has_room - bool(self.has_room[row])
        self.has_room[row] = has_room

    def take_report(self, row: int, report: NodeReport) -> None:
        estimate = report.estimate
        has_room = bool(estimate.room)
        self.pod_capacity[row] = estimate.pod_capacity
        self.usage[row] = max(estimate.usage, default=0.0)
        self.counted_pods[row], self.churn[row] = estimate.pods, estimate.mode is Mode.CHURN
        if has_room:
            self.room[row] = in_order(report.dimensions, estimate.room, missing=np.inf)
            self.mean[row] = mean_cost(report)
        elif self.has_room[row]:
            self._clear_room(row)
        self._set_has_room(row, has_room)

    def balance(self, row: int, reserved: Sum, pending: Sum) -> None:
        """Recomputes what is left: the node's report minus these sums."""
        self.version += 1
        capacity = float(self.pod_capacity[row])
        if not self.has_room[row]:  # its amounts stay infinite
            self.reserved[row] = reserved.units
            self.free[row] = capacity - reserved.units
            self.free_pending[row] = capacity - pending.units
            return
        left, free = self.after(row, reserved)
        self.left[:, row], self.free[row], self.reserved[row] = left, free, capacity - free
        if pending != reserved:
            left, free = self.after(row, pending)
        self.left_pending[:, row], self.free_pending[row] = left, free

    def after(self, row: int, taken: Sum) -> tuple[list[float], float]:
        """Amounts and pods that the node would have left."""
        return self._less(row, self.room[row].tolist(), float(self.pod_capacity[row]), taken)

    def amounts(self, row: int) -> Vector:
        """All amounts that a pod may need: pods, pods where no room is reported, and the resources."""
        free = self.free[row]
        return np.concatenate(([free, np.inf if self.has_room[row] else free], self.left[:, row]))

    def supposing(self, row: int, change: Sum, *, pending: bool) -> tuple[list[float], float]:
        """Amounts and pods left, with `change` hypothetically taken in addition; negative: released."""
        left, free = (self.left_pending, self.free_pending) if pending else (self.left, self.free)
        return self._less(row, left[:, row].tolist(), float(free[row]), change)

    def _less(self, row: int, amounts: list[float], pods: float, taken: Sum) -> tuple[list[float], float]:
        """Plain floats: a row has a handful of them, and every reservation calls this."""
        mean = self.mean[row].tolist()
        left = [have - cost for have, cost in zip(amounts, taken.amounts(mean), strict=True)]
        pods -= taken.units
        return left, _in_pods(left, mean, pods) if self.has_room[row] else pods


def _in_pods(left: list[float], mean: list[float], otherwise: float) -> float:
    """How many mean pods fit; `otherwise` where their cost is not known yet."""
    return min([amount / cost for amount, cost in zip(left, mean, strict=True) if cost > 0], default=otherwise)


def mean_cost(report: NodeReport) -> list[float]:
    """The absolute cost of the mean recent pod behind Pod-Capacity, scaled so that min(room / cost) is Pod-Capacity."""
    estimate = report.estimate
    if not estimate.room or not report.full:
        return [0.0] * len(RESOURCES)
    cost = in_order(report.dimensions, (c * f for c, f in zip(estimate.cost_ratio, report.full, strict=False)))
    room = in_order(report.dimensions, estimate.room, missing=np.inf)
    fits = _in_pods(room, cost, 0.0)
    if estimate.pod_capacity > 0 and 0 < fits < np.inf:
        scale = fits / estimate.pod_capacity
        return [amount * scale for amount in cost]
    return cost
