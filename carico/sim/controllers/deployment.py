"""A Deployment: a number of pods that are replaced when they end. `scale` changes the number at given times."""

from __future__ import annotations

import numpy as np

from carico.errors import UsageError
from carico.sim.controllers.autoscaler import Autoscaler
from carico.sim.controllers.contract import ClusterForControllers
from carico.sim.scenario import ScenarioWorkload


class Deployment:
    def __init__(self, cluster: ClusterForControllers, workload: ScenarioWorkload, rng: np.random.Generator) -> None:  # noqa: ARG002
        self._cluster, self._workload = cluster, workload
        if workload.autoscale is not None and workload.pod.requests.cpu <= 0:
            raise UsageError(f"workload {workload.name}: autoscale needs requests.cpu, of which target is a share")
        self._pods: list[str] = []  # the oldest first
        self._replicas = 0

    @property
    def done(self) -> bool:
        return True  # it never ends by itself

    def start(self) -> None:
        timeline = self._cluster.timeline
        began = timeline.monotonic()
        self.scale(self._workload.pods)
        for change in self._workload.scale:
            timeline.at(began + change.at, lambda replicas=change.replicas: self.scale(replicas))  # type: ignore[misc]
        if self._workload.autoscale is not None:
            Autoscaler(self._cluster, self._workload, self.scale, lambda: tuple(self._pods)).start()

    def scale(self, replicas: int) -> None:
        self._replicas = replicas
        while len(self._pods) < replicas:
            self._pods.append(self._cluster.create(self._workload, self._ended))
        while len(self._pods) > replicas:
            self._cluster.delete(self._pods.pop())  # the youngest, as the ReplicaSet controller does

    def _ended(self, uid: str, outcome: str) -> None:  # noqa: ARG002
        if uid in self._pods:
            self._pods.remove(uid)
            self.scale(self._replicas)
