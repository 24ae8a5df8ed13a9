"""A Job with parallelism = completions: failed pods are created again, as often as `retries` allows."""

from __future__ import annotations

import numpy as np

from carico.sim.controllers.contract import ClusterForControllers
from carico.sim.kubelet import SUCCEEDED
from carico.sim.scenario import ScenarioWorkload

RETRY_AFTER = 10.0  # s, doubled at each failure by the Job controller; constant here


class Job:
    def __init__(self, cluster: ClusterForControllers, workload: ScenarioWorkload, rng: np.random.Generator) -> None:  # noqa: ARG002
        self._cluster, self._workload = cluster, workload
        self._started = False
        self._open = self._failures = 0

    @property
    def done(self) -> bool:
        return self._started and self._open == 0

    def start(self) -> None:
        self._started = True
        self._open = self._workload.pods
        for _ in range(self._workload.pods):
            self._create()

    def _create(self) -> None:
        self._cluster.create(self._workload, self._ended)

    def _ended(self, uid: str, outcome: str) -> None:  # noqa: ARG002
        if outcome == SUCCEEDED:
            self._open -= 1
            return
        self._failures += 1
        if self._failures > self._workload.retries * self._workload.pods:
            self._open -= 1
            return
        timeline = self._cluster.timeline
        timeline.at(timeline.monotonic() + RETRY_AFTER, self._create)
