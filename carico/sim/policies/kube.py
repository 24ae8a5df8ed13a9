"""kube-scheduler's scoring by requests, and no scoring at all.

LeastAllocated and NodeResourcesBalancedAllocation are computed as in kube-scheduler, a pod without requests counting
as 100m of cpu and 200 MB of memory in scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from carico.scheduler.cache import requests
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import MAX_SCORE, Cycle, Score
from carico.sim.policies.contract import PolicyView, profile
from carico.sim.scheduler import PolicyPlugins
from carico.types import Vector

DEFAULTS = {requests.CPU: 100.0, requests.MEMORY: 200.0 * 1024 * 1024}  # of pods without a request, in scores
COLUMNS = tuple(DEFAULTS)


def least_allocated(view: PolicyView, args: Mapping[str, Any]) -> PolicyPlugins:  # noqa: ARG001
    factories = {
        "LeastAllocated": lambda tools: LeastAllocated(ScoredRequests(tools.snapshot)),
        "BalancedAllocation": lambda tools: BalancedAllocation(ScoredRequests(tools.snapshot)),
    }
    return PolicyPlugins(profile("LeastAllocated", "BalancedAllocation"), factories)


def any_node(view: PolicyView, args: Mapping[str, Any]) -> PolicyPlugins:  # noqa: ARG001
    return PolicyPlugins(profile())


class ScoredRequests:
    """Requests of the pods on each row, with the defaults of scores; brought up to date by the snapshot's journal."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._sums = np.zeros((0, len(COLUMNS)))
        self._mark = 0

    def with_pod(self, pod: PodInfo, rows: RowArray) -> Vector:
        """Shares of allocatable that would be requested, per row and resource; above 1 as 1."""
        self._refresh()
        whole = np.stack([self._snapshot.allocatable(name)[rows] for name in COLUMNS], axis=1).astype(np.float64)
        shares: Vector = (self._sums[rows] + amounts(pod)) / np.maximum(whole, 1.0)
        return np.minimum(shares, 1.0)

    def _refresh(self) -> None:
        journal, length = self._snapshot.pod_changes, len(self._snapshot)
        changed = journal.since(self._mark)
        self._mark = journal.mark
        if len(self._sums) < length:
            self._sums = np.concatenate([self._sums, np.zeros((length - len(self._sums), len(COLUMNS)))])
        for row in range(length) if changed is None else set(changed.tolist()):
            if row < length:
                self._sums[row] = sum((amounts(pod) for pod in self._snapshot.on[row].values()), np.zeros(len(COLUMNS)))


def amounts(pod: PodInfo) -> Vector:
    return np.array([pod.requests.get(name) or default for name, default in DEFAULTS.items()], dtype=np.float64)


class LeastAllocated(Score):
    name = "LeastAllocated"
    interests: tuple[EventInterest, ...] = ()

    def __init__(self, requested: ScoredRequests) -> None:
        self._requested = requested

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        shares = self._requested.with_pod(cycle.pod, rows)
        return MAX_SCORE * np.asarray((1.0 - shares).mean(axis=1))


class BalancedAllocation(Score):
    name = "BalancedAllocation"
    interests: tuple[EventInterest, ...] = ()

    def __init__(self, requested: ScoredRequests) -> None:
        self._requested = requested

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        shares = self._requested.with_pod(cycle.pod, rows)
        return MAX_SCORE * np.asarray(1.0 - shares.std(axis=1))
