"""From the promise to the binding, outside the cycle: permit ─► pre-bind ─► bind ─► post-bind.

Up to `places` pods are on this way at once. Whatever goes wrong on it gives the reservation back and returns the pod
to the queue, unless the pod itself is gone or somebody else has bound it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter

from carico.clock import Clock
from carico.kube import binding
from carico.kube.binding import Bound, Outcome
from carico.kube.client import Client
from carico.kube.events import Event, Recorder
from carico.scheduler.cluster import Cluster
from carico.scheduler.cycle import Decision, unreserve
from carico.scheduler.decisions import Record, Ring
from carico.scheduler.framework import Code
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.profiles import Profile
from carico.scheduler.queue import Queued
from carico.scheduler.unschedulable import Refusal

log = logging.getLogger(__name__)


class Binder:
    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        recorder: Recorder,
        ring: Ring,
        metrics: SchedulerMetrics,
        clock: Clock,
        *,
        places: int,
        may_bind: Callable[[], bool],
    ) -> None:
        self._client, self._cluster, self._recorder, self._ring = client, cluster, recorder, ring
        self._metrics, self._clock, self._may_bind = metrics, clock, may_bind
        self._places = places
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.bound = 0

    @property
    def under_way(self) -> int:
        return len(self._tasks)

    @property
    def has_place(self) -> bool:
        """Whether one more pod may set out."""
        return len(self._tasks) < self._places

    async def wait_for_place(self) -> None:
        while not self.has_place:
            self._freed.clear()
            await self._freed.wait()

    def start(self, profile: Profile, queued: Queued, decision: Decision, began: float) -> None:
        """Takes the pod on its way; `began` is when its attempt began, s of perf_counter."""
        task = asyncio.get_running_loop().create_task(self._walk(profile, queued, decision, began))
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def drain(self) -> None:
        """Waits for those that are on their way."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("binding broke", exc_info=error)

    async def _walk(self, profile: Profile, queued: Queued, decision: Decision, began: float) -> None:
        try:
            outcome = await self._steps(profile, decision)
        except BaseException as error:
            self._failed(profile, queued, decision, Outcome(Bound.FAILED, f"{type(error).__name__}: {error}"), began)
            raise
        if outcome.bound is Bound.DONE:
            self._done(profile, queued, decision, began)
        else:
            self._failed(profile, queued, decision, outcome, began)

    async def _steps(self, profile: Profile, decision: Decision) -> Outcome:
        cycle, node = decision.cycle, decision.node
        for permit in profile.permits:
            if not (status := await permit.permit(cycle, node)).ok:
                return Outcome(Bound.FAILED, status.message)
        for pre_bind in profile.pre_binds:
            if not (status := await pre_bind.pre_bind(cycle, node)).ok:
                return Outcome(Bound.FAILED, status.message)
        for bind in profile.binds:
            status = await bind.bind(cycle, node)
            if status.code is not Code.SKIP:
                return Outcome(Bound.DONE if status.ok else Bound.FAILED, status.message)
        with profile.timed("Bind"):
            return await binding.bind(self._client, cycle.pod.pod, node, self._clock, self._may_bind)

    def _done(self, profile: Profile, queued: Queued, decision: Decision, began: float) -> None:
        pod, node = decision.cycle.pod.pod, decision.node
        self._cluster.queue.done(pod.uid, self._clock.monotonic())
        self.bound += 1
        for plugin in profile.post_binds:
            plugin.post_bind(decision.cycle, node)
        note = f"Successfully assigned {pod.key} to {node}{decision.remark}"
        self._recorder.put(Event(pod, "Normal", "Scheduled", "Binding", note))
        self._count(profile, queued, "scheduled", began)

    def _count(self, profile: Profile, queued: Queued, result: str, began: float) -> None:
        self._metrics.attempts.labels(result, profile.name).inc()
        self._metrics.attempt_seconds.labels(result, profile.name).observe(perf_counter() - began)
        if result == "scheduled":
            waited = self._clock.monotonic() - queued.queued_at
            self._metrics.sli_seconds.labels(str(min(queued.attempts, 16))).observe(waited)
            self._metrics.pod_attempts.observe(queued.attempts)
            if queued.after_flush:
                self._metrics.after_flush.inc()

    def _failed(self, profile: Profile, queued: Queued, decision: Decision, outcome: Outcome, began: float) -> None:
        info = decision.cycle.pod
        unreserve(profile, decision.cycle, decision.node)
        self._cluster.unassume(info)
        self._metrics.conflicts.labels(outcome.bound.value).inc()
        self._ring.add(
            Record(
                self._clock.wall(), info.pod.key, info.uid, profile.name, queued.attempts, decision.node,
                outcome.bound.value, reasons=outcome.why,
            )
        )  # fmt: skip
        if outcome.bound is Bound.FAILED:
            log.warning("binding %s to %s failed: %s", info.pod.key, decision.node, outcome.why)
            self._count(profile, queued, "error", began)
            self._cluster.queue.fail(queued, Refusal(), self._clock.monotonic(), blindly=True)
            note = f"binding to {decision.node} failed: {outcome.why}"
            self._recorder.put(Event(info.pod, "Warning", "FailedScheduling", "Scheduling", note))
        else:
            self._cluster.queue.done(info.uid, self._clock.monotonic())
