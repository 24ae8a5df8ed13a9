"""kube-scheduler with TargetLoadPacking of Trimaran (scheduler-plugins), which packs nodes up to a target cpu usage.

Metrics are the means of the load watcher: over 15 minutes, refreshed every minute. Pods that were bound after the
newest metrics count with their limit, else 1.5 times their request, else one core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from carico.scheduler.cache import requests
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import OK, Cycle, Reserve, Score, Status
from carico.sim.policies.contract import PolicyView, arguments, profile
from carico.sim.scheduler import PolicyPlugins
from carico.types import Vector

WEIGHT = 10.0


@dataclass(frozen=True)
class TrimaranArgs:
    target: float = 40.0  # % of cpu
    window: float = 900.0  # s
    refresh: float = 60.0  # s
    multiplier: float = 1.5  # of requests
    default_cores: float = 1.0  # of pods without requests


def policy(view: PolicyView, args: Mapping[str, Any]) -> PolicyPlugins:
    settings = arguments(TrimaranArgs, args)
    factories = {"TargetLoadPacking": lambda tools: TargetLoadPacking(tools.snapshot, view, settings)}
    return PolicyPlugins(profile("TargetLoadPacking", weights={"TargetLoadPacking": WEIGHT}), factories)


class TargetLoadPacking(Score, Reserve):
    name = "TargetLoadPacking"
    interests: tuple[EventInterest, ...] = ()

    def __init__(self, snapshot: Snapshot, view: PolicyView, args: TrimaranArgs) -> None:
        self._snapshot, self._view, self._args = snapshot, view, args
        self._recent: dict[str, list[tuple[float, str, float]]] = {}  # node to s, pod, cores

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        read_at = self._view.timeline.monotonic() // self._args.refresh * self._args.refresh
        wanted = self._predicted(cycle.pod)
        return np.array([self._score(self._snapshot.name(int(row)), wanted, read_at) for row in rows])

    def _score(self, node: str, wanted: float, read_at: float) -> float:
        measured = self._view.usage(node, self._args.window, read_at)
        if measured is None:
            return 0.0
        cores, _ = self._view.true_size(node)
        unseen = [one for one in self._recent.get(node, ()) if one[0] > read_at - self._args.refresh]
        self._recent[node] = unseen
        usage = 100.0 * (measured[0] + (wanted + sum(cpu for _, _, cpu in unseen)) / cores)
        target = self._args.target
        if usage <= target:
            return (100.0 - target) * usage / target + target
        return target * (100.0 - usage) / (100.0 - target) if usage <= 100.0 else 0.0

    def _predicted(self, pod: PodInfo) -> float:
        """Cores."""
        limit = self._view.sim_pod(pod.uid).cpu_limit
        if np.isfinite(limit):
            return limit
        requested = pod.requests.get(requests.CPU, 0) / 1000.0
        return requested * self._args.multiplier if requested else self._args.default_cores

    def reserve(self, cycle: Cycle, node: str) -> Status:
        entry = (self._view.timeline.monotonic(), cycle.pod.uid, self._predicted(cycle.pod))
        self._recent.setdefault(node, []).append(entry)
        return OK

    def unreserve(self, cycle: Cycle, node: str) -> None:
        self._recent[node] = [one for one in self._recent.get(node, ()) if one[1] != cycle.pod.uid]
