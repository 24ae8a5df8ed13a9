"""Measures pods: connects their cgroups, or the runtime's statistics, with the meter."""

from __future__ import annotations

import resource
from collections.abc import Collection, Sequence

from carico.clock import Clock
from carico.runtime import RuntimeSource
from carico.runtime.cri_stats import CriStats
from carico.runtime.meter import ACCOUNTED, NoStats, PodMeter, PodStats
from carico.settings import NodeSettings
from carico.telemetry.pod_cgroup import CgroupStats
from carico.telemetry.sampler import Sampler
from carico.types import MeasuredPod, PodCounters

FILES_PER_POD = 6  # that remain open
MOST_OPEN = 512  # pods with open files; others are opened at each reading


class PodMeasurement:
    """Measures the pods once a second, and passes the time that they were throttled to the sampler."""

    def __init__(self, settings: NodeSettings, sampler: Sampler, source: RuntimeSource, clock: Clock) -> None:
        self._sampler = sampler
        self._settings = settings
        self._clock = clock
        self._cri = CriStats(lambda: source.socket, clock)  # containerd serves CRI at its own socket
        budget = settings.measure_budget
        self._meter = PodMeter(
            source.table.workload,
            self._stats(),
            sampler.stretch,
            settings.dimensions,
            budget,
            cores=lambda: sampler.cores,
        )
        self.resources = tuple(name for name in settings.dimensions if name in ACCOUNTED)
        self.problem: str | None = None

    async def run(self) -> None:
        """Reads statistics from the runtime; sends no request where cgroups provide all of them."""
        await self._cri.run()

    def measure(self, now: float) -> Sequence[MeasuredPod] | None:
        """Call it once a second; None where there is no accounting of pods."""
        measured = self._meter.measure(now)
        self._sampler.throttled = self._meter.throttled
        self.problem = self._meter.problem(now)
        return measured if self.problem is None else None

    def present(self, now: float) -> Sequence[MeasuredPod] | None:
        """The current pods with their last readings, without reading."""
        return self._meter.present(now) if self.problem is None else None

    def _stats(self) -> PodStats:
        cgroups = CgroupStats(self._settings.cgroup_root, self._clock.monotonic, _most_open())
        match self._settings.pod_stats:
            case "cgroup":
                return cgroups
            case "cri":
                return self._cri
            case "none":
                return NoStats()
            case _:
                return FallbackStats(cgroups, self._cri)


class FallbackStats:
    """Two sources of statistics: the second is used for pods that the first does not have."""

    def __init__(self, first: PodStats, second: PodStats) -> None:
        self.name = f"{first.name} or {second.name}"
        self._first = first
        self._second = second

    def read(self, uid: str, cgroup: str | None) -> tuple[float, PodCounters] | None:
        return self._first.read(uid, cgroup) or self._second.read(uid, cgroup)

    def keep(self, uids: Collection[str]) -> None:
        self._first.keep(uids)
        self._second.keep(uids)


def _most_open() -> int:
    """Limits open files of pods to half of this process's RLIMIT_NOFILE."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MOST_OPEN, soft // 2 // FILES_PER_POD) if soft > 0 else MOST_OPEN
