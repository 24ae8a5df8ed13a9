"""A HorizontalPodAutoscaler on cpu: every 15 s, replicas × usage ÷ target, unless within 10 % of the target."""

from __future__ import annotations

import math
from collections.abc import Callable

from carico.sim.controllers.contract import ClusterForControllers
from carico.sim.scenario import ScenarioWorkload

EVERY = 15.0  # s, as the HPA controller's --horizontal-pod-autoscaler-sync-period
TOLERANCE = 0.1


class Autoscaler:
    def __init__(
        self,
        cluster: ClusterForControllers,
        workload: ScenarioWorkload,
        scale: Callable[[int], None],
        pods: Callable[[], tuple[str, ...]],
    ) -> None:
        assert workload.autoscale is not None
        self._cluster, self._rule, self._request = cluster, workload.autoscale, workload.pod.requests.cpu
        self._scale, self._pods = scale, pods

    def start(self) -> None:
        timeline = self._cluster.timeline
        timeline.at(timeline.monotonic() + EVERY, self._look)

    def _look(self) -> None:
        self.start()
        pods = self._pods()
        usage = [used for uid in pods if (used := self._cluster.cpu_usage(uid)) is not None]
        if not usage:
            return
        ratio = sum(usage) / len(usage) / self._request / self._rule.target
        if abs(ratio - 1.0) > TOLERANCE:
            wanted = math.ceil(len(pods) * ratio)
            self._scale(min(self._rule.most, max(self._rule.least, wanted)))
