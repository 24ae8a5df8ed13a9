"""Prometheus metrics of a node. Values are read at each scrape; the sampling loop only counts ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from carico.metrics import loop_lag
from carico.telemetry.full import FullMemory
from carico.types import Estimate, Mode

BY_RESOURCE: tuple[tuple[str, str, Callable[[Estimate], tuple[float, ...]]], ...] = (
    ("carico_usage_ratio", "Usage after smoothing; 0 is all free, 1 is full.", lambda e: e.usage),
    ("carico_baseline_ratio", "Usage that belongs to no workload pod.", lambda e: e.baseline_ratio),
    ("carico_pod_cost_ratio", "Usage that one more pod adds.", lambda e: e.cost_ratio),
)
OF_NODE: tuple[tuple[str, str, Callable[[Estimate], float]], ...] = (
    ("carico_signal_k", "Units of the cluster's recent average workload that fit.", lambda e: e.signal_k),
    ("carico_node_capacity_pods", "How many more pods fit on this node.", lambda e: e.pod_capacity),
    ("carico_node_workload_pods", "Workload pods that run here.", lambda e: e.pods),
    (
        "carico_node_churn",
        "1 while containers are created or removed and usage is unreliable.",
        lambda e: e.mode is Mode.CHURN,
    ),
    ("carico_node_rejecting", "Pronto's signal: 1 while it would reject any job.", lambda e: e.rejecting),
)


class TickMetrics:
    """Lag and missed ticks of the sampling timer, which also measures the lag of the event loop."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = loop_lag(registry, "agent")
        self._missed = Counter(
            "carico_agent_ticks_missed", "Samples that were missed because the process was stalled.", registry=registry
        )
        self._missed_before = 0

    def ticked(self, late: Iterable[float], missed: int) -> None:
        """`late` in seconds, one per tick; `missed` since the start."""
        for seconds in late:
            self._lag(seconds)
        if missed != self._missed_before:
            self._missed.inc(missed - self._missed_before)
            self._missed_before = missed


class NodeCollector(Collector):
    """The latest estimate and the state of the sources, through callables so that each scrape gets current values."""

    def __init__(
        self,
        node: str,
        dimensions: tuple[str, ...],
        estimate: Callable[[], Estimate | None],
        sources: Callable[[], Mapping[str, str | None]],
    ) -> None:
        self._node = node
        self._dimensions = dimensions
        self._estimate = estimate
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        yield self._source_success()
        estimate = self._estimate()
        for name, about, values in BY_RESOURCE:
            yield self._by_resource(name, about, None if estimate is None else values(estimate))
        for name, about, value in OF_NODE:
            yield self._one(name, about, None if estimate is None else value(estimate))

    def _source_success(self) -> Metric:
        about = "1 while a source of telemetry or pods can be read, 0 while it is missing or broken."
        family = GaugeMetricFamily("carico_agent_source_success", about, labels=["node", "source"])
        for source, problem in self._sources().items():
            family.add_metric([self._node, source], 0.0 if problem else 1.0)
        return family

    def _by_resource(self, name: str, about: str, values: tuple[float, ...] | None) -> Metric:
        family = GaugeMetricFamily(name, about, labels=["node", "resource"])
        if values is not None:
            for resource, value in zip(self._dimensions, values, strict=True):
                family.add_metric([self._node, resource], value)
        return family

    def _one(self, name: str, about: str, value: float | None) -> Metric:
        family = GaugeMetricFamily(name, about, labels=["node"])
        if value is not None:
            family.add_metric([self._node], float(value))
        return family


class FullCollector(Collector):
    """How much memory counts as full, and the source of that figure."""

    def __init__(self, node: str, memory: Callable[[], FullMemory | None]) -> None:
        self._node = node
        self._memory = memory

    def collect(self) -> Iterator[Metric]:
        about = "Memory that pods may fill, by its source: allocatable, kubepods, machine, own-limits or setting."
        family = GaugeMetricFamily("carico_node_full_memory_bytes", about, labels=["node", "source"])
        if (memory := self._memory()) is not None:
            family.add_metric([self._node, memory.source], memory.bytes)
        yield family


class LinkCollector(Collector):
    """Streams of the agent that are open now."""

    def __init__(self, links: Callable[[], Mapping[str, int]]) -> None:
        self._links = links

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "carico_agent_streams", "Open streams, by the process that they lead to.", labels=["to"]
        )
        for to, count in self._links().items():
            family.add_metric([to], count)
        yield family


def refusal_counter(registry: CollectorRegistry) -> Callable[[str], None]:
    """Counts messages of this node that the aggregator or a scheduler rejected, by reason."""
    about = "Messages of this agent that an aggregator or a scheduler refused, by reason."
    counter = Counter("carico_agent_messages_refused", about, ["reason"], registry=registry)
    return lambda reason: counter.labels(reason=reason).inc()
