"""What an agent learns of the classes of its pods, on a synthetic node: real class table, synthetic pods.

PODS pods of CLASSES classes; one of them ends and another starts, of any class, every GAP seconds on average, which on
5,000 nodes are 100 starts a second: what Kubernetes' own scheduler reaches on a cluster of that size. A pod's level
differs from its class's by UNLIKE; it is read from a second after its start with the errors of synthetic.py, every
second while it is young and in turn with the others later. All classes cost the same, so that nodes agree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from carico.estimate.classes import NodeClassTable
from carico.types import ClassCost, ClassKey, MeasuredPod
from harness.estimate.synthetic import READ_ERROR, READ_PER_SECOND, YOUNG_SECONDS

CLASSES, PODS = 30, 60
GAP = 50.0  # s
UNLIKE = 0.2  # standard deviation of a pod's level, as a share of its class's
COST = (0.4, 3e8)  # cores and bytes
MOST = (16.0, 2.0**35)


class _Pod(NamedTuple):
    uid: str
    key: ClassKey
    began: float  # s
    level: float  # share of its class's cost


class ClassNode:
    """Call `costs` once a second."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 11])
        self._table = NodeClassTable(("cpu", "memory"), COST, MOST)
        self._last: dict[str, tuple[float, ...]] = {}  # the last reading of a pod
        self._started = 0
        self._pods = [self._pod(i % CLASSES, -600.0) for i in range(PODS)]

    def _pod(self, number: int, at: float) -> _Pod:
        self._started += 1
        level = max(0.2, 1.0 + UNLIKE * self._rng.standard_normal())
        return _Pod(str(self._started), ClassKey("", f"{number}"), at, level)

    def costs(self, at: float) -> tuple[ClassCost, ...]:
        """What the node would report; the family of a class is its number."""
        if self._rng.random() < 1.0 / GAP:
            gone = self._pods.pop(int(self._rng.integers(PODS)))
            self._last.pop(gone.uid, None)
            self._pods.append(self._pod(int(self._rng.integers(CLASSES)), at))
        turns = -(-PODS // READ_PER_SECOND)
        pods = [self._measured(pod, at, in_turn=(i + int(at)) % turns == 0) for i, pod in enumerate(self._pods)]
        self._table.observe(pods, at)
        return self._table.costs()

    def _measured(self, pod: _Pod, at: float, *, in_turn: bool) -> MeasuredPod:
        age = at - pod.began
        fresh = age >= 1.0 and (age <= YOUNG_SECONDS or in_turn)
        if fresh:
            error = 1.0 + self._rng.standard_normal(2) * READ_ERROR
            self._last[pod.uid] = tuple((pod.level * np.array(COST) * error).tolist())
        read = self._last.get(pod.uid)
        return MeasuredPod(pod.uid, pod.key, age, True, read, read, True, fresh)
