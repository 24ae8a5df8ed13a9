"""A machine: its cores and memory, what runs on it, and the counters that its kernel would show.

Rows of arrays are cgroups; the first is everything that does not belong to a workload pod. Rates change only when a pod
changes its phase, so counters are updated then and when they are read, and a tick in between takes almost no time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from carico.sim.sharing import Shares, share
from carico.sim.workload import WorkPhase
from carico.types import NodeSize

NOISE = 0.02  # standard deviation of a sample of a ratio
SPIKE = 0.3  # share of a small node that the runtime uses while it creates or removes a container
SPIKE_THREADS = 2.4  # threads of a large one
FLUCTUATION = 0.1  # standard deviation of the demand of a thread that sleeps, from second to second
OVERHEAD = 0.03  # kernel's work for pods that is not charged to any pod, per core that they use
BLOCK = 1024  # random numbers are drawn in blocks
DONE = 1e-9  # core-seconds left that are rounding
SYSTEM = 0  # row of everything that does not belong to a workload pod
FIRST_ROWS = 32


@dataclass(frozen=True)
class Hardware:
    """A node without pods."""

    cores: float
    memory: float  # bytes
    base: tuple[float, float] = (0.05, 0.12)  # usage without workload pods, as a ratio
    contention: float = 0.0  # share of a core's work that is lost to switching when very many threads wait for it

    @property
    def threads(self) -> float:
        """Busy threads at which cpu usage is 1."""
        return 2.0 * self.cores

    @property
    def size(self) -> NodeSize:
        return NodeSize(cores=self.cores, memory_bytes=self.memory)


class MachineCounters(NamedTuple):
    """The kernel's counters of one pod."""

    usage: float  # s of cpu time
    some: float  # s in which at least one thread waited
    throttled: float  # s
    memory: float  # bytes of working set, now


class Reading(NamedTuple):
    """One sample of the whole machine."""

    utilisation: float
    pressure: float
    memory: float  # ratio
    runnable: float  # threads that run or wait


class Machine:
    """Times are simulated seconds and never decrease."""

    def __init__(self, hardware: Hardware, rng: np.random.Generator) -> None:
        self.hardware = hardware
        self._rng = rng
        self._noise: list[list[float]] = []
        self._at = 0.0
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._used = 1
        self._moving = 0  # rows whose demand changes linearly
        self._working: dict[int, str] = {}  # rows with work left, and their pods
        self._stale = True  # shares were computed for an earlier demand
        self._spikes: list[tuple[float, float]] = []  # s, begin and end
        self._allocate(FIRST_ROWS)
        self._memory_system = hardware.base[1] * hardware.memory
        self._system_threads = hardware.base[0] * hardware.threads
        self._shares = self._share()

    def _allocate(self, rows: int) -> None:
        self._threads = np.zeros(rows)
        self._memory = np.zeros(rows)
        self._slope = np.zeros((rows, 2))  # threads and bytes per second
        self._ahead = np.zeros((rows, 2))  # maximum future demand
        self._limit = np.full(rows, np.inf)
        self._wobble = np.ones(rows)  # factor of the demand of a thread that sleeps
        self._counters = np.zeros((rows, 3))
        self._work = np.zeros(rows)  # core-seconds left, of rows that have work

    # Pods

    def add(self, uid: str, ahead: tuple[float, float], limit: float, now: float) -> None:
        """Adds a pod whose container has not started yet; `ahead` is its maximum future demand."""
        self.advance(now)
        self._stale = True
        row = self._free.pop() if self._free else self._used
        if row == self._used:
            self._used += 1
            if row == len(self._threads):
                self._grow()
        self._rows[uid] = row
        self._threads[row] = self._memory[row] = 0.0
        self._slope[row] = 0.0
        self._ahead[row] = ahead
        self._limit[row] = limit
        self._counters[row] = 0.0
        self._wobble[row] = 1.0

    def _grow(self) -> None:
        for name in ("_threads", "_memory", "_slope", "_ahead", "_limit", "_wobble", "_counters", "_work"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)]))

    def enter(self, uid: str, phase: WorkPhase, ahead: tuple[float, float], now: float) -> None:
        """The pod enters a phase; `ahead` is its maximum demand after the phase."""
        self.advance(now)
        row = self._rows[uid]
        target = np.array((phase.threads, phase.memory))
        level = np.array((self._threads[row], self._memory[row]))
        self._moving -= bool(self._slope[row].any())
        self._slope[row] = (target - level) / phase.seconds if phase.ramp and phase.seconds > 0 else 0.0
        self._moving += bool(self._slope[row].any())
        if not phase.ramp:
            self._threads[row], self._memory[row] = phase.threads, phase.memory
        self._ahead[row] = np.maximum(target, ahead)
        self._stale = True
        self._work[row] = phase.work
        if phase.work > 0.0:
            self._working[row] = uid
        else:
            self._working.pop(row, None)

    def rest(self, uid: str, ahead: tuple[float, float], now: float) -> None:
        """Its container has ended and may restart."""
        self.enter(uid, WorkPhase(math.inf, 0.0, 0.0), ahead, now)

    def remove(self, uid: str, now: float) -> None:
        self.rest(uid, (0.0, 0.0), now)
        row = self._rows.pop(uid)
        self._ahead[row] = 0.0
        self._limit[row] = np.inf
        self._free.append(row)

    def spike(self, begin: float, seconds: float) -> None:
        """The runtime uses cpu from `begin` on."""
        self._spikes.append((begin, begin + seconds))

    # Time

    def advance(self, now: float) -> None:
        """Updates levels and counters to `now`."""
        seconds = now - self._at
        if seconds <= 0:
            return
        shares, used = self.shares(), self._used
        self._counters[:used, 0] += seconds * shares.usage
        self._counters[:used, 1] += seconds * shares.some
        self._counters[:used, 2] += seconds * shares.throttled
        if self._working:
            self._work[:used] -= seconds * self._speed(shares) * shares.usage
        if self._moving:
            self._threads[:used] += seconds * self._slope[:used, 0]
            self._memory[:used] += seconds * self._slope[:used, 1]
            self._stale = True
        self._at = now

    @property
    def moving(self) -> bool:
        return self._moving > 0

    # Work

    def _speed(self, shares: Shares) -> float:
        """Work per second of cpu time."""
        return 1.0 - self.hardware.contention * (1.0 - 1.0 / shares.stretch)

    def next_end(self, now: float) -> float:
        """When the next phase with work ends if nothing else changes, s; infinity if none has work."""
        if not self._working:
            return math.inf
        self.advance(now)
        shares, rows = self.shares(), list(self._working)
        rates = self._speed(shares) * shares.usage[rows]
        return now + max(0.0, float((self._work[rows] / np.maximum(rates, 1e-12)).min()))

    def finished(self, now: float) -> Iterator[str]:
        """The pods whose work is done; each must enter its next phase."""
        self.advance(now)
        for row, uid in list(self._working.items()):
            if self._work[row] <= DONE:
                yield uid

    def fluctuate(self, now: float) -> None:
        """Draws the demand of threads that sleep; call it once a second."""
        self.advance(now)
        drawn = self._rng.standard_normal(self._used)
        np.clip(1.0 + FLUCTUATION * drawn, 0.5, 1.5, out=self._wobble[: self._used])
        self._stale = True

    def shares(self) -> Shares:
        if self._stale:
            self._shares = self._share()
            self._stale = False
        return self._shares

    def _share(self) -> Shares:
        used = self._used
        wanted = self._threads[:used].copy()
        wanted[SYSTEM] = 0.0
        demand = float(np.minimum(wanted, self._limit[:used]).sum())
        whole = np.floor(wanted + 1e-9)
        part = np.clip((wanted - whole) * self._wobble[:used], 0.0, 1.0)
        whole[SYSTEM] = self._system_threads + OVERHEAD * demand
        self._pods_demand = (demand, float(self._memory[1:used].sum()))
        return share(whole, part, self._limit[:used], self.hardware.cores)

    # Kernel counters

    def read(self, now: float) -> Reading:
        """A sample with noise; the run queue does not include the short spikes."""
        if self._moving:
            self.advance(now)
        shares, cores = self.shares(), self.hardware.cores
        cpu_noise, memory_noise = self._draw()
        used = float(shares.usage.sum())
        runnable = used * shares.stretch
        # Both parts of `cpu` together: busy cores up to 1, then waiting threads. Only one of them changes at a time.
        busy = max(0.0, (runnable + self._spiking(now)) / cores + 2.0 * cpu_noise)
        utilisation, waiting = min(1.0, busy), min(1.0, max(0.0, busy - 1.0))
        free = (1.0 - waiting) * float((1.0 - shares.throttled).prod())
        memory = (self._memory_system + self._pods_demand[1]) / self.hardware.memory + memory_noise
        return Reading(utilisation, 1.0 - free, min(1.0, max(0.0, memory)), runnable)

    def _draw(self) -> list[float]:
        if not self._noise:
            self._noise = (NOISE * self._rng.standard_normal((BLOCK, 2))).tolist()
        return self._noise.pop()

    def _spiking(self, now: float) -> float:
        """Threads that the runtime adds now."""
        if not self._spikes:
            return 0.0
        self._spikes = [spike for spike in self._spikes if spike[1] > now]
        each = min(SPIKE * self.hardware.threads, SPIKE_THREADS)
        return each * sum(begin <= now for begin, _ in self._spikes)

    def has(self, uid: str) -> bool:
        return uid in self._rows

    def usage_of(self, uid: str) -> float:
        """Cores, now."""
        return float(self.shares().usage[self._rows[uid]])

    def memory_of(self, uid: str) -> float:
        """Bytes."""
        return float(self._memory[self._rows[uid]])

    def memory_over(self) -> float:
        """Bytes that are demanded beyond the machine's memory; 0 or less: none."""
        return self._memory_system + float(self._memory[1 : self._used].sum()) - self.hardware.memory

    def counters(self, uid: str, now: float) -> MachineCounters:
        self.advance(now)
        row = self._rows[uid]
        usage, some, throttled = self._counters[row].tolist()
        return MachineCounters(usage, some, throttled, float(self._memory[row]))

    # True values

    def demand(self, now: float) -> tuple[float, float]:
        """True total demand, as ratios; cpu as a share of two busy threads per core."""
        if self._moving:
            self.advance(now)
        self.shares()
        return self._ratios(*self._pods_demand)

    def _ratios(self, threads: float, memory: float) -> tuple[float, float]:
        cpu = (self._system_threads + (1.0 + OVERHEAD) * threads) / self.hardware.threads
        return cpu, (self._memory_system + memory) / self.hardware.memory

    def expected(self, now: float) -> tuple[float, float]:
        """The same with every pod at its maximum present or future demand."""
        return self._ratios(*self._expected_of_pods(now))

    def expected_demand(self, now: float) -> tuple[float, float]:
        """The same in threads and bytes."""
        cpu, memory = self.expected(now)
        return cpu * self.hardware.threads, memory * self.hardware.memory

    def _expected_of_pods(self, now: float) -> tuple[float, float]:
        self.advance(now)
        used = self._used
        level = np.maximum(self._threads[1:used], self._ahead[1:used, 0])
        threads = float(np.minimum(level, self._limit[1:used]).sum())
        return threads, float(np.maximum(self._memory[1:used], self._ahead[1:used, 1]).sum())

    def system_usage(self) -> float:
        """s of cpu time that was not charged to a pod."""
        return float(self._counters[SYSTEM, 0])


def later_peak(phases: tuple[WorkPhase, ...]) -> tuple[float, float]:
    """The maximum of these phases; 0 without phases.

    >>> later_peak((WorkPhase(1, 2.0, 5.0), WorkPhase(1, 1.0, 7.0))), later_peak(())
    ((2.0, 7.0), (0.0, 0.0))
    """
    return max((p.threads for p in phases), default=0.0), max((p.memory for p in phases), default=0.0)
