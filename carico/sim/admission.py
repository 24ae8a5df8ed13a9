"""Which pod is bound to which node: by the nodes' reports, or by an oracle with information that no report has.

All of them choose the node with the most room among those that the pod fits on.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import Protocol

import msgspec
import numpy as np

from carico.kube.objects import Node, Pod
from carico.scheduler.cache.charge import Claim
from carico.scheduler.cache.class_costs import ClassCostTable
from carico.scheduler.cache.ledger import Ledger
from carico.scheduler.cache.rows import RowIndex
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.contract import Cycle
from carico.scheduler.plugins.capacity import Capacity, CapacityArgs
from carico.settings import FULL
from carico.sim.kubelet import CONTAINER_RUNS
from carico.sim.machine import OVERHEAD, Hardware
from carico.sim.timeline import Timeline
from carico.sim.workload import RESOURCES, SimPod
from carico.types import ClassCost, ClassKey, NodeReport, Vector


class SimAdmission(Protocol):
    def choose(self, pod: SimPod) -> str | None:
        """The node for the pod; None: it has to wait. Does not change state."""

    def bound(self, pod: SimPod, node: str) -> None:
        """The pod was bound to the node, by this or another scheduler."""

    def running(self, pod: SimPod, node: str) -> None:
        """The API server has the pod as running."""

    def ended(self, pod: SimPod) -> None:
        """The API server has the pod as ended."""

    def report(self, report: NodeReport) -> None: ...

    def class_costs(self, costs: Mapping[ClassKey, ClassCost]) -> None:
        """The cluster's class costs."""

    def look(self) -> None:
        """Once a second."""


class Oracle:
    """Uses no reports but the true demand. The limit of starting pods per node is the same as in the scheduler."""

    def __init__(self, nodes: Mapping[str, Hardware], clock: Timeline) -> None:
        self._clock, self._args = clock, CapacityArgs()
        self._size = {name: np.array((one.threads, one.memory)) for name, one in nodes.items()}
        self._empty = {name: FULL * self._size[name] - _base(one) for name, one in nodes.items()}  # room without pods
        self._starting = dict.fromkeys(nodes, 0)

    def choose(self, pod: SimPod) -> str | None:
        best, most = None, -math.inf
        for name in self._empty:
            if (not pod.nodes or name in pod.nodes) and not self._crowded(name):
                spare = self._spare(pod, name)
                if spare > most:
                    best, most = name, spare
        return best

    def bound(self, pod: SimPod, node: str) -> None:
        self._starting[node] += 1
        self._take(pod, node)

    def running(self, pod: SimPod, node: str) -> None:  # noqa: ARG002
        self._starting[node] -= 1

    def _crowded(self, node: str) -> bool:
        usage = FULL - float((self._left_now(node) / self._size[node]).min())
        few, many = self._args.startup_limit, self._args.startup_limit_idle
        return self._starting[node] >= max(math.floor(few + (1.0 - usage) * (many - few)), few)

    def _left_now(self, node: str) -> Vector:
        raise NotImplementedError

    def _spare(self, pod: SimPod, node: str) -> float:
        """Cpu that would be left with the pod on the node; −inf if it does not fit."""
        raise NotImplementedError

    def _take(self, pod: SimPod, node: str) -> None:
        raise NotImplementedError

    def ended(self, pod: SimPod) -> None: ...
    def report(self, report: NodeReport) -> None: ...
    def class_costs(self, costs: Mapping[ClassKey, ClassCost]) -> None: ...
    def look(self) -> None: ...


class BySignal:
    """By the nodes' reports and the cluster's class costs, with the scheduler's real ledger, class table and plugin."""

    def __init__(self, nodes: Mapping[str, Hardware], clock: Timeline) -> None:
        rows = RowIndex()
        self._clock, self._snapshot = clock, Snapshot(rows)
        self._classes = ClassCostTable()
        self._ledger = Ledger(rows, self._classes.charge)
        self._plugin = Capacity(self._ledger, clock.monotonic, classes=self._classes)
        self._rows = np.arange(len(nodes), dtype=np.intp)
        self._names = list(nodes)
        self._infos: dict[ClassKey, PodInfo] = {}
        self._refused: set[tuple[ClassKey, frozenset[str]]] = set()  # rejected since the last relevant event
        for name, hardware in nodes.items():
            self._snapshot.set_node(_node_object(name, hardware))
            self._ledger.node_added(name)

    def choose(self, pod: SimPod) -> str | None:
        if (pod.key, pod.nodes) in self._refused:
            return None
        cycle = Cycle(self._info(pod), self._snapshot)
        fits = self._plugin.filter(cycle, None).bits == 0
        if pod.nodes:
            fits &= [name in pod.nodes for name in self._names]
        rows = self._rows[fits]
        if not len(rows):
            self._refused.add((pod.key, pod.nodes))
            return None
        return self._names[int(rows[np.argmax(self._plugin.score(cycle, rows))])]

    def _info(self, pod: SimPod) -> PodInfo:
        """One PodInfo per class: the scheduler does not distinguish pods of a class."""
        info = self._infos.get(pod.key)
        if info is None:
            info = self._infos[pod.key] = self._snapshot.templates.info(_pod_object(pod))
            info.claim = Claim(pod.key, None, info.requests)
        return info

    def _claim(self, pod: SimPod) -> Claim:
        return self._classes.claim(self._info(pod))

    def bound(self, pod: SimPod, node: str) -> None:
        self._ledger.confirm(pod.uid, node, self._claim(pod), pending=True, now=self._clock.monotonic())

    def running(self, pod: SimPod, node: str) -> None:
        self._refused.clear()
        if pod.uid in self._ledger:
            self._ledger.confirm(pod.uid, node, self._claim(pod), pending=False, now=self._clock.monotonic())

    def ended(self, pod: SimPod) -> None:
        self._refused.clear()
        self._ledger.forget(pod.uid)

    def report(self, report: NodeReport) -> None:
        self._refused.clear()
        now = self._clock.monotonic()
        self._ledger.reprice(self._classes.apply_report(report, now))
        self._ledger.report(report, now)

    def class_costs(self, costs: Mapping[ClassKey, ClassCost]) -> None:
        self._refused.clear()
        self._ledger.reprice(self._classes.aggregated(costs, RESOURCES, self._clock.monotonic()))

    def look(self) -> None:
        self._refused.clear()
        now = self._clock.monotonic()
        self._ledger.reprice(self._classes.tick(now))
        self._ledger.expire(now)


def _node_object(name: str, hardware: Hardware) -> Node:
    room = {"cpu": f"{hardware.cores:g}", "memory": f"{hardware.memory:.0f}", "pods": "1000"}
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "status": {"allocatable": room}}, Node)


def _pod_object(pod: SimPod) -> Pod:
    cores, memory = pod.requests
    requests = {"cpu": f"{1000 * cores:.0f}m", "memory": f"{memory:.0f}"}
    container = {"name": "main", "image": "work", "resources": {"requests": requests}}
    plain = {
        "metadata": {"name": pod.uid, "namespace": pod.key.namespace, "uid": pod.uid},
        "spec": {"containers": [container]},
    }
    return msgspec.convert(plain, Pod)


class ByPeak(Oracle):
    """Knows the true peak of every pod, and reserves it for as long as its container may run."""

    def __init__(self, nodes: Mapping[str, Hardware], clock: Timeline) -> None:
        super().__init__(nodes, clock)
        self._left = {name: room.copy() for name, room in self._empty.items()}
        self._ends: list[tuple[float, str, str]] = []  # a heap: when a pod's container ends, the pod, its node
        self._needs: dict[str, Vector] = {}

    def choose(self, pod: SimPod) -> str | None:
        while self._ends and self._ends[0][0] <= self._clock.monotonic():
            _, uid, node = heapq.heappop(self._ends)
            self._left[node] += self._needs.pop(uid)
        return super().choose(pod)

    def _left_now(self, node: str) -> Vector:
        return self._left[node]

    def _spare(self, pod: SimPod, node: str) -> float:
        left = self._left[node] - _charged(np.array(pod.peak))
        return float(left[0]) if (left >= 0.0).all() else -math.inf

    def _take(self, pod: SimPod, node: str) -> None:
        need = np.zeros(2) if pod.stuck else _charged(np.array(pod.peak))
        start = self._clock.monotonic() + pod.kubelet_delay + CONTAINER_RUNS
        self._left[node] -= need
        self._needs[pod.uid] = need
        heapq.heappush(self._ends, (math.inf if pod.crashes or pod.stuck else start + pod.life, pod.uid, node))


class ByFuture(Oracle):
    """Knows the demand of every pod over its whole life, and overloads no node at any time."""

    STEP = 0.5  # s

    def __init__(self, nodes: Mapping[str, Hardware], clock: Timeline, seconds: float) -> None:
        """For `seconds` of simulated time, in which all pods end."""
        super().__init__(nodes, clock)
        self._times = np.arange(0.0, seconds, self.STEP)
        self._left = {name: np.tile(room, (len(self._times), 1)) for name, room in self._empty.items()}
        self._needs: dict[str, tuple[int, Vector]] = {}  # of waiting pods: first step, and need per step

    def _left_now(self, node: str) -> Vector:
        left: Vector = self._left[node][int(self._clock.monotonic() / self.STEP)]
        return left

    def _spare(self, pod: SimPod, node: str) -> float:
        first, need = self._need(pod)
        left = self._left[node][first : first + len(need)]
        left = left - need[: len(left)]
        return float(left[:, 0].min(initial=1e9)) if (left >= 0.0).all() else -math.inf

    def _need(self, pod: SimPod) -> tuple[int, Vector]:
        """The first step in which it runs, and its need in each step from there."""
        first = int((self._clock.monotonic() + pod.kubelet_delay + CONTAINER_RUNS) / self.STEP)
        known = self._needs.get(pod.uid)
        if known is None or (pod.in_step and known[0] != first):
            known = self._needs[pod.uid] = (first, self._whole_need(pod, first))
        return first, known[1]

    def _whole_need(self, pod: SimPod, first: int) -> Vector:
        """The need per step, for any start within the first step."""
        if pod.stuck:
            return np.zeros((0, 2))
        if pod.crashes:
            return np.tile(_charged(np.array(pod.peak)), (len(self._times), 1))
        steps = int(min(pod.life / self.STEP, len(self._times))) + 2
        start = first * self.STEP
        times = start + self.STEP / 2 * np.arange(2 * steps + 1, dtype=np.float64)
        demand = np.maximum(pod.demand(start, times), pod.demand(start + self.STEP, times))
        both = np.maximum(demand[:-1], demand[1:])
        return _charged(np.maximum(both[0::2], both[1::2]))

    def _take(self, pod: SimPod, node: str) -> None:
        first, need = self._need(pod)
        left = self._left[node][first : first + len(need)]
        left -= need[: len(left)]
        del self._needs[pod.uid]


def _base(hardware: Hardware) -> Vector:
    return np.array((hardware.base[0] * hardware.threads, hardware.base[1] * hardware.memory))


def _charged(demand: Vector) -> Vector:
    """A pod's demand including the kernel's work for it."""
    return demand * (1.0 + OVERHEAD, 1.0)
