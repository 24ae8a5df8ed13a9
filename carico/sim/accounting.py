"""A simulated machine's accounting of its pods, in the words of the agent's meter."""

from __future__ import annotations

import math
from collections.abc import Collection

from carico.sim.kubelet import Kubelet
from carico.sim.machine import Machine
from carico.sim.timeline import Timeline
from carico.types import PodCounters

READ_SECONDS = 30e-6  # that reading one pod's files takes


class MachineStats:
    """A `carico.runtime.meter.PodStats`."""

    name = "the simulated machine"

    def __init__(self, timeline: Timeline, machine: Machine, kubelet: Kubelet) -> None:
        self._timeline, self._machine, self._kubelet = timeline, machine, kubelet
        self._spent = 0.0

    def timer(self) -> float:
        """s that reading has taken so far: what the meter's budget is measured by."""
        return self._spent

    def read(self, uid: str, cgroup: str | None) -> tuple[float, PodCounters] | None:  # noqa: ARG002
        self._spent += READ_SECONDS
        placed = self._kubelet.pods.get(uid)
        if placed is None or not self._machine.has(uid):
            return None
        now, limit = self._timeline.monotonic(), placed.pod.cpu_limit
        counters = self._machine.counters(uid, now)
        return now, PodCounters(
            usage_seconds=counters.usage,
            some_seconds=counters.some,
            throttled_seconds=counters.throttled,
            memory_working_set=counters.memory,
            swap=0.0,
            memory_limit=None,
            cpu_limit_cores=None if math.isinf(limit) else limit,
        )

    def keep(self, uids: Collection[str]) -> None:
        """Nothing is kept here."""
