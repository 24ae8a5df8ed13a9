"""Pods and their demand over their lives. Known to the simulator and the oracles only.

A pod's program is a sequence of phases. Within one the demanded threads and memory are constant, or change linearly
from the previous level to that of the phase. Threads are busy threads: 2.7 are two that are always runnable and one
with demand for 70 % of the time. A phase ends after its time or, if it has work, when that much cpu time has been used:
on a full node that takes longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from carico.types import ClassKey, Matrix

RESOURCES = ("cpu", "memory")


class WorkPhase(NamedTuple):
    seconds: float
    threads: float  # busy threads demanded, at its end
    memory: float  # bytes, at its end
    ramp: bool = False  # linearly from the end of the previous phase (0 for the first) instead of a step
    work: float = 0.0  # core-seconds; above 0 the phase ends when they are done, `seconds` is the shortest time


@dataclass(frozen=True)
class SimPod:
    """A pod that waits for a node, or runs on one."""

    uid: str
    key: ClassKey
    phases: tuple[WorkPhase, ...]
    kubelet_delay: float  # s from the binding until the kubelet creates its cgroup
    cpu_limit: float = math.inf  # cores
    memory_limit: float = math.inf  # bytes; more ends the pod
    requests: tuple[float, float] = (0.0, 0.0)  # cores, bytes
    in_step: bool = False  # the phases are a cycle, synchronous between all such pods
    stuck: bool = False  # its image cannot be pulled
    crashes: bool = False  # its container is restarted each time that it ends
    nodes: frozenset[str] = frozenset()  # may run on these only; empty: on all

    @cached_property
    def life(self) -> float:
        """s that its container runs; at least, if it has work."""
        return sum(phase.seconds for phase in self.phases)

    @cached_property
    def peak(self) -> tuple[float, float]:
        """Its maximum demand: threads, bytes."""
        threads = max(phase.threads for phase in self.phases)
        return min(threads, self.cpu_limit), max(phase.memory for phase in self.phases)

    @cached_property
    def has_work(self) -> bool:
        return any(phase.work for phase in self.phases)

    def program(self, start: float) -> tuple[WorkPhase, ...]:
        """Its phases if its container starts at `start`, s."""
        return rotated(self.phases, start % self.life) if self.in_step else self.phases

    def demand(self, start: float, times: Matrix) -> Matrix:
        """Threads and bytes at these times, s, if its container starts at `start`; zero before and after its life."""
        found, at, before = np.zeros((len(times), 2)), start, np.zeros(2)
        for phase in self.program(start):
            level = np.array((min(phase.threads, self.cpu_limit), phase.memory))
            inside = (times >= at) & (times < at + phase.seconds)
            if phase.ramp:
                share = (times[inside] - at) / phase.seconds
                found[inside] = before + share[:, np.newaxis] * (level - before)
            else:
                found[inside] = level
            at, before = at + phase.seconds, level
        return found


def steady(seconds: float, threads: float, memory: float) -> tuple[WorkPhase, ...]:
    return (WorkPhase(seconds, threads, memory),)


def ramping(seconds: float, threads: float, memory: float, ramp: float) -> tuple[WorkPhase, ...]:
    """Reaches its load within `ramp` seconds."""
    return (WorkPhase(ramp, threads, memory, ramp=True), WorkPhase(seconds - ramp, threads, memory))


def growing(seconds: float, threads: float, memory: tuple[float, float], over: float) -> tuple[WorkPhase, ...]:
    """A heap that grows from `memory[0]` to `memory[1]` in `over` seconds, then is constant."""
    first = WorkPhase(1.0, threads, memory[0])
    return (first, WorkPhase(over, threads, memory[1], ramp=True), WorkPhase(seconds - over - 1.0, threads, memory[1]))


def bursting(
    seconds: float, threads: tuple[float, float], memory: float, on: float, off: float
) -> tuple[WorkPhase, ...]:
    """`threads[1]` for `on` seconds, `threads[0]` for `off` seconds, repeated; complete cycles."""
    cycle = (WorkPhase(on, threads[1], memory), WorkPhase(off, threads[0], memory))
    return cycle * max(1, round(seconds / (on + off)))


def rotated(phases: tuple[WorkPhase, ...], offset: float) -> tuple[WorkPhase, ...]:
    """The cycle from its `offset`-th second on, and then its beginning; for phases without ramps.

    >>> [phase.seconds for phase in rotated((WorkPhase(4, 1, 0), WorkPhase(6, 0, 0)), 3)]
    [1.0, 6, 3.0]
    """
    before = 0.0
    for i, phase in enumerate(phases):
        if before <= offset < before + phase.seconds:
            gone = offset - before
            rest = phase._replace(seconds=phase.seconds - gone)
            return (rest, *phases[i + 1 :], *phases[:i], phase._replace(seconds=gone))
        before += phase.seconds
    return phases


def starting_up(
    seconds: float, threads: float, memory: float, burn: float, burn_threads: float
) -> tuple[WorkPhase, ...]:
    """Demands `burn_threads` for `burn` seconds, then `threads`."""
    return (WorkPhase(burn, burn_threads, memory), WorkPhase(seconds - burn, threads, memory))
