"""kube-scheduler with LoadAwareScheduling of Koordinator: filters and scores by usage that is reported every minute.

Nodes above 65 % cpu or 95 % memory are filtered out. Pods that were bound after a node's newest NodeMetric count by
their estimate: 85 % of the cpu and 70 % of the memory request, or 250m and 200 MiB without one.
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
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import MAX_SCORE, OK, Cycle, Filter, Reserve, Reuse, Score, Status, Verdict
from carico.sim.policies.contract import PolicyView, arguments, profile
from carico.sim.scheduler import PolicyPlugins
from carico.types import Vector

CPU_SHARE, MEMORY_SHARE = 0.85, 0.70  # of the request
CPU_DEFAULT, MEMORY_DEFAULT = 0.25, 200.0 * 1024 * 1024  # cores, bytes


@dataclass(frozen=True)
class KoordinatorArgs:
    cpu_threshold: float = 65.0  # %
    memory_threshold: float = 95.0  # %
    report_every: float = 60.0  # s
    window: float = 300.0  # s, over which a NodeMetric averages


def policy(view: PolicyView, args: Mapping[str, Any]) -> PolicyPlugins:
    settings = arguments(KoordinatorArgs, args)
    factories = {"LoadAware": lambda tools: LoadAware(tools.snapshot, view, settings)}
    return PolicyPlugins(profile("LoadAware"), factories, retry_every=settings.report_every)


class LoadAware(Filter, Score, Reserve):
    name = "LoadAware"
    reuse = Reuse.NEVER
    interests = (EventInterest("Pod", Action.DELETE),)

    def __init__(self, snapshot: Snapshot, view: PolicyView, args: KoordinatorArgs) -> None:
        self._snapshot, self._view, self._args = snapshot, view, args
        self._recent: dict[str, list[tuple[float, str, Vector]]] = {}  # node to s, pod, estimate

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        rows = cycle.snapshot.all_rows() if rows is None else rows
        most = np.array((self._args.cpu_threshold, self._args.memory_threshold)) / 100.0
        over = [bool((self._measured(self._snapshot.name(int(row))) > most).any()) for row in rows]
        return Verdict.refuse(np.array(over, dtype=np.bool_), "node(s) usage exceeded the threshold")

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        wanted = self._estimate(cycle.pod)
        used = np.array([self._used(self._snapshot.name(int(row)), wanted) for row in rows])
        return MAX_SCORE * np.asarray((1.0 - np.minimum(used, 1.0)).mean(axis=1))

    def _read_at(self) -> float:
        return self._view.timeline.monotonic() // self._args.report_every * self._args.report_every

    def _measured(self, node: str) -> Vector:
        return np.array(self._view.usage(node, self._args.window, self._read_at()) or (0.0, 0.0))

    def _used(self, node: str, wanted: Vector) -> Vector:
        unseen = [one for one in self._recent.get(node, ()) if one[0] > self._read_at() - self._args.report_every]
        self._recent[node] = unseen
        estimated: Vector = np.sum([wanted, *(estimate for _, _, estimate in unseen)], axis=0)
        used: Vector = self._measured(node) + estimated / np.array(self._view.true_size(node))
        return used

    def _estimate(self, pod: PodInfo) -> Vector:
        """Cores and bytes."""
        cpu, memory = pod.requests.get(requests.CPU, 0) / 1000.0, float(pod.requests.get(requests.MEMORY, 0))
        return np.array((CPU_SHARE * cpu or CPU_DEFAULT, MEMORY_SHARE * memory or MEMORY_DEFAULT))

    def reserve(self, cycle: Cycle, node: str) -> Status:
        entry = (self._view.timeline.monotonic(), cycle.pod.uid, self._estimate(cycle.pod))
        self._recent.setdefault(node, []).append(entry)
        return OK

    def unreserve(self, cycle: Cycle, node: str) -> None:
        self._recent[node] = [one for one in self._recent.get(node, ()) if one[1] != cycle.pod.uid]
