"""Pods that arrive at random times, on average `per_second`, each on its own."""

from __future__ import annotations

import numpy as np

from carico.errors import UsageError
from carico.sim.controllers.contract import ClusterForControllers
from carico.sim.scenario import ScenarioWorkload


class Arrivals:
    def __init__(self, cluster: ClusterForControllers, workload: ScenarioWorkload, rng: np.random.Generator) -> None:
        if workload.per_second is None:
            raise UsageError(f"workload {workload.name}: the controller `arrivals` needs per_second")
        self._cluster, self._workload, self._rng, self._rate = cluster, workload, rng, workload.per_second
        self._left = self._open = workload.pods

    @property
    def done(self) -> bool:
        return self._open == 0

    def start(self) -> None:
        timeline = self._cluster.timeline
        timeline.at(timeline.monotonic() + float(self._rng.exponential(1.0 / self._rate)), self._arrive)

    def _arrive(self) -> None:
        self._cluster.create(self._workload, self._ended)
        self._left -= 1
        if self._left:
            self.start()

    def _ended(self, uid: str, outcome: str) -> None:  # noqa: ARG002
        self._open -= 1
