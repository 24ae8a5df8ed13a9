"""Reads all sources once per tick into the Sample for the estimation.

If a source cannot be read, its dimension keeps the last value (0 before the first one) and `sources` has the reason. If
a counter decreased, the whole sample is missed, because its interval differs from that of the others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from carico.errors import SourceError, UsageError
from carico.settings import TelemetrySettings
from carico.telemetry import combine
from carico.telemetry.diskstats import Disk
from carico.telemetry.limits import Limit, LimitedCpu, LimitedMemory, cpu_quota, find_limits, memory_limit
from carico.telemetry.meminfo import MemorySource
from carico.telemetry.netdev import Network
from carico.telemetry.pressure import Pressure
from carico.telemetry.source import GuardedSource, TelemetrySource
from carico.telemetry.stat import CpuStat, parse_running, queue, queue_in
from carico.types import NodeSize, Sample

UTILISATION, PRESSURE, MEMORY = "util", "psi", "mem"  # raw names; other dimensions have one source of the same name
QUEUE_RECENT = 0.1  # weight of a new sample in the run queue, an instantaneous count: a memory of ten samples


Fetched = dict[str, Any]


class Sampler:
    """Reads the kernel. `raw` has the last values of the sources, with utilisation and pressure separate."""

    def __init__(self, settings: TelemetrySettings) -> None:
        _check(settings.dimensions)
        self.dimensions = settings.dimensions
        self._form = settings.cpu
        self._processors = CpuStat(settings.proc_root)
        self._memory = MemorySource(settings.proc_root, settings.memory)
        self._size = NodeSize(
            cores=os.cpu_count() or 1, memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        )
        self._measure()
        self._cpu_limits, self._memory_limits = self._find_limits(settings)
        self._watches = {raw: GuardedSource(source) for raw, source in self._sources(settings).items()}
        self._raw = dict.fromkeys(self._watches, 0.0)
        self._runnable, self._counts = 0, 0  # runnable tasks, summed since the last call of `stretch`; samples
        self._queue = 0.0  # in the unit of pressure, smoothed
        self.throttled = 0.0  # share of time that pods are throttled by cpu limits; set by the meter of pods

    def read(self, now: float) -> Sample | None:
        """The sample that ends at `now` (s, monotonic); None at the first call and if a sample was missed."""
        return self.sample(self.fetch(), now)

    def fetch(self) -> Fetched:
        """Reads the kernel now, by raw name: for `sample`, immediately or later."""
        return {raw: watch.fetch() for raw, watch in self._watches.items()}

    def sample(self, fetched: Fetched, now: float) -> Sample | None:
        """Like `read`, from what was fetched at `now`. Call it in the order of the fetches."""
        missed, fresh = False, False
        for raw, watch in self._watches.items():
            value = watch.usage(fetched[raw], now)
            if value is not None:
                self._raw[raw] = value
                fresh = True
            elif watch.problem is None:
                missed = True
            elif raw == PRESSURE:
                self._queue_for_pressure(fetched[UTILISATION])
        self._count_runnable(fetched.get(UTILISATION))
        return None if missed or not fresh else Sample(now, tuple(map(self._value, self.dimensions)))

    def stretch(self) -> float:
        """Runnable tasks per processor, mean since the last call, at least 1: the factor by which tasks take longer."""
        runnable, counts = self._runnable, self._counts
        self._runnable = self._counts = 0
        return max(1.0, runnable / counts / self._size.cores) if counts else 1.0

    @property
    def cores(self) -> float:
        """Processors of the machine, as of the last call of `size`."""
        return self._size.cores

    @property
    def raw(self) -> Mapping[str, float]:
        return self._raw

    def sources(self) -> dict[str, str | None]:
        """Per source: None, or the problem with it."""
        return {watch.name: watch.problem for watch in self._watches.values()}

    def size(self) -> NodeSize:
        """The amounts that ratios refer to; it changes when processors are added or removed."""
        self._measure()
        cores = min([self._size.cores, *(limit.amount for limit in self._cpu_limits)])
        memory = min([self._size.memory_bytes, *(limit.amount for limit in self._memory_limits)])
        return NodeSize(cores=cores, memory_bytes=memory)

    def _measure(self) -> None:
        """Reads the size. If it cannot be read it does not change; the watches report the problem."""
        with suppress(SourceError):
            self._size = replace(self._size, cores=self._processors.count())
        with suppress(SourceError):
            self._size = replace(self._size, memory_bytes=self._memory.size())

    def _value(self, dimension: str) -> float:
        if dimension == "cpu":
            pressure = combine.without_throttled(self._raw[PRESSURE], self.throttled, self._queue)
            return combine.cpu(self._raw[UTILISATION], pressure, self._form)
        return self._raw[MEMORY if dimension == "memory" else dimension]

    def _count_runnable(self, stat: object) -> None:
        if isinstance(stat, bytes):
            with suppress(SourceError):
                running = parse_running(stat)
                self._runnable += max(0, running - 1)  # without this process, which runs while it reads
                self._counts += 1
                self._queue += QUEUE_RECENT * (queue(running, int(self._size.cores)) - self._queue)

    def _queue_for_pressure(self, stat: object) -> None:
        if isinstance(stat, bytes):  # otherwise there are limits and no run queue, or utilisation cannot be read either
            with suppress(SourceError):
                self._raw[PRESSURE] = queue_in(stat)

    def _find_limits(self, settings: TelemetrySettings) -> tuple[tuple[Limit, ...], tuple[Limit, ...]]:
        if not settings.own_limits:
            return (), ()
        where = (settings.proc_root, settings.cgroup_root)
        return (
            find_limits(*where, "cpu", cpu_quota, self._size.cores),
            find_limits(*where, "memory", memory_limit, self._size.memory_bytes),
        )

    def _sources(self, settings: TelemetrySettings) -> dict[str, TelemetrySource]:
        sources: dict[str, TelemetrySource] = {}
        for dimension in settings.dimensions:
            sources |= self._sources_of(dimension, settings)
        return sources

    def _sources_of(self, dimension: str, settings: TelemetrySettings) -> dict[str, TelemetrySource]:
        proc = settings.proc_root
        match dimension:
            case "cpu" if self._cpu_limits:
                limits = self._cpu_limits
                return {UTILISATION: LimitedCpu(limits, "cpu"), PRESSURE: LimitedCpu(limits, "throttled")}
            case "cpu":
                return {UTILISATION: self._processors, PRESSURE: Pressure(proc, "cpu")}
            case "memory" if self._memory_limits:
                return {MEMORY: LimitedMemory(self._memory_limits)}
            case "memory":
                return {MEMORY: self._memory}
            case "memory_pressure" | "io_pressure":
                return {dimension: Pressure(proc, dimension.removesuffix("_pressure"))}
            case "disk":
                return {dimension: Disk(proc, settings.disk_device)}
            case "network":
                return {dimension: Network(proc, settings.network_device, settings.network_bytes_per_second)}
        raise UsageError(f"no dimension is called {dimension!r}")


def _check(dimensions: tuple[str, ...]) -> None:
    if not dimensions:
        raise UsageError("dimensions is empty; name at least one, e.g. cpu")
    twice = [name for name in dimensions if dimensions.count(name) > 1]
    if twice:
        raise UsageError(f"dimensions names {twice[0]} twice; name each once")
