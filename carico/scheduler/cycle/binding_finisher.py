"""Ends a binding cycle: keeps or releases the reservation, requeues the pod, writes Event, record and metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from carico.clock import Clock
from carico.kube.binding import BindOutcome, BindResult
from carico.kube.events import Event, EventRecorder
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cluster_cache import ClusterCache
from carico.scheduler.cycle.decision_log import DecisionLog, DecisionRecord
from carico.scheduler.cycle.profiles import Profile
from carico.scheduler.cycle.scheduling_cycle import Decision, unreserve
from carico.scheduler.framework.contract import Code
from carico.scheduler.framework.in_flight import InFlightPod
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.queue.entries import Queued
from carico.scheduler.queue.unschedulable import Diagnosis

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A pod that was assigned a node, and the decision behind it."""

    profile: Profile
    queued: Queued
    decision: Decision
    began: float  # s of perf_counter
    in_flight: InFlightPod

    @property
    def info(self) -> PodInfo:
        return self.decision.cycle.pod

    @property
    def node(self) -> str:
        return self.decision.node


@dataclass(frozen=True, slots=True)
class Rejection:
    """A Permit plugin rejected the pod."""

    plugin: str
    why: str


class BindingFinisher:
    def __init__(
        self,
        cluster: ClusterCache,
        recorder: EventRecorder,
        ring: DecisionLog,
        metrics: SchedulerMetrics,
        clock: Clock,
        on_failure: Callable[[Queued, Decision], object],
    ) -> None:
        self._cluster, self._recorder, self._ring = cluster, recorder, ring
        self._metrics, self._clock, self._on_failure = metrics, clock, on_failure
        self.bound = 0

    def conclude(self, attempt: Attempt, outcome: BindOutcome | Rejection) -> None:
        """Handles a known outcome; see `note_unknown` for the other case."""
        bound = outcome.bound if isinstance(outcome, BindOutcome) else None
        if bound is BindResult.DONE:
            self._done(attempt)
        elif isinstance(outcome, BindOutcome) and bound in (BindResult.GONE, BindResult.ELSEWHERE):
            self._needless(attempt, outcome)
        elif attempt.info.uid not in self._cluster.queue:  # it was deleted in the meantime
            self._needless(attempt, BindOutcome(BindResult.GONE, outcome.why))
        elif isinstance(outcome, Rejection):
            self._handle_rejection(attempt, outcome)
        else:
            self._handle_failure(attempt, outcome)

    def note_unknown(self, attempt: Attempt, outcome: BindOutcome) -> None:
        """The binding was sent and its outcome is not known: the pod keeps its reservation."""
        log.warning("whether %s was bound to %s is not known yet: %s", attempt.info.pod.key, attempt.node, outcome.why)
        self._metrics.conflicts.labels(outcome.bound.value).inc()

    @staticmethod
    def note_exception(profile: Profile, plugin: str, error: Exception) -> str:
        """A plugin raised an exception: only this pod's attempt fails. Returns the message."""
        profile.contain(plugin, error)
        return f"plugin {plugin} broke: {type(error).__name__}: {error}"

    # --- inside ---

    def _done(self, attempt: Attempt) -> None:
        pod, node = attempt.info.pod, attempt.node
        self._cluster.queue.done(pod.uid, self._clock.monotonic())
        self.bound += 1
        note = f"Successfully assigned {pod.key} to {node}{attempt.decision.figures.remark}"
        self._recorder.put(Event(pod, "Normal", "Scheduled", "Binding", note))
        self._count(attempt, "scheduled")
        for plugin in attempt.profile.post_binds:
            try:
                plugin.post_bind(attempt.decision.cycle, node)
            except Exception as error:
                self.note_exception(attempt.profile, plugin.name, error)

    def _needless(self, attempt: Attempt, outcome: BindOutcome) -> None:
        """The pod is gone, or another client bound it."""
        info = attempt.info
        self._unreserve(attempt)
        if outcome.pod is not None and info.uid in self._cluster.assumed:
            self._cluster.pod_changed(info.pod, outcome.pod)  # ahead of the watch event
        else:
            self._cluster.unassume(info)
        self._cluster.queue.done(info.uid, self._clock.monotonic())
        self._record(attempt, outcome.bound.value, outcome.why)
        self._metrics.conflicts.labels(outcome.bound.value).inc()

    def _handle_rejection(self, attempt: Attempt, rejection: Rejection) -> None:
        self._release(attempt)
        self._record(attempt, "rejected", rejection.why)
        self._count(attempt, "unschedulable")
        refusal = Diagnosis(frozenset({rejection.plugin}), attempt.profile.interests({rejection.plugin}))
        self._requeue(attempt, rejection.why, Code.UNSCHEDULABLE, refusal)

    def _handle_failure(self, attempt: Attempt, outcome: BindOutcome) -> None:
        log.warning("binding %s to %s failed: %s", attempt.info.pod.key, attempt.node, outcome.why)
        self._release(attempt)
        self._record(attempt, outcome.bound.value, outcome.why)
        self._metrics.conflicts.labels(outcome.bound.value).inc()
        self._count(attempt, "error")
        self._requeue(attempt, f"binding to {attempt.node} failed: {outcome.why}", Code.ERROR, Diagnosis())

    def _requeue(self, attempt: Attempt, message: str, code: Code, refusal: Diagnosis) -> None:
        decision = Decision(attempt.decision.cycle, message=message, code=code, refusal=refusal)
        self._on_failure(attempt.queued, decision)

    def _release(self, attempt: Attempt) -> None:
        self._unreserve(attempt)
        self._cluster.unassume(attempt.info)

    def _unreserve(self, attempt: Attempt) -> None:
        unreserve(attempt.profile, attempt.decision.cycle, attempt.node)

    def _record(self, attempt: Attempt, result: str, why: str) -> None:
        pod = attempt.info.pod
        self._ring.add(
            DecisionRecord(
                self._clock.wall(), pod.key, pod.uid, attempt.profile.name, attempt.queued.attempts, attempt.node,
                result, reasons=why,
            )
        )  # fmt: skip

    def _count(self, attempt: Attempt, result: str) -> None:
        profile, queued = attempt.profile, attempt.queued
        self._metrics.attempts.labels(result, profile.name).inc()
        self._metrics.attempt_seconds.labels(result, profile.name).observe(perf_counter() - attempt.began)
        if result == "scheduled":
            waited = self._clock.monotonic() - queued.queued_at
            self._metrics.sli_seconds.labels(str(min(queued.attempts, 16))).observe(waited)
            self._metrics.pod_attempts.observe(queued.attempts)
            if queued.after_flush:
                self._metrics.after_flush.inc()
