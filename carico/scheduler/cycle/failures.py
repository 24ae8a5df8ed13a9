"""Handles a pod that found no node: preemption, condition and Event, and return to the queue.

All writes go through the one writer, which retries and coalesces: for a pod that fails again before its condition was
written, the condition is written once, with the latest reason.
"""

from __future__ import annotations

from carico.clock import Clock
from carico.kube import pod_writes
from carico.kube.client import Client
from carico.kube.events import Event, EventRecorder
from carico.kube.objects import Pod
from carico.kube.writer import ApiWriter
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cluster_cache import ClusterCache
from carico.scheduler.cycle.evictions import Evictions
from carico.scheduler.cycle.scheduling_cycle import Decision
from carico.scheduler.framework.contract import Code, HoldRoom, Nomination, PostFilterAction, WakeUp
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.plugins.unsupported import Unsupported, unsupported
from carico.scheduler.queue.entries import Queued
from carico.scheduler.queue.unschedulable import Diagnosis


class Failures:
    def __init__(
        self,
        client: Client,
        writer: ApiWriter,
        cluster: ClusterCache,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        clock: Clock,
    ) -> None:
        self._client, self._cluster, self._writer, self._recorder = client, cluster, writer, recorder
        self._metrics, self._clock = metrics, clock
        self.evictions = Evictions(client, cluster, writer, recorder, metrics.evictions, clock)

    def handle(self, queued: Queued, decision: Decision) -> None:
        info = decision.cycle.pod
        broke = decision.code is Code.ERROR
        if decision.refusal is not None and Unsupported.name in decision.refusal.plugins:
            for feature in unsupported(decision.cycle):
                self._metrics.unsupported.labels(feature).inc()
        self._cluster.queue.fail(queued, decision.refusal or Diagnosis(), self._clock.monotonic(), blindly=broke)
        for action in decision.actions:
            self._act(info, action)
        if decision.preemption is None and not broke:
            self._clear_nomination(info)
        self.report(info.pod, "SchedulerError" if broke else "Unschedulable", decision.message)

    def handle_group(self, first: Queued, decision: Decision) -> None:
        """Not all pods of the group have a node: each gets the condition, and the one that found none the Event."""
        broke = decision.code is Code.ERROR
        assert first.pod_group is not None
        message = f"pod group {first.pod_group.key[2]}: {decision.cycle.pod.pod.key}: {decision.message}"
        self._cluster.queue.fail(first, decision.refusal or Diagnosis(), self._clock.monotonic(), blindly=broke)
        reason = "SchedulerError" if broke else "Unschedulable"
        for info in first.infos:
            self._clear_nomination(info)
            self._write_condition(info.pod, reason, message)
        self._recorder.put(Event(decision.cycle.pod.pod, "Warning", "FailedScheduling", "Scheduling", message))

    def report(self, pod: Pod, reason: str, message: str) -> None:
        """Writes condition and Event of an unschedulable pod."""
        self._recorder.put(Event(pod, "Warning", "FailedScheduling", "Scheduling", message))
        self._write_condition(pod, reason, message)

    def _write_condition(self, pod: Pod, reason: str, message: str) -> None:
        condition = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
        if condition is None or (condition.status, condition.reason, condition.message) != ("False", reason, message):
            waits = lambda: pod.uid in self._cluster.queue and pod.uid not in self._cluster.assumed  # noqa: E731
            self._writer.put(pod_writes.condition(self._client, pod, reason, message, self._clock, wanted=waits))

    def _act(self, info: PodInfo, action: PostFilterAction) -> None:
        """Performs an action of a PostFilter plugin; `Wait` needs nothing."""
        if isinstance(action, Nomination):
            self._nominate(info, action)
        elif isinstance(action, HoldRoom):
            self._cluster.hold(action.name, action.node, action.pod, action.seconds)
        elif isinstance(action, WakeUp):
            for uid in action.uids:
                self._cluster.queue.activate(uid, self._clock.monotonic())

    def _nominate(self, info: PodInfo, nomination: Nomination) -> None:
        if nomination.victims:
            self._metrics.preemptions.inc()
            self._metrics.victims.observe(len(nomination.victims))
        losers = self._cluster.nominate(info, nomination.node, nomination.victims)
        for loser in losers:
            self.evictions.withdraw(loser.uid)
            self._writer.put(pod_writes.nomination(self._client, loser.pod, ""))
        self._writer.put(pod_writes.nomination(self._client, info.pod, nomination.node))
        if nomination.victims:
            self.evictions.start(info, nomination)

    def _clear_nomination(self, info: PodInfo) -> None:
        """Ends the pod's nomination: evicting pods would not help any more."""
        if info.uid in self._cluster.snapshot.nominated or info.pod.status.nominated_node_name:
            self._cluster.unnominate(info.uid)
            self._writer.put(pod_writes.nomination(self._client, info.pod, ""))
