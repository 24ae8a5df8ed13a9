"""A scheduler without a network: tests call watch events, cycles and reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from carico.kube.objects import Pod
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cycle.group_cycle import decide_group
from carico.scheduler.cycle.scheduling_cycle import Decision, decide, unreserve
from carico.scheduler.queue.entries import Queued
from carico.scheduler.queue.unschedulable import Diagnosis
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_report


class World:
    """A scheduler without a network."""

    def __init__(self, nodes: dict[str, float], cpu: str = "8", **settings: Any) -> None:
        self.clock = ManualClock()
        self.settings = SchedulerSettings(validate=True, **settings)
        self.parts: Components = assemble(self.settings, self.clock, None)
        self.cluster, self.queue, self.ledger = self.parts.cluster, self.parts.queue, self.parts.ledger
        self.rng = np.random.default_rng(1)
        self.seen: dict[str, Pod] = {}
        for name, capacity in nodes.items():
            self.cluster.node_changed(None, make_node(name, cpu=cpu))
            self.report(name, capacity)

    def report(self, node: str, capacity: float, counted: tuple[str, ...] = (), **changes: Any) -> None:
        self.ledger.report(make_report(node, capacity, counted, **changes), self.clock.monotonic())
        self.cluster.capacity_changed()

    def see(self, pod: Pod | None, key: str = "") -> None:
        """Deliver a watch event."""
        key = pod.key if pod is not None else key
        self.cluster.pod_changed(self.seen.get(key), pod)
        if pod is None:
            self.seen.pop(key, None)
        else:
            self.seen[key] = pod

    def attempt(self) -> tuple[Queued, Decision]:
        queued = self.queue.pop(self.clock.monotonic())
        assert queued is not None, "no pod's turn"
        profile = self.parts.profiles[queued.info.pod.spec.scheduler_name]
        decision = decide(profile, self.cluster, queued.info, self.rng)
        if not decision.node:
            self.queue.fail(queued, decision.refusal or Diagnosis(), self.clock.monotonic())
        return queued, decision

    def fail_binding(self, queued: Queued, decision: Decision) -> None:
        unreserve(self.parts.profiles["carico"], decision.cycle, decision.node)
        self.cluster.unassume(decision.cycle.pod)
        self.queue.fail(queued, Diagnosis(), self.clock.monotonic(), blindly=True)

    def free(self, node: str) -> float:
        account = self.ledger.account(node)
        assert account is not None
        return float(self.ledger.free[account.row])

    def drain(self) -> list[str]:
        """Run cycles for all pods of the active queue; returns the names of those that got a node."""
        placed = []
        while (queued := self.queue.pop(self.clock.monotonic())) is not None:
            if queued.pod_group is not None:
                placed += [decision.cycle.pod.pod.name for decision in self._attempt_group(queued)[1]]
                continue
            decision = decide(
                self.parts.profiles[queued.info.pod.spec.scheduler_name], self.cluster, queued.info, self.rng
            )
            if decision.node:
                placed.append(queued.info.pod.name)
            else:
                self.queue.fail(queued, decision.refusal or Diagnosis(), self.clock.monotonic())
        return placed

    def attempt_group(self) -> tuple[list[Queued], list[Decision]]:
        """The next entry is a group; empty if not all of its pods have a node."""
        queued = self.queue.pop(self.clock.monotonic())
        assert queued is not None, "no pod's turn"
        return self._attempt_group(queued)

    def _attempt_group(self, first: Queued) -> tuple[list[Queued], list[Decision]]:
        profile = self.parts.profiles[first.info.pod.spec.scheduler_name]
        found = decide_group(profile, self.cluster, first.infos, self.rng)
        if found.refused is None:
            return self.queue.split(first), found.placed
        self.queue.fail(first, found.refused.refusal or Diagnosis(), self.clock.monotonic())
        return [], []

    def place(self, name: str) -> str:
        """The part of the queue in which a pod is."""
        queued = self.queue.get(f"uid-{name}")
        return queued.place if queued is not None else ""

    def refuse(self, *pods: Pod) -> None:
        for pod in pods:
            self.see(pod)
            assert not self.attempt()[1].node, f"{pod.name} was not to find a node"
