"""An oracle: knows what every pod may still demand, and packs each node exactly full. The most room goes first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import MAX_SCORE, Cycle, Reuse, Score, Supply, Verdict
from carico.scheduler.framework.needs import Need, Needs
from carico.sim.policies.contract import PolicyView, arguments, profile
from carico.sim.scheduler import PolicyPlugins
from carico.sim.workload import RESOURCES
from carico.types import Vector


@dataclass(frozen=True)
class OracleArgs:
    threads_per_core: float = 1.0  # busy threads at which a core is full
    memory: float = 0.99  # share of the memory that is full


def policy(view: PolicyView, args: Mapping[str, Any]) -> PolicyPlugins:
    settings = arguments(OracleArgs, args)
    factories = {"TrueRoom": lambda tools: TrueRoom(tools.snapshot, view, settings)}
    return PolicyPlugins(profile("TrueRoom"), factories, pods_per_second=700.0, retry_every=5.0)


class TrueRoom(Supply, Score):
    name = "TrueRoom"
    reuse = Reuse.NEVER
    supply = "truth"
    interests: tuple[EventInterest, ...] = ()

    def __init__(self, snapshot: Snapshot, view: PolicyView, args: OracleArgs) -> None:
        self._snapshot, self._view, self._args = snapshot, view, args
        self._known: dict[str, tuple[float, Vector]] = {}  # node to s, and what is left then

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        rows = cycle.snapshot.all_rows() if rows is None else rows
        peak = self._view.sim_pod(cycle.pod.uid).peak
        lacking = (self._left(rows) < peak).any(axis=1)
        return Verdict.refuse(np.asarray(lacking), "node(s) had too little room")

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        left = self._left(rows) - self._view.sim_pod(cycle.pod.uid).peak
        sizes = np.array([self._size(self._snapshot.name(int(row))) for row in rows])
        return MAX_SCORE * np.asarray(np.clip((left / sizes).min(axis=1), 0.0, 1.0))

    def needs(self, cycle: Cycle) -> Needs:
        peak = self._view.sim_pod(cycle.pod.uid).peak
        return tuple(Need(self.supply, name, amount, amount) for name, amount in zip(RESOURCES, peak, strict=True))

    def available(self, resource: str, row: int) -> float:
        if row >= len(self._snapshot) or self._snapshot.nodes[row] is None:
            return -math.inf
        return float(self._left_of(self._snapshot.name(row))[RESOURCES.index(resource)])

    def _left(self, rows: RowArray) -> Vector:
        """Threads and bytes."""
        names = [self._snapshot.name(int(row)) for row in rows]
        return np.array([self._left_of(name) for name in names]).reshape(len(rows), len(RESOURCES))

    def _left_of(self, node: str) -> Vector:
        now = self._view.timeline.monotonic()
        known = self._known.get(node)
        if known is None or known[0] != now:
            left = self._size(node) - self._view.true_need(node) if node else np.full(len(RESOURCES), -math.inf)
            known = self._known[node] = (now, left)
        return known[1]

    def _size(self, node: str) -> Vector:
        cores, memory = self._view.true_size(node)
        return np.array((cores * self._args.threads_per_core, memory * self._args.memory))
