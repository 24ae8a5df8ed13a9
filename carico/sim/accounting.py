"""The counters of a simulated machine's pods, in the form that the agent's meter reads."""

from __future__ import annotations

import math
from collections.abc import Collection

from carico.sim.kubelet import SimKubelet
from carico.sim.machine import Machine
from carico.sim.timeline import Timeline
from carico.types import PodCounters

READ_SECONDS = 30e-6  # to read the files of one pod


class MachineStats:
    """A `carico.runtime.meter.PodStats`."""

    name = "the simulated machine"

    def __init__(self, timeline: Timeline, machine: Machine, kubelet: SimKubelet) -> None:
        self._timeline, self._machine, self._kubelet = timeline, machine, kubelet
        self._spent = 0.0

    def timer(self) -> float:
        """s spent on reading so far: the clock of the meter's budget."""
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
        """Does nothing: there is no state per pod."""
