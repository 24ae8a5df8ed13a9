"""Use and demand of every workload pod, read once a second within a time budget.

Young pods are read every second: their class may be new, and the node's room depends on them. The others are read in
rotation within `measure_budget`, those whose demand has hardly moved for a while only every 4 or 8 s; their figures
are then means over the seconds between two readings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

from carico.runtime.demand import MOVED, CpuDemand, cpu_demand, memory_demand, rates
from carico.runtime.ending import EndDetector
from carico.runtime.pods import WorkloadPod
from carico.types import MeasuredPod, PodCounters

ACCOUNTED = ("cpu", "memory")  # dimensions that are accounted per pod
YOUNG = 20.0  # s since its first container started, or since it was first seen, for which a pod is read every second
YOUNG_BUDGETS = 10  # budgets that young pods may use together: hundreds may start at once
NEXT_SECOND = 0.5  # s after a reading from which on a pod may be read again: ticks are not exactly a second apart
LEAST_SECONDS = 0.25  # between two readings that are compared; a shorter interval is too inaccurate
# s for which demand has hardly moved from reading to reading, and s between two readings from then on. Pods that burst
# now and then are read every second.
STEADY_FOR, STEADY_EVERY = 30.0, 4.0
STEADY_LONG, STEADY_SELDOM = 60.0, 8.0
STEADY = 0.1  # change of demand, as a share of it, that counts as hardly any,
STEADY_LEAST = (0.02, 2.0**23)  # or as an absolute amount, by ACCOUNTED: cores, bytes
SILENCE = 10.0  # s without a single reading, though pods run, after which accounting counts as missing


class PodStats(Protocol):
    """A source of counters per pod: their cgroups, or the container runtime's statistics."""

    @property
    def name(self) -> str: ...

    def read(self, uid: str, cgroup: str | None) -> tuple[float, PodCounters] | None:
        """The time (s, monotonic) and the counters; None if there are none for this pod, or no longer."""

    def keep(self, uids: Collection[str]) -> None:
        """Forgets all other pods."""


class NoStats:
    """Used where pods are not accounted."""

    name = "none"

    def read(self, uid: str, cgroup: str | None) -> tuple[float, PodCounters] | None:  # noqa: ARG002
        return None

    def keep(self, uids: Collection[str]) -> None:
        pass


class Instant(NamedTuple):
    at: float  # s, monotonic
    stretched: float  # ∫ stretch dt until then
    counters: PodCounters


class PodFigures(NamedTuple):
    """Computed from the last two readings of a pod."""

    demand: tuple[float, ...]
    use: tuple[float, ...]
    exact: bool
    throttled: float  # s per second in which it was throttled by its own limit


def _since_start(before: Instant | None, after: Instant, started: float | None, stretch: float) -> Instant | None:
    """The reading to compare with. A pod that has just started is measured from its start on: its counters begin with
    its cgroup, and a pod that lives for two seconds would end before its second reading."""
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

    __slots__ = ("due", "end", "figures", "fresh", "instant", "moved", "seen", "throttled", "young_until")

    def __init__(self, now: float) -> None:
        self.seen = now
        self.young_until = now + YOUNG
        self.due = now  # s, monotonic, from which on it is to be read again
        self.moved = now  # s, monotonic, of the last reading that differed from the one before
        self.instant: Instant | None = None
        self.figures: PodFigures | None = None
        self.throttled = 0.0  # of the figures
        self.fresh = False
        self.end = EndDetector()


class PodMeter:
    """Call `measure` once a second. `throttled` is then the s per second that pods were throttled by their limits."""

    def __init__(
        self,
        workload: Callable[[], Mapping[str, WorkloadPod]],
        stats: PodStats,
        stretch: Callable[[], float],
        dimensions: tuple[str, ...],
        budget: float,
        timer: Callable[[], float] = time.perf_counter,
        cores: Callable[[], float] = lambda: MOVED,
    ) -> None:
        self._workload = workload
        self._stats = stats
        self._stretch = stretch
        self._order = tuple(ACCOUNTED.index(name) for name in dimensions if name in ACCOUNTED)
        self._least = tuple(STEADY_LEAST[i] for i in self._order)
        self._budget = budget
        self._timer = timer
        self._cores = cores
        self._pods: Mapping[str, WorkloadPod] = {}
        self._watched: dict[str, Watched] = {}  # in the order of rotation
        self._measured_at: float | None = None
        self._stretched = 0.0
        self._stretches = (0.0, 1.0)  # end of the last second, and its stretch
        self._read_at = -SILENCE  # s, monotonic, of the last reading of any pod
        self._fresh: list[Watched] = []  # those read in this second
        self.throttled = 0.0

    def measure(self, now: float) -> tuple[MeasuredPod, ...]:
        """All workload pods, with the last reading of each."""
        self._pass(now)
        self._update(now)
        for watched in self._fresh:
            watched.fresh = False
        self._fresh.clear()
        self._read_young(now)
        self._read_others(now)
        self.throttled = sum([watched.throttled for watched in self._watched.values()])
        return self._all_measured(now)

    def present(self, now: float) -> tuple[MeasuredPod, ...]:
        """The current workload pods, with the last reading of each. Does not read."""
        self._update(now)
        return self._all_measured(now)

    def problem(self, now: float) -> str | None:
        """Why pods cannot be measured, or None."""
        if not self._watched or now - self._read_at < SILENCE:
            return None
        waiting = [watched.seen for uid, watched in self._watched.items() if self._pods[uid].running]
        if not waiting or now - min(waiting) < SILENCE:
            return None
        return f"no pod can be measured by {self._stats.name}"

    def _pass(self, now: float) -> None:
        """Adds one second to the integral of the node's stretch."""
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
        for uid, pod in pods.items():
            watched = self._watched.get(uid)
            if watched is None:
                watched = self._watched[uid] = Watched(now)
            if pod.started is not None:
                watched.young_until = max(pod.started, watched.seen) + YOUNG
        self._stats.keep(pods.keys())

    def _read_young(self, now: float) -> None:
        end = self._timer() + YOUNG_BUDGETS * self._budget
        for uid in [uid for uid, watched in self._watched.items() if now < watched.young_until]:
            self._read(uid, now)
            if self._timer() > end:
                return

    def _read_others(self, now: float) -> None:
        """Reads at least one pod, so that each pod is read eventually."""
        end = self._timer() + self._budget
        for uid in self._turns(now):
            self._read(uid, now)
            if self._timer() > end:
                return

    def _turns(self, now: float) -> Iterator[str]:
        """Pods that are due; each one moves to the end of the rotation."""
        for uid in [uid for uid, watched in self._watched.items() if watched.due <= now]:
            self._watched[uid] = self._watched.pop(uid)
            yield uid

    def _read(self, uid: str, now: float) -> None:
        watched = self._watched[uid]
        watched.due = now + NEXT_SECOND
        read = self._stats.read(uid, self._pods[uid].cgroup)
        if read is None:
            watched.instant, watched.figures, watched.throttled = None, None, 0.0
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
            if watched.end.leaves_out(before.counters, counters, at - before.at):
                return
            if not self._is_steady(watched.figures, figures):
                watched.moved = now
            elif (steady := now - watched.moved) >= STEADY_FOR:
                watched.due += (STEADY_SELDOM if steady >= STEADY_LONG else STEADY_EVERY) - 1.0
            watched.figures, watched.throttled, watched.fresh = figures, figures.throttled, True
            self._fresh.append(watched)

    def _is_steady(self, before: PodFigures | None, after: PodFigures) -> bool:
        if before is None:
            return False
        pairs = zip(before.demand, after.demand, self._least, strict=True)
        return all(abs(b - a) <= max(STEADY * a, least) for a, b, least in pairs)

    def _figures(self, before: Instant, after: Instant) -> PodFigures | None:
        seconds = after.at - before.at
        counters = after.counters
        rate = rates(before.counters, counters, seconds)
        if rate is None:
            return None
        stretch = (after.stretched - before.stretched) / seconds
        cpu = cpu_demand(rate.usage, rate.some, rate.throttled, stretch, counters.cpu_limit_cores, self._cores())
        waited = 1.0 if rate.some is None else rate.some
        return self._ordered(cpu, rate.usage, counters, min(rate.throttled, waited))

    def _ordered(self, cpu: CpuDemand, used: float, counters: PodCounters, throttled: float) -> PodFigures:
        memory = memory_demand(counters)
        demand, use = (cpu.cores, memory), (used, counters.memory_working_set)
        order = self._order
        return PodFigures(tuple([demand[i] for i in order]), tuple([use[i] for i in order]), cpu.exact, throttled)

    def _all_measured(self, now: float) -> tuple[MeasuredPod, ...]:
        watched, found = self._watched, []
        for uid, pod in self._pods.items():
            one, started = watched[uid], pod.started
            age = 0.0 if started is None else max(0.0, now - started)
            running, figures = pod.running and not one.end.ended, one.figures
            if figures is None:
                found.append(MeasuredPod(uid, pod.key, age, running, None, None, True, False))
            else:
                demand, use, exact, _ = figures
                found.append(MeasuredPod(uid, pod.key, age, running, demand, use, exact, one.fresh))
        return tuple(found)
