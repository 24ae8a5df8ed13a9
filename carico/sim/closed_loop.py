"""The closed loop: pods are admitted by the nodes' reports, which depend on the pods that were admitted.

`follow` runs one case with one admission method and records the data to score it: true demand and running pods at every
tick, and every second the room that each node's agent reported and the true room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from carico.settings import FULL, EstimateSettings
from carico.sim.admission import ByFuture, ByPeak, BySignal, SimAdmission
from carico.sim.agent import RATE_HZ
from carico.sim.kubelet import DRAIN
from carico.sim.machine import Hardware
from carico.sim.timeline import Timeline
from carico.sim.workload import SimPod
from carico.sim.world import ArrivalStream, SimNode, World
from carico.types import Vector

PEAK, FUTURE = "peak oracle", "future oracle"
ORACLES = (PEAK, FUTURE)
TOLERANCE, TOLERANCE_SHARE = 0.05, 0.15  # of the node, of the true room: the larger counts
CROWDED = 1.0  # demand as a ratio above which a node is overloaded

Window = tuple[float, float]  # s


@dataclass(frozen=True)
class Case:
    """One case. Ratios are shares of the node; cpu is a share of two busy threads per core."""

    name: str
    nodes: Mapping[str, Hardware]
    streams: Callable[[int], list[ArrivalStream]]  # of the seed
    seconds: float = 300.0
    kind: str = "steady"  # steady, bursts, growth, or other: only reported
    cold: Window = (0.0, 150.0)  # in which the classes are new
    known: Window = (150.0, 300.0)  # in which they are known
    counts_from: float = 0.0  # s from which overload counts
    admitted: bool = True  # Carico admits the pods; False: others do, and only room is scored
    present: tuple[SimPod, ...] = ()  # pods that are on the first node at the start
    restart: float | None = None  # s at which the first node's agent restarts
    drain: float = DRAIN  # s from a pod's end to its sandbox's
    sharing_delay: float = 1.0  # s until a class cost that one node has measured is known to all
    longest: float = 400.0  # s, at least the longest life of a pod


@dataclass
class Trace:
    """The recorded data of a run."""

    seconds: float
    demand: Vector  # tick, node, resource: true, as a ratio
    running: Vector  # tick: pods whose container runs
    room: Vector  # second, node, resource: as reported, as a ratio of the node; nan: not reported
    truth: Vector  # the same, true


def follow(case: Case, method: str, seed: int) -> Trace:
    """`method` is an estimator or an oracle."""
    timeline = Timeline()
    estimate = None if method in ORACLES else EstimateSettings(estimator=method)
    admission = _admission(case, method, timeline)
    world = World(timeline, case.nodes, admission, case.streams(seed), seed, estimate, case.drain, case.sharing_delay)
    for pod in case.present:
        world.place(pod, next(iter(case.nodes)))
    if case.restart is not None:
        world.restart_agent(next(iter(case.nodes)), case.restart, outage=3.0)
    recorder = LoopRecorder(world)
    world.run(case.seconds, recorder.second, recorder.tick)
    return recorder.trace(case.seconds)


def _admission(case: Case, method: str, timeline: Timeline) -> SimAdmission:
    if method == PEAK:
        return ByPeak(case.nodes, timeline)
    if method == FUTURE:
        return ByFuture(case.nodes, timeline, case.seconds + case.longest)
    return BySignal(case.nodes, timeline)


@dataclass
class LoopRecorder:
    world: World
    _demand: list[list[tuple[float, float]]] = field(default_factory=list)
    _running: list[int] = field(default_factory=list)
    _room: list[list[tuple[float, float]]] = field(default_factory=list)
    _truth: list[list[tuple[float, float]]] = field(default_factory=list)

    def tick(self, now: float) -> None:
        nodes = self.world.nodes.values()
        self._demand.append([node.machine.demand(now) for node in nodes])
        self._running.append(sum([node.kubelet.running for node in nodes]))

    def second(self, now: float) -> None:
        pairs = [room_of(node, now) for node in self.world.nodes.values()]
        self._room.append([estimated for estimated, _ in pairs])
        self._truth.append([true for _, true in pairs])

    def trace(self, seconds: float) -> Trace:
        return Trace(
            seconds,
            np.array(self._demand),
            np.array(self._running, dtype=np.float64),
            np.array(self._room),
            np.array(self._truth),
        )


Pair = tuple[float, float]
UNKNOWN = (math.nan, math.nan)


def room_of(node: SimNode, now: float) -> tuple[Pair, Pair]:
    """Reported and true room, per resource, as ratios of the node.

    An estimator that only counts pods reports the room of the scarcest resource: Pod-Capacity times the true need of a
    mean pod of this node. The other resource is then nan.
    """
    cpu, memory = node.machine.expected(now)
    truth = max(0.0, FULL - cpu), max(0.0, FULL - memory)
    estimate = node.agent.estimate if node.agent is not None else None
    if estimate is None:
        return UNKNOWN, truth
    if estimate.room:
        threads, size = node.machine.hardware.threads, node.machine.hardware.memory
        return (max(0.0, estimate.room[0]) / threads, max(0.0, estimate.room[1]) / size), truth
    cost = node.mean_pod()
    if cost is None:
        return UNKNOWN, truth
    scarce = min((0, 1), key=lambda i: truth[i] / max(cost[i], 1e-12))
    estimated = estimate.pod_capacity * cost[scarce]
    return ((estimated, math.nan), truth) if scarce == 0 else ((math.nan, estimated), truth)


# Judging


@dataclass(frozen=True)
class LoopVerdict:
    """Scores of one run."""

    worst_demand: float  # highest ratio of any resource
    worst_memory: float
    first_demand: float  # the same before `counts_from`
    seconds_over: float  # node-seconds in which the demand for a resource is above 1.0
    work_cold: float  # pod-seconds
    work_known: float
    room_within: float  # share of seconds
    room_over: float  # share of seconds in which the reported room is too high


def judge(case: Case, trace: Trace) -> LoopVerdict:
    late = int(case.counts_from * RATE_HZ)
    demand, worst = trace.demand[late:], trace.demand.max(axis=2)
    within, over = judge_room(trace.room, trace.truth)
    return LoopVerdict(
        worst_demand=float(demand.max()),
        worst_memory=float(demand[:, :, 1].max()),
        first_demand=float(trace.demand[: late or None].max()),
        seconds_over=float((worst[late:] > CROWDED).sum()) / RATE_HZ,
        work_cold=_work(trace, case.cold),
        work_known=_work(trace, case.known),
        room_within=within,
        room_over=over,
    )


def judge_room(room: Vector, truth: Vector) -> tuple[float, float]:
    """Shares of seconds in which the reported room is correct, and too high; a resource without a report is correct.

    >>> judge_room(np.array([[[0.2, np.nan]], [[0.5, np.nan]]]), np.array([[[0.22, 0.5]], [[0.4, 0.5]]]))
    (0.5, 0.5)
    """
    estimated = np.asarray(~np.isnan(room).all(axis=2))
    if not estimated.any():
        return math.nan, math.nan
    error = np.nan_to_num(room - truth)
    bound = np.maximum(TOLERANCE, TOLERANCE_SHARE * truth)
    within = np.asarray((np.abs(error) <= bound).all(axis=2))
    over = np.asarray((error > bound).any(axis=2))
    return float(within[estimated].mean()), float(over[estimated].mean())


def _work(trace: Trace, window: Window) -> float:
    begin, end = (int(at * RATE_HZ) for at in window)
    return float(trace.running[begin:end].sum()) / RATE_HZ
