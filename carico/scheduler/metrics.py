"""The scheduler's metrics: kube-scheduler's names, labels and buckets, so that its dashboards work, and Carico's.

Gauges of the present state (queue, ledger) are computed at each scrape, not kept up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from carico.kube.metrics import EvictionMetrics
from carico.kube.writes import Urgency
from carico.scheduler.framework.durations import Durations, Timer
from carico.scheduler.framework.plugin_times import PluginTimes


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """
    >>> exponential(1, 2, 4)
    (1, 2, 4, 8)
    """
    return tuple(start * factor**i for i in range(count))


class SchedulerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(name, about, labels, registry=registry)

        def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, about, labels, buckets=buckets, registry=registry)

        milliseconds = exponential(0.001, 2, 15)
        self.attempts = counter(
            "scheduler_schedule_attempts", "Attempts to schedule pods, by the result.", "result", "profile"
        )
        self.attempt_seconds = histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding).",
            milliseconds,
            "result",
            "profile",
        )
        self.algorithm_seconds = histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Scheduling algorithm latency in seconds.", milliseconds
        )
        self.sli_seconds = histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From the time a pod enters the queue until it is bound, over all its attempts.",
            exponential(0.01, 2, 20),
            "attempts",
        )
        self.pod_attempts = histogram(
            "scheduler_pod_scheduling_attempts", "Attempts that a pod took.", exponential(1, 2, 5)
        )
        self.point_seconds = Durations(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            ("extension_point", "status", "profile"),
            exponential(0.0001, 2, 12),
        )
        registry.register(self.point_seconds)
        self.plugin_times = PluginTimes()
        registry.register(self.plugin_times)
        self.preemptions = counter("scheduler_preemption_attempts", "Preemption attempts in the cluster till now.")
        self.victims = histogram(
            "scheduler_preemption_victims", "Number of selected preemption victims.", exponential(1, 2, 7)
        )
        self.evictions = EvictionMetrics(registry)
        self.incoming = counter(
            "scheduler_queue_incoming_pods", "Pods added to scheduling queues by event and queue.", "queue", "event"
        )
        self.after_flush = counter(
            "scheduler_pod_scheduled_after_flush",
            "Pods scheduled only after `flush_after`, without an event that could help them.",
        )
        self.reports = counter("carico_scheduler_reports", "Capacity reports from agents, by result.", "result")
        self.handover = histogram(
            "carico_scheduler_handover_duration_seconds",
            "From the decision for a node until its report counts the pod.",
            exponential(0.1, 2, 12),
        )
        self.refused = counter(
            "carico_scheduler_messages_refused", "Messages of nodes that this replica refused, by reason.", "reason"
        )
        self.unsupported = counter(
            "carico_scheduler_unsupported_pods", "Pods that need a feature that Carico does not support.", "feature"
        )
        self.plugin_errors = counter(
            "carico_scheduler_plugin_errors", "Exceptions of plugins that were contained, by plugin.", "plugin"
        )
        self.conflicts = counter(
            "carico_scheduler_binding_failures", "Bindings that did not take place, by outcome.", "outcome"
        )
        self.rejected = counter(
            "carico_scheduler_rejected_pods",
            "Pods that a kubelet refused after they were bound.",
            "reason",
            "scheduler",
        )
        self.stale_placements = counter(
            "carico_scheduler_stale_placements",
            "Pods that were placed on a node without a recent report, by on_stale.",
            "on_stale",
        )
        self.extender = counter(
            "carico_extender_requests", "Requests of a kube-scheduler, by the answer.", "verb", "result"
        )
        self.events_lost = counter("carico_scheduler_events_lost", "Events that could not be sent.")
        self.writes = counter(
            "carico_scheduler_writes",
            "Attempts to write to the API server, and writes that were dropped, by result.",
            "kind",
            "result",
        )
        self.undecodable = counter(
            "carico_undecodable_objects", "Received objects that could not be decoded, by kind.", "kind"
        )
        self.handler_errors = counter(
            "carico_scheduler_handler_errors", "Errors of the code that handles changes of objects, by kind.", "kind"
        )
        self.leader = Gauge(
            "carico_scheduler_leader", "1 while this replica decides, with a Lease or without.", registry=registry
        )
        self._written: dict[tuple[Urgency, str], Counter] = {}

    def written(self, kind: Urgency, result: str) -> None:
        key = (kind, result)
        child = self._written.get(key)
        if child is None:
            child = self._written[key] = self.writes.labels(kind.name.lower(), result)
        child.inc()

    def point(self, point: str, profile: str) -> Timer:
        """Times one extension point."""
        return self.point_seconds.timed(point, "Success", profile)


class ScrapeGauges(Collector):
    """Gauges that are computed at each scrape."""

    def __init__(self, families: Callable[[], Iterable[GaugeMetricFamily]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()


def gauge(
    name: str, about: str, values: Mapping[tuple[str], float] | Mapping[tuple[str, ...], float], labels: tuple[str, ...]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
