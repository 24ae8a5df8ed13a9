"""What happens to a pod that found no node: others may have to make room, people are told, and it waits.

The pod's condition and its Event trail behind: a pod that fails again before its condition was written is written once,
with the latest reason (kube/writer.py).
"""

from __future__ import annotations

import logging

from carico.clock import Clock
from carico.kube import pod_writes
from carico.kube.client import Client
from carico.kube.events import Event, Recorder
from carico.kube.objects import Pod
from carico.kube.writer import Writer
from carico.scheduler.cluster import Cluster
from carico.scheduler.cycle import Decision
from carico.scheduler.framework import Code, Nomination
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.plugins.unsupported import Unsupported, reasons
from carico.scheduler.queue import Queued, Refusal
from carico.scheduler.template import PodInfo

log = logging.getLogger(__name__)


class Failures:
    def __init__(
        self,
        client: Client,
        writer: Writer,
        cluster: Cluster,
        recorder: Recorder,
        metrics: SchedulerMetrics,
        clock: Clock,
    ) -> None:
        self._client, self._writer, self._cluster = client, writer, cluster
        self._recorder, self._metrics, self._clock = recorder, metrics, clock

    def handle(self, queued: Queued, decision: Decision) -> None:
        info = decision.cycle.pod
        broke = decision.code is Code.ERROR
        if decision.refusal is not None and Unsupported.name in decision.refusal.plugins:
            for feature in reasons(info):
                self._metrics.unsupported.labels(feature).inc()
        if decision.nomination is not None:
            self._preempt(info, decision.nomination)
        self._cluster.queue.fail(queued, decision.refusal or Refusal(), self._clock.monotonic(), blindly=broke)
        self._tell(info.pod, "SchedulerError" if broke else "Unschedulable", decision)
        self._recorder.put(Event(info.pod, "Warning", "FailedScheduling", "Scheduling", decision.message))

    def _tell(self, pod: Pod, reason: str, decision: Decision) -> None:
        nominated = decision.nomination.node if decision.nomination is not None else None
        if nominated is None and pod.status.nominated_node_name:
            nominated = ""  # nothing came of it
            self._cluster.snapshot.unnominate(pod.uid)
        said = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
        if (
            nominated is None
            and said
            and (said.status, said.reason, said.message) == ("False", reason, decision.message)
        ):
            return
        if nominated is not None:
            self._writer.put(
                pod_writes.nomination(self._client, pod, nominated, wanted=lambda: pod.uid in self._cluster.queue)
            )
        self._writer.put(
            pod_writes.condition(
                self._client, pod, reason, decision.message, self._clock,
                wanted=lambda: pod.uid in self._cluster.queue,
                on_end=lambda error: log.warning("condition of %s: %s", pod.key, error) if error else None,
            )
        )  # fmt: skip

    def _preempt(self, info: PodInfo, nomination: Nomination) -> None:
        self._metrics.preemptions.inc()
        self._metrics.victims.observe(len(nomination.victims))
        self._cluster.snapshot.nominate(info, nomination.node)
        for victim in nomination.victims:
            self._evict(victim.pod, info.pod, nomination.node)

    def _evict(self, victim: Pod, preemptor: Pod, node: str) -> None:
        def ended(error: Exception | None) -> None:
            if error is not None:
                log.warning("evicting %s for %s failed: %s", victim.key, preemptor.key, error)
                return
            note = f"Preempted by pod {preemptor.uid} on node {node}"
            self._recorder.put(Event(victim, "Normal", "Preempted", "Preempting", note, preemptor))

        scheduler = preemptor.spec.scheduler_name
        self._writer.put(pod_writes.eviction(self._client, victim, scheduler, self._clock, on_end=ended))
