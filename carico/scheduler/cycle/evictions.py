"""Evicts the victims of nominated pods, until the API server has accepted all evictions.

A preemptor is held out of the queue meanwhile: an attempt would only find its victims still there. An eviction that the
API server rejects permanently ends the nomination, and the preemptor is retried.
"""

from __future__ import annotations

import logging
from functools import partial

from carico.clock import Clock
from carico.kube import pod_writes
from carico.kube.client import Client
from carico.kube.events import Event, EventRecorder
from carico.kube.metrics import EvictionMetrics, EvictionReason
from carico.kube.writer import ApiWriter
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cluster_cache import ClusterCache
from carico.scheduler.framework.contract import Nomination

log = logging.getLogger(__name__)


class Evictions:
    def __init__(
        self,
        client: Client,
        cluster: ClusterCache,
        writer: ApiWriter,
        recorder: EventRecorder,
        metrics: EvictionMetrics,
        clock: Clock,
    ) -> None:
        self._client, self._cluster, self._writer, self._recorder = client, cluster, writer, recorder
        self._metrics, self._clock = metrics, clock
        self._preemptors: dict[str, dict[str, PodInfo]] = {}  # victim to its preemptors, by UID
        self._left: dict[str, set[str]] = {}  # preemptor to victims with an open eviction

    def __len__(self) -> int:
        """Open evictions."""
        return len(self._preemptors)

    def start(self, preemptor: PodInfo, nomination: Nomination) -> None:
        victims = [victim for victim in nomination.victims if not victim.pod.terminating]
        self._left[preemptor.uid] = {victim.uid for victim in victims}
        self._cluster.queue.hold(preemptor.uid)
        for victim in victims:
            self._evict(victim, preemptor, nomination.node)
        self._finish_if_done(preemptor.uid)

    def withdraw(self, preemptor: str) -> None:
        """The pod has lost its nomination: evictions for it alone that were not sent yet are dropped."""
        if self._left.pop(preemptor, None) is not None:
            self._cluster.queue.unhold(preemptor, self._clock.monotonic())

    def _evict(self, victim: PodInfo, preemptor: PodInfo, node: str) -> None:
        others = self._preemptors.get(victim.uid)
        if others is not None:
            others[preemptor.uid] = preemptor
            return
        self._preemptors[victim.uid] = {preemptor.uid: preemptor}
        write = pod_writes.eviction(
            self._client, victim.pod, preemptor.pod.spec.scheduler_name, self._clock,
            wanted=partial(self._is_wanted, victim.uid), on_end=partial(self._on_end, victim, node),
            on_accepted=partial(self._metrics.accepted, EvictionReason.PREEMPTION),
        )  # fmt: skip
        self._writer.put(write)

    def _is_wanted(self, victim: str) -> bool:
        """Whether a preemptor of the victim is still nominated; drops preemptors that are not."""
        preemptors = self._preemptors.get(victim, {})
        nominated = self._cluster.snapshot.nominated
        standing = {
            uid: pod for uid, pod in preemptors.items() if uid in nominated and victim in nominated[uid].victims
        }
        for uid in preemptors.keys() - standing.keys():
            self._on_answer(uid, victim)
        if standing:
            self._preemptors[victim] = standing
        else:
            self._preemptors.pop(victim, None)
        return bool(standing)

    def _on_end(self, victim: PodInfo, node: str, error: Exception | None) -> None:
        for preemptor in self._preemptors.pop(victim.uid, {}).values():
            if error is None:
                note = f"Preempted by pod {preemptor.uid} on node {node}"
                self._recorder.put(Event(victim.pod, "Normal", "Preempted", "Preempting", note, preemptor.pod))
                self._on_answer(preemptor.uid, victim.uid)
            else:
                log.warning("evicting %s for %s failed: %s", victim.pod.key, preemptor.pod.key, error)
                self._give_up(preemptor)

    def _give_up(self, preemptor: PodInfo) -> None:
        if self._left.pop(preemptor.uid, None) is not None:
            self._cluster.unnominate(preemptor.uid)
            self._writer.put(pod_writes.nomination(self._client, preemptor.pod, ""))
            self._cluster.queue.unhold(preemptor.uid, self._clock.monotonic(), failed=True)

    def _on_answer(self, preemptor: str, victim: str) -> None:
        if (left := self._left.get(preemptor)) is not None:
            left.discard(victim)
            self._finish_if_done(preemptor)

    def _finish_if_done(self, preemptor: str) -> None:
        if not self._left.get(preemptor, True):
            del self._left[preemptor]
            self._cluster.queue.unhold(preemptor, self._clock.monotonic())
