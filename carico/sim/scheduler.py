"""A scheduler on simulated time: the real queue, ledger, plugins and cycle, without a network.

A policy of carico/sim/policies chooses the plugins. Binding, watches and evictions are the simulation's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from carico import config
from carico.errors import UsageError
from carico.kube.objects import Node, Pod
from carico.scheduler.assembly import assemble
from carico.scheduler.cycle.scheduling_cycle import Decision, decide
from carico.scheduler.framework.contract import Code, Nomination
from carico.scheduler.plugins.default_preemption import DefaultPreemption
from carico.scheduler.plugins.registry import Factory
from carico.scheduler.queue.unschedulable import Diagnosis
from carico.settings import SchedulerSettings
from carico.sim.timeline import Timeline
from carico.sim.workload import RESOURCES
from carico.types import ClassCost, ClassKey, NodeReport

NAME = "carico"  # schedulerName of all simulated pods
FLUSH_EVERY = 30.0  # s


@dataclass(frozen=True)
class PolicyPlugins:
    """Which plugins place the pods, and what they need."""

    profile: Mapping[str, Any]  # as in [scheduler.profiles.NAME]
    factories: Mapping[str, Factory] = field(default_factory=dict)
    pods_per_second: float = 250.0  # attempts; about what the real scheduler reaches on two cores
    retry_every: float = 0.0  # s; above 0: its filters depend on data whose changes wake no pod
    agents: bool = False  # needs the nodes' reports


class SimScheduler:
    def __init__(
        self,
        policy: PolicyPlugins,
        settings: Mapping[str, Any],
        timeline: Timeline,
        seed: int,
        bind: Callable[[str, str], None],
        evict: Callable[[str], None],
    ) -> None:
        self._timeline, self._policy, self._bind, self._evict = timeline, policy, bind, evict
        self._rng = np.random.default_rng([seed, 4])
        # Its search is limited by processor time, which would make runs differ.
        preemption: Factory = lambda tools: DefaultPreemption(tools.clock.monotonic, seed, spent=lambda: 0.0)  # noqa: E731
        factories = {"DefaultPreemption": preemption} | dict(policy.factories)
        self.settings = read_settings(settings, {NAME: dict(policy.profile)})
        self.parts = assemble(self.settings, timeline, None, factories=factories)
        self._free_at = 0.0  # s, when the next attempt may begin
        self._planned = False
        self._flushed = self._retried = 0.0
        self._paused = False
        self.attempts = 0

    # What the simulation delivers

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        self.parts.cluster.node_changed(old, new)
        self._plan()

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self.parts.cluster.pod_changed(old, new)
        self._plan()

    def report(self, report: NodeReport) -> None:
        self.parts.cluster.apply_report(report)
        self._plan()

    def class_costs(self, costs: Mapping[ClassKey, ClassCost]) -> None:
        self.parts.cluster.aggregated(costs, RESOURCES)
        self._plan()

    def agent_disconnected(self, node: str) -> None:
        self.parts.ledger.mark_disconnected(node)
        self.parts.cluster.capacity_changed()
        self._plan()

    def second(self) -> None:
        now = self._timeline.monotonic()
        self.parts.cluster.tick()
        if now - self._flushed >= FLUSH_EVERY:
            self._flushed = now
            self.parts.queue.flush(now)
        if 0.0 < self._policy.retry_every <= now - self._retried:
            self._retried = now
            self.parts.queue.activate_all(now)
        self._plan()

    def pause(self, *, on: bool) -> None:
        self._paused = on
        self._plan()

    @property
    def waiting(self) -> int:
        return len(self.parts.queue)

    # One pod after the other

    def _plan(self) -> None:
        if self._planned or self._paused:
            return
        queue, now = self.parts.queue, self._timeline.monotonic()
        when = now if queue.ready else queue.next_due()
        if when < float("inf"):
            self._planned = True
            self._timeline.at(max(when, self._free_at), self._attempt)

    def _attempt(self) -> None:
        self._planned = False
        now = self._timeline.monotonic()
        queued = None if self._paused else self.parts.queue.pop(now)
        if queued is not None:
            self._free_at = now + 1.0 / self._policy.pods_per_second
            self.attempts += 1
            decision = decide(self.parts.profiles[NAME], self.parts.cluster, queued.info, self._rng)
            if decision.node:
                self._bind(queued.uid, decision.node)
            else:
                broke = decision.code is Code.ERROR
                self.parts.queue.fail(queued, decision.refusal or Diagnosis(), now, blindly=broke)
                self._preempt(decision)
        self._plan()

    def _preempt(self, decision: Decision) -> None:
        nomination = decision.preemption
        if isinstance(nomination, Nomination):
            self.parts.cluster.nominate(decision.cycle.pod, nomination.node, nomination.victims)
            for victim in nomination.victims:
                self._evict(victim.uid)


def read_settings(given: Mapping[str, Any], profiles: dict[str, Any]) -> SchedulerSettings:
    """The scheduler's settings with those that a scenario sets."""
    fixed = {"leader_elect": False, "plaintext": True, "profiles": profiles}
    return read(SchedulerSettings, {**fixed, **given}, "settings")


def read(kind: type[config.S], given: Mapping[str, Any], where: str) -> config.S:
    problems: list[str] = []
    found = {name: (value, where) for name, value in given.items()}
    made = config.validated(kind, found, problems)
    if problems:
        raise UsageError("\n".join(problems))
    return made
