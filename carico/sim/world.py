"""Nodes, a queue of pods and an admission method, on simulated time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from carico.runtime.pods import PodTable
from carico.settings import EstimateSettings, RuntimeSettings
from carico.sim.admission import SimAdmission
from carico.sim.agent import RATE_HZ, SimAgent
from carico.sim.federation import Federation
from carico.sim.kubelet import DRAIN, SimKubelet
from carico.sim.machine import OVERHEAD, Hardware, Machine
from carico.sim.timeline import Timeline
from carico.sim.workload import SimPod
from carico.types import NodeReport

REPORT_LAG = (0.02, 0.12)  # s of delay of a report to the scheduler
Pods = Iterator[SimPod]


@dataclass
class ArrivalStream:
    """Pods that wait for a node. The first `window` pods are tried, and not necessarily bound in order."""

    pods: Pods
    begin: float = 0.0  # s
    end: float = float("inf")  # s; pods that still wait then are dropped
    count: int = 1 << 60  # pods in total
    every: float = 0.0  # s between two arrivals; 0: all arrive at the beginning
    window: int = 4
    placed_by_others: bool = False  # each is bound to its node on arrival, regardless of room
    waiting: list[SimPod] = field(default_factory=list)
    drawn: int = 0

    def look(self, now: float) -> list[SimPod]:
        """The pods that wait now, at most `window` of them."""
        if not self.begin <= now < self.end:
            self.waiting.clear()
            return []
        come = self.count if not self.every else min(self.count, int((now - self.begin) / self.every) + 1)
        while len(self.waiting) < self.window and self.drawn < come:
            pod = next(self.pods, None)
            if pod is None:
                self.count = self.drawn
                break
            self.waiting.append(pod)
            self.drawn += 1
        return self.waiting


@dataclass
class SimNode:
    name: str
    machine: Machine
    kubelet: SimKubelet
    agent: SimAgent | None

    def mean_pod(self) -> tuple[float, float] | None:
        """The mean peak demand of the running pods, as ratios of the node; None if none runs."""
        pods = [placed.pod for placed in self.kubelet.pods.values() if placed.container_runs is not None]
        if not pods:
            return None
        hardware = self.machine.hardware
        threads = (1.0 + OVERHEAD) * sum(pod.peak[0] for pod in pods) / len(pods)
        return threads / hardware.threads, sum(pod.peak[1] for pod in pods) / len(pods) / hardware.memory


class World:
    """`estimate` None: no agents, for an oracle."""

    def __init__(
        self,
        timeline: Timeline,
        hardware: Mapping[str, Hardware],
        admission: SimAdmission,
        streams: list[ArrivalStream],
        seed: int,
        estimate: EstimateSettings | None,
        drain: float = DRAIN,
        sharing_delay: float = 1.0,
    ) -> None:
        self.timeline = timeline
        self._admission, self._streams = admission, streams
        self._rng = np.random.default_rng([seed, 1])
        self._where: dict[str, tuple[SimPod, str]] = {}
        self._news = True  # an event may have made room for a waiting pod
        self.nodes = {
            name: self._node(name, one, seed, i, estimate, drain) for i, (name, one) in enumerate(hardware.items())
        }
        agents = [node.agent for node in self.nodes.values() if node.agent is not None]
        self._federation = Federation(timeline, agents, admission, sharing_delay)

    def _node(
        self, name: str, hardware: Hardware, seed: int, number: int, estimate: EstimateSettings | None, drain: float
    ) -> SimNode:
        machine = Machine(hardware, np.random.default_rng([seed, 2, number]))
        table = PodTable(RuntimeSettings())
        kubelet = SimKubelet(self.timeline, machine, table, self._running, self._ended, drain)
        if estimate is None:
            return SimNode(name, machine, kubelet, None)
        return SimNode(name, machine, kubelet, SimAgent(name, self.timeline, machine, kubelet, estimate, self._send))

    def run(self, seconds: float, each_second: Callable[[float], None], each_tick: Callable[[float], None]) -> None:
        for i in range(1, round(seconds * RATE_HZ) + 1):
            now = i / RATE_HZ
            self.timeline.run(now)
            for node in self.nodes.values():
                if i % RATE_HZ == 0:
                    node.machine.fluctuate(now)
                if node.agent is not None:
                    node.agent.tick(now)
            if i % RATE_HZ == 0:
                self._federation.exchange()
                self._admission.look()
            self._schedule(now)
            each_tick(now)
            if i % RATE_HZ == 0:
                each_second(now)

    def restart_agent(self, node: str, at: float, outage: float) -> None:
        """Stops the node's agent for `outage` seconds, in which it gets no messages; it restarts without state."""
        agent = self.nodes[node].agent
        if agent is not None:
            self.timeline.at(at, agent.stop)
            self.timeline.at(at + outage, agent.restart)

    def place(self, pod: SimPod, node: str) -> None:
        """Binds the pod to the node now."""
        self._where[pod.uid] = (pod, node)
        self._admission.bound(pod, node)
        self.nodes[node].kubelet.bind(pod)

    def _schedule(self, now: float) -> None:
        for stream in self._streams:
            if stream.placed_by_others:
                self._place_all(stream, now)
            else:
                self._admit(stream, now)

    def _place_all(self, stream: ArrivalStream, now: float) -> None:
        for pod in list(stream.look(now)):
            stream.waiting.remove(pod)
            self.place(pod, min(pod.nodes) if pod.nodes else next(iter(self.nodes)))

    def _admit(self, stream: ArrivalStream, now: float) -> None:
        """First fit among the first `window` pods, repeated until none fits."""
        i = 0
        while i < len(waiting := stream.look(now)):
            pod = waiting[i]
            node = self._admission.choose(pod)
            if node is None:
                i += 1
            else:
                del waiting[i]
                self.place(pod, node)

    def _running(self, uid: str) -> None:
        pod, node = self._where[uid]
        self._admission.running(pod, node)

    def _ended(self, uid: str, outcome: str) -> None:  # noqa: ARG002
        pod, _ = self._where.pop(uid)
        self._admission.ended(pod)

    def _send(self, report: NodeReport) -> None:
        lag = float(self._rng.uniform(*REPORT_LAG))
        self.timeline.at(self.timeline.monotonic() + lag, lambda: self._admission.report(report))
