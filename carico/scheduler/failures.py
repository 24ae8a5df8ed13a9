"""What happens to a pod that found no node: others may have to make room, people are told, and it waits.

The pod's condition and its Event trail behind: a pod that fails again before its condition was written is written once,
with the latest reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from carico.clock import Clock
from carico.errors import CaricoError
from carico.kube import binding
from carico.kube.client import ApiError, Client
from carico.kube.events import Event, Recorder
from carico.kube.objects import Pod
from carico.scheduler.cluster import Cluster
from carico.scheduler.cycle import Decision
from carico.scheduler.framework import Code, Nomination
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.plugins.unsupported import Unsupported, unsupported
from carico.scheduler.queue import Queued, Refusal
from carico.scheduler.template import PodInfo

log = logging.getLogger(__name__)

WRITERS = 4  # conditions that are written at once


class Failures:
    def __init__(
        self, client: Client, cluster: Cluster, recorder: Recorder, metrics: SchedulerMetrics, clock: Clock
    ) -> None:
        self._client, self._cluster, self._recorder, self._clock = client, cluster, recorder, clock
        self._metrics = metrics
        self._told: OrderedDict[str, tuple[Pod, str, str, str | None]] = OrderedDict()
        self._news = asyncio.Semaphore(0)
        self._evictions: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._told) + len(self._evictions)

    def handle(self, queued: Queued, decision: Decision) -> None:
        info = decision.cycle.pod
        broke = decision.code is Code.ERROR
        if decision.refusal is not None and Unsupported.name in decision.refusal.plugins:
            for feature in unsupported(decision.cycle):
                self._metrics.unsupported.labels(feature).inc()
        if decision.nomination is not None:
            self._preempt(info, decision.nomination)
        self._cluster.queue.fail(queued, decision.refusal or Refusal(), self._clock.monotonic(), blindly=broke)
        self._tell(info.pod, "SchedulerError" if broke else "Unschedulable", decision)
        self._recorder.put_now(Event(info.pod, "Warning", "FailedScheduling", "Scheduling", decision.message))

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
        if pod.uid not in self._told:
            self._news.release()
        self._told[pod.uid] = (pod, reason, decision.message, nominated)

    def _preempt(self, info: PodInfo, nomination: Nomination) -> None:
        self._metrics.preemptions.inc()
        self._metrics.victims.observe(len(nomination.victims))
        self._cluster.snapshot.nominate(info, nomination.node)
        for victim in nomination.victims:
            task = asyncio.get_running_loop().create_task(self._evict(victim.pod, info.pod, nomination.node))
            self._evictions.add(task)
            task.add_done_callback(self._evictions.discard)

    async def _evict(self, victim: Pod, preemptor: Pod, node: str) -> None:
        try:
            await binding.evict(self._client, victim, preemptor.spec.scheduler_name, self._clock)
        except (CaricoError, OSError) as error:
            log.warning("evicting %s for %s failed: %s", victim.key, preemptor.key, error)
            return
        note = f"Preempted by pod {preemptor.uid} on node {node}"
        self._recorder.put_now(Event(victim, "Normal", "Preempted", "Preempting", note, preemptor))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._writer())

    async def _writer(self) -> None:
        while True:
            await self._news.acquire()
            _, (pod, reason, message, nominated) = self._told.popitem(last=False)
            try:
                await binding.mark_unschedulable(self._client, pod, reason, message, nominated, self._clock)
            except ApiError as error:
                if error.status not in binding.NOT_THIS_POD:
                    log.warning("condition of %s: %s", pod.key, error)
            except (CaricoError, OSError) as error:
                log.warning("condition of %s: %s", pod.key, error)
