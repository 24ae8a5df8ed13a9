"""What every workload pod uses and demands, read once a second within a bound of time.

Young pods are read every second: their class may be new, and the node's room hangs on them. The others take turns
within `measure_budget`; their figures are then means over the seconds between two readings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

from carico.runtime.demand import CpuDemand, cpu_demand, memory_demand, rates
from carico.runtime.pods import WorkloadPod
from carico.types import MeasuredPod, PodCounters

ACCOUNTED = ("cpu", "memory")  # dimensions in which pods have an accounting of their own
YOUNG = 20.0  # s since its first container started, or since it was first seen, for which a pod is read every second
YOUNG_BUDGETS = 10  # budgets that young pods may take together: hundreds may start at once
LEAST_SECONDS = 0.25  # between two readings that are compared; less says too little
SILENCE = 10.0  # s without a single reading, though pods run, after which there is no accounting here


class PodStats(Protocol):
    """Where pods are accounted for: their cgroups, or the container runtime's statistics."""

    @property
    def name(self) -> str: ...

    def read(self, uid: str, cgroup: str | None) -> tuple[float, PodCounters] | None:
        """The instant (s, monotonic) and the counters then; None where there are none for this pod (any more)."""

    def keep(self, uids: Collection[str]) -> None:
        """Forgets all other pods."""


class NoStats:
    """Where nobody accounts for pods."""

    name = "none"

    def read(self, uid: str, cgroup: str | None) -> tuple[float, PodCounters] | None:  # noqa: ARG002
        return None

    def keep(self, uids: Collection[str]) -> None:
        pass


class Instant(NamedTuple):
    at: float  # s, monotonic
    stretched: float  # ∫ stretch dt until then
    counters: PodCounters


class Figures(NamedTuple):
    """What the last two readings of a pod said."""

    demand: tuple[float, ...]
    use: tuple[float, ...]
    exact: bool
    throttled: float  # s per second in which its own limit held it back


def _since_start(before: Instant | None, after: Instant, started: float | None, stretch: float) -> Instant | None:
    """What to compare a reading with. A pod that has just started is measured from its start on: its counters begin
    with its group, and one that lives for two seconds would be gone before two readings of it."""
    if started is None or (before is not None and before.at >= started):
        return before
    seconds = after.at - started
    if not LEAST_SECONDS <= seconds < YOUNG:
        return before
    counters = after.counters._replace(usage_seconds=0.0, throttled_seconds=0.0)
    if after.counters.some_seconds is not None:
        counters = counters._replace(some_seconds=0.0)
    return Instant(started, after.stretched - stretch * seconds, counters if before is None else before.counters)


class Watched:
    """One pod."""

    __slots__ = ("figures", "fresh", "instant", "looked", "seen")

    def __init__(self, now: float) -> None:
        self.seen = now
        self.looked = -1.0  # s, monotonic, of the second in which it was last read
        self.instant: Instant | None = None
        self.figures: Figures | None = None
        self.fresh = False


class PodMeter:
    """Call `measure` once a second. `throttled` is then the time per second that pods waited for their own limits."""

    def __init__(
        self,
        workload: Callable[[], Mapping[str, WorkloadPod]],
        stats: PodStats,
        stretch: Callable[[], float],
        dimensions: tuple[str, ...],
        budget: float,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._workload = workload
        self._stats = stats
        self._stretch = stretch
        self._order = tuple(ACCOUNTED.index(name) for name in dimensions if name in ACCOUNTED)
        self._budget = budget
        self._timer = timer
        self._pods: Mapping[str, WorkloadPod] = {}
        self._watched: dict[str, Watched] = {}  # in the order of their turns
        self._measured_at: float | None = None
        self._stretched = 0.0
        self._stretches = (0.0, 1.0)  # at which second, and the stretch of the second that ended then
        self._read_at = -SILENCE  # s, monotonic, of the last reading of any pod
        self.throttled = 0.0

    def measure(self, now: float) -> tuple[MeasuredPod, ...]:
        """All workload pods, with what was last read of each."""
        self._pass(now)
        self._update(now)
        for watched in self._watched.values():
            watched.fresh = False
        self._read_young(now)
        self._read_others(now)
        self.throttled = sum([pod.figures.throttled for pod in self._watched.values() if pod.figures is not None])
        return tuple([self._measured(pod, self._watched[pod.uid], now) for pod in self._pods.values()])

    def present(self, now: float) -> tuple[MeasuredPod, ...]:
        """The pods of this moment, with what was last read of each: nothing is read."""
        self._update(now)
        return tuple([self._measured(pod, self._watched[pod.uid], now) for pod in self._pods.values()])

    def problem(self, now: float) -> str | None:
        """Why pods cannot be measured, or None."""
        if not self._watched or now - self._read_at < SILENCE:
            return None
        waiting = [watched.seen for uid, watched in self._watched.items() if self._pods[uid].running]
        if not waiting or now - min(waiting) < SILENCE:
            return None
        return f"no pod can be measured by {self._stats.name}"

    def _pass(self, now: float) -> None:
        """One more second of the node's stretch."""
        stretch = max(1.0, self._stretch())
        if self._measured_at is not None:
            self._stretched += stretch * max(0.0, now - self._measured_at)
        self._measured_at = now
        self._stretches = (now, stretch)

    def _update(self, now: float) -> None:
        pods = self._workload()
        if pods is self._pods:
            return
        self._pods = pods
        self._watched = {uid: watched for uid, watched in self._watched.items() if uid in pods}
        for uid in pods:
            if uid not in self._watched:
                self._watched[uid] = Watched(now)
        self._stats.keep(pods.keys())

    def _read_young(self, now: float) -> None:
        end = self._timer() + YOUNG_BUDGETS * self._budget
        for uid in [uid for uid, watched in self._watched.items() if self._is_young(uid, watched, now)]:
            self._read(uid, now)
            if self._timer() > end:
                return

    def _is_young(self, uid: str, watched: Watched, now: float) -> bool:
        started = self._pods[uid].started
        return now - (watched.seen if started is None else max(started, watched.seen)) < YOUNG

    def _read_others(self, now: float) -> None:
        """At least one, so that all have their turn at last."""
        end = self._timer() + self._budget
        for uid in self._turns(now):
            self._read(uid, now)
            if self._timer() > end:
                return

    def _turns(self, now: float) -> Iterator[str]:
        """Pods that have not been read in this second; whoever is given goes to the end of the line."""
        for uid in [uid for uid, watched in self._watched.items() if watched.looked < now]:
            self._watched[uid] = self._watched.pop(uid)
            yield uid

    def _read(self, uid: str, now: float) -> None:
        watched = self._watched[uid]
        watched.looked = now
        read = self._stats.read(uid, self._pods[uid].cgroup)
        if read is None:
            watched.instant = watched.figures = None
            return
        at, counters = read
        self._read_at = max(self._read_at, at)
        before = watched.instant
        if before is not None and at - before.at < LEAST_SECONDS:
            return
        second, stretch = self._stretches
        watched.instant = after = Instant(at, self._stretched + stretch * (at - second), counters)
        before = _since_start(before, after, self._pods[uid].started, stretch)
        if before is not None and (figures := self._figures(before, after)) is not None:
            watched.figures, watched.fresh = figures, True

    def _figures(self, before: Instant, after: Instant) -> Figures | None:
        seconds = after.at - before.at
        counters = after.counters
        rate = rates(before.counters, counters, seconds)
        if rate is None:
            return None
        stretch = (after.stretched - before.stretched) / seconds
        cpu = cpu_demand(rate.usage, rate.some, rate.throttled, stretch, counters.cpu_limit_cores)
        waited = 1.0 if rate.some is None else rate.some
        return self._ordered(cpu, rate.usage, counters, min(rate.throttled, waited))

    def _ordered(self, cpu: CpuDemand, used: float, counters: PodCounters, throttled: float) -> Figures:
        memory = memory_demand(counters)
        demand, use = (cpu.cores, memory), (used, counters.memory_working_set)
        order = self._order
        return Figures(tuple([demand[i] for i in order]), tuple([use[i] for i in order]), cpu.exact, throttled)

    def _measured(self, pod: WorkloadPod, watched: Watched, now: float) -> MeasuredPod:
        age = 0.0 if pod.started is None else max(0.0, now - pod.started)
        figures = watched.figures
        if figures is None:
            return MeasuredPod(pod.uid, pod.key, age, pod.running, None, None, True, False)
        return MeasuredPod(
            pod.uid, pod.key, age, pod.running, figures.demand, figures.use, figures.exact, watched.fresh
        )
