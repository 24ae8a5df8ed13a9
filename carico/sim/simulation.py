"""One scheduler in one scenario: nodes, the API server's pods, controllers, faults and the scheduler on one timeline.

The machines, kubelets and the API server are models. The agents' pod table, meter, estimation and report rule, the
aggregator's state, and the scheduler's queue, ledger, plugins and cycle are the real code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from carico.config import nearest
from carico.errors import UsageError
from carico.kube.meta import ObjectMeta
from carico.kube.objects import Node, Pod
from carico.runtime.pods import PodTable
from carico.settings import FULL, EstimateSettings, RuntimeSettings
from carico.sim import controllers, faults, policies
from carico.sim.agent import SimAgent
from carico.sim.closed_loop import room_of
from carico.sim.federation import Federation
from carico.sim.kubelet import DELETED, SUCCEEDED, SimKubelet
from carico.sim.machine import Hardware, Machine
from carico.sim.pods import RIGHT, PodFactory, node_object, right_requests
from carico.sim.policies.carico import REPORT_AGENT, REPORT_MERGE
from carico.sim.recorder import NodeSecond, PodRecord, Recorder
from carico.sim.scenario import Fault, NodeGroup, Scenario, ScenarioWorkload, SchedulerEntry
from carico.sim.scheduler import SimScheduler, read
from carico.sim.timeline import Timeline
from carico.sim.workload import SimPod
from carico.sim.world import SimNode
from carico.types import NodeReport

WATCH_DELAY = 0.02  # s from a change at the API server until a watcher has it
BIND_DELAY = 0.01  # s of a request to the API server
SHARING_DELAY = 1.0  # s until a class cost that one node has measured is known to all
LAG_SPREAD = 0.7  # a report's delay differs by up to this share of its mean
DELETED_AT = "2026-01-01T00:00:00Z"


class Simulation:
    def __init__(self, scenario: Scenario, entry: SchedulerEntry, seed: int) -> None:
        self.scenario, self.entry, self.seed = scenario, entry, seed
        self.timeline = Timeline()
        self._rng = np.random.default_rng([seed, 5])
        self._factories = {one.name: self._factory(i, one) for i, one in enumerate(scenario.workloads)}
        self._groups = dict(_named_nodes(scenario))
        policy = _named(policies.REGISTRY, entry.policy, "policy")(self, entry.args)
        self.scheduler = SimScheduler(policy, entry.settings, self.timeline, seed, self._bind, self.delete)
        self._agents_run = policy.agents
        self.nodes = {name: self._node(i, name) for i, name in enumerate(self._groups)}
        self._numbers = {name: i for i, name in enumerate(self.nodes)}
        self._away: set[str] = set()  # nodes without a Node object
        self.recorder = Recorder(list(self.nodes))
        self._pods: dict[str, Pod] = {}
        self._sim_pods: dict[str, SimPod] = {}
        self._on_end: dict[str, Callable[[str, str], None]] = {}
        self._last: dict[str, NodeReport] = {}
        self._shares = True
        agents = [node.agent for node in self.nodes.values() if node.agent is not None]
        merge = REPORT_MERGE if entry.policy == "carico-report" else "latest"
        every = scenario.telemetry.exchange_every
        self._federation = Federation(self.timeline, agents, self.scheduler, SHARING_DELAY, every, merge)
        self._controllers = [self._controller(i, one) for i, one in enumerate(scenario.workloads)]
        for fault in scenario.faults:
            self._plan_fault(fault)

    # Building

    def _factory(self, number: int, workload: ScenarioWorkload) -> PodFactory:
        wanted = self.entry.requests
        if isinstance(wanted, str):
            if wanted != RIGHT:
                raise UsageError(f"scheduler {self.entry.title}: requests is {wanted!r}; it is `right` or per workload")
            return PodFactory(workload, number, self.seed, right_requests(workload, self.seed))
        names = {one.name for one in self.scenario.workloads}
        for name in wanted:
            if name not in names:
                raise UsageError(
                    f"scheduler {self.entry.title}: requests name no workload {name!r}{nearest(name, names)}"
                )
        return PodFactory(workload, number, self.seed, wanted.get(workload.name, workload.pod.requests))

    def _node(self, number: int, name: str) -> SimNode:
        group = self._groups[name]
        base = (float(group.base.cpu), float(group.base.memory))
        hardware = Hardware(group.cores, group.memory, base, group.contention)
        machine = Machine(hardware, np.random.default_rng([self.seed, 2, number]))
        kubelet = SimKubelet(self.timeline, machine, PodTable(RuntimeSettings()), self._running, self._ended)
        self.timeline.at(0.0, lambda: self.scheduler.node_changed(None, node_object(name, group)))
        if not self._agents_run:
            return SimNode(name, machine, kubelet, None)
        rate = self.scenario.telemetry.rate_hz
        given = {"batch": rate} | (dict(REPORT_AGENT) if self.entry.policy == "carico-report" else {})
        settings = read(EstimateSettings, given | self.entry.agent, f"scheduler {self.entry.title}: agent")
        agent = SimAgent(name, self.timeline, machine, kubelet, settings, self._send, rate)
        return SimNode(name, machine, kubelet, agent)

    def _controller(self, number: int, workload: ScenarioWorkload) -> controllers.Controller:
        make = _named(controllers.REGISTRY, workload.controller, "controller")
        controller: controllers.Controller = make(self, workload, np.random.default_rng([self.seed, 6, number]))
        self.timeline.at(self.scenario.warm_up + workload.at, controller.start)
        return controller

    def _plan_fault(self, fault: Fault) -> None:
        call = _named(faults.REGISTRY, fault.kind, "fault")
        for name in fault.nodes:
            if name not in self.nodes:
                raise UsageError(f"fault {fault.kind}: there is no node {name!r}{nearest(name, self.nodes)}")
        names = list(fault.nodes or self.nodes)
        count = max(1, round(fault.share * len(names)))
        chosen = sorted(self._rng.choice(len(names), count, replace=False).tolist())
        self.timeline.at(self.scenario.warm_up + fault.at, lambda: call(self, fault, [names[i] for i in chosen]))

    # Time

    def run(self, on_second: Callable[[float], None] = lambda _: None) -> Recorder:
        rate = self.scenario.telemetry.rate_hz
        for tick in range(1, round((self.scenario.warm_up + self.scenario.seconds) * rate) + 1):
            now = tick / rate
            self.timeline.run(now)
            whole = tick % rate == 0
            for name, node in self.nodes.items():
                self._tick(name, node, now, whole=whole)
            if whole:
                self._second(now)
                on_second(now)
                if self._finished(now):
                    break
        return self.recorder

    def _tick(self, name: str, node: SimNode, now: float, *, whole: bool) -> None:
        moving = node.machine.moving
        if whole:
            node.machine.fluctuate(now)
        if whole or moving:
            node.kubelet.plan()
            node.kubelet.reclaim()
        if node.agent is not None and name not in self._away:
            node.agent.tick(now)

    def _second(self, now: float) -> None:
        if self._shares and self._agents_run:
            self._federation.exchange()
        self.scheduler.second()
        self.recorder.second(now, [_observe(node, now) for node in self.nodes.values()])

    def _finished(self, now: float) -> bool:
        ends = any(one.controller != "deployment" for one in self.scenario.workloads)
        return ends and now > self.scenario.warm_up and all(one.done for one in self._controllers)

    # The API server

    def create(self, workload: ScenarioWorkload, on_end: Callable[[str, str], None]) -> str:
        sim, pod = self._factories[workload.name].make()
        now, uid = self.timeline.monotonic(), sim.uid
        self._sim_pods[uid], self._on_end[uid] = sim, on_end
        ends = not (sim.stuck or sim.crashes) and sim.life < self.scenario.seconds
        self.recorder.pods[uid] = PodRecord(uid, workload.name, sim.life, ends, now)
        self._change(uid, pod)
        return uid

    def delete(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is None or pod.metadata.deletion_timestamp:
            return
        if not pod.spec.node_name:
            self._change(uid, None)
            self._end(uid, DELETED)
            return
        meta: ObjectMeta = msgspec.structs.replace(pod.metadata, deletion_timestamp=DELETED_AT)
        self._change(uid, msgspec.structs.replace(pod, metadata=meta))
        self.nodes[pod.spec.node_name].kubelet.kill(uid, DELETED)

    def _bind(self, uid: str, node: str) -> None:
        self.timeline.at(self.timeline.monotonic() + BIND_DELAY, lambda: self._bound(uid, node))

    def _bound(self, uid: str, node: str) -> None:
        pod = self._pods.get(uid)
        if pod is None or pod.spec.node_name:
            return
        record = self.recorder.pods[uid]
        record.bound, record.node = self.timeline.monotonic(), node
        self._change(uid, msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)))
        self.nodes[node].kubelet.bind(self._sim_pods[uid])
        if node in self._away:
            self.delete(uid)

    def _running(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            self.recorder.pods[uid].running = self.timeline.monotonic()
            self._change(uid, _with_phase(pod, "Running"))

    def _ended(self, uid: str, outcome: str) -> None:
        pod = self._pods[uid]
        if outcome == DELETED:
            self._change(uid, None)
        else:
            self._change(uid, _with_phase(pod, "Succeeded" if outcome == SUCCEEDED else "Failed"))
            del self._pods[uid]  # it stays at the API server, and nothing more happens to it
        self._end(uid, outcome)

    def _end(self, uid: str, outcome: str) -> None:
        record = self.recorder.pods[uid]
        record.ended, record.outcome = self.timeline.monotonic(), outcome
        del self._sim_pods[uid]
        self._on_end.pop(uid)(uid, outcome)

    def _change(self, uid: str, new: Pod | None) -> None:
        """The scheduler receives it after the delay of its watch."""
        old = self._pods.get(uid)
        if new is None:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = new
        self.timeline.at(self.timeline.monotonic() + WATCH_DELAY, lambda: self.scheduler.pod_changed(old, new))

    # What controllers, faults and policies see

    def cpu_usage(self, uid: str) -> float | None:
        record = self.recorder.pods[uid]
        node = self.nodes.get(record.node)
        if node is None or not node.machine.has(uid):
            return None
        return node.machine.usage_of(uid)

    def stop_agent(self, node: str) -> None:
        if (agent := self.nodes[node].agent) is not None:
            agent.stop()
            self.scheduler.agent_disconnected(node)

    def start_agent(self, node: str) -> None:
        if (agent := self.nodes[node].agent) is not None:
            agent.restart()

    def remove_node(self, node: str) -> None:
        if node in self._away:
            return
        self._away.add(node)
        self.stop_agent(node)
        self._change_node(node_object(node, self._groups[node]), None)
        for uid, pod in list(self._pods.items()):
            if pod.spec.node_name == node:
                self.delete(uid)

    def restore_node(self, node: str) -> None:
        if node in self._away:
            self._away.remove(node)
            self._change_node(None, node_object(node, self._groups[node]))
            self.start_agent(node)

    def _change_node(self, old: Node | None, new: Node | None) -> None:
        self.timeline.at(self.timeline.monotonic() + WATCH_DELAY, lambda: self.scheduler.node_changed(old, new))

    def share(self, *, on: bool) -> None:
        self._shares = on

    def pause_scheduler(self, *, on: bool) -> None:
        self.scheduler.pause(on=on)

    def usage(self, node: str, seconds: float, until: float) -> tuple[float, float] | None:
        number = self._numbers.get(node)  # None: a row without a node
        return None if number is None else self.recorder.usage_before(number, seconds, until)

    def rejecting(self, node: str) -> bool:
        report = self._last.get(node)
        return report is not None and report.estimate.rejecting

    def sim_pod(self, uid: str) -> SimPod:
        return self._sim_pods[uid]

    def true_need(self, node: str) -> tuple[float, float]:
        """Of pods that are bound there but whose sandbox does not run yet, too."""
        machine, kubelet = self.nodes[node].machine, self.nodes[node].kubelet
        threads, memory = machine.expected_demand(self.timeline.monotonic())
        on_the_way = [placed.pod for placed in kubelet.pods.values() if placed.is_coming]
        assumed = [self._sim_pods[uid] for uid, there in self.scheduler.parts.cluster.assumed.items() if there == node]
        coming = {pod.uid: pod for pod in (*on_the_way, *assumed)}.values()
        return threads + sum(pod.peak[0] for pod in coming), memory + sum(pod.peak[1] for pod in coming)

    def true_size(self, node: str) -> tuple[float, float]:
        hardware = self.nodes[node].machine.hardware
        return hardware.cores, hardware.memory

    # Reports

    def _send(self, report: NodeReport) -> None:
        mean = self.scenario.telemetry.report_lag
        lag = float(self._rng.uniform(mean * (1.0 - LAG_SPREAD), mean * (1.0 + LAG_SPREAD)))
        self.timeline.at(self.timeline.monotonic() + lag, lambda: self._deliver(report))

    def _deliver(self, report: NodeReport) -> None:
        if report.node not in self._away:
            self._last[report.node] = report
            self.scheduler.report(report)


def _named_nodes(scenario: Scenario) -> Iterator[tuple[str, NodeGroup]]:
    for group in scenario.nodes:
        for i in range(group.count):
            yield f"{group.name}-{i}", group


def _named(registry: dict[str, Any], name: str, what: str) -> Any:
    if name not in registry:
        hint = nearest(name, registry) or f"; there are {', '.join(sorted(registry))}"
        raise UsageError(f"no {what} is called {name!r}{hint}")
    return registry[name]


def _with_phase(pod: Pod, phase: str) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase))


def _observe(node: SimNode, now: float) -> NodeSecond:
    (room, _), (true_room, _) = room_of(node, now)
    cpu, memory = node.machine.demand(now)
    hardware = node.machine.hardware
    usage = min(1.0, float(node.machine.shares().usage.sum()) / hardware.cores)
    return NodeSecond(usage, cpu * 2.0, memory, node.kubelet.running, room, max(0.0, min(FULL, true_room)))
