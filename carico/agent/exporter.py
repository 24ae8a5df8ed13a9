"""What Prometheus sees of a node. Values are read when somebody scrapes; the beat itself only counts ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from carico.types import Estimate

# s; a tick of 10 Hz that comes 20 ms late is what the agent promises to stay under on an idle machine.
LATENESS_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Beat:
    """How steady the ticker is."""

    def __init__(self, registry: CollectorRegistry) -> None:
        about = "How late each sample was taken."
        self._lateness = Histogram("carico_tick_lateness_seconds", about, buckets=LATENESS_BUCKETS, registry=registry)
        self._missed = Counter("carico_ticks_missed", "Samples that a stall swallowed.", registry=registry)
        self._missed_before = 0

    def ticked(self, late: Iterable[float], missed: int) -> None:
        """`late` in seconds, one per tick; `missed` since the start."""
        for seconds in late:
            self._lateness.observe(seconds)
        if missed != self._missed_before:
            self._missed.inc(missed - self._missed_before)
            self._missed_before = missed


class NodeCollector(Collector):
    """The latest estimate and the state of the sources, by callables so that a scrape always sees the newest."""

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
        if estimate is None:
            return
        yield self._by_resource(
            "carico_usage_ratio", "Usage after smoothing; 0 is all free, 1 is full.", estimate.usage
        )
        yield self._by_resource("carico_baseline", "Usage with no workload pod, as a ratio.", estimate.baseline)
        yield self._by_resource("carico_pod_cost", "Usage that one more pod adds, as a ratio.", estimate.cost)
        yield self._one(
            "carico_capacity", "Units of the cluster's recent average workload that fit.", estimate.capacity
        )
        yield self._one("carico_pod_capacity", "So many more pods fit on this node.", estimate.pod_capacity)
        yield self._one("carico_pods", "Workload pods that run here.", estimate.pods)
        yield self._one(
            "carico_churn", "1 while containers come and go and usage is not trusted.", estimate.mode == "churn"
        )
        yield self._one("carico_rejecting", "Pronto's signal: 1 while it would reject any job.", estimate.rejecting)

    def _source_success(self) -> Metric:
        about = "1 while a source of telemetry or pods can be read, 0 while it is missing or broken."
        family = GaugeMetricFamily("carico_source_success", about, labels=["node", "source"])
        for source, problem in self._sources().items():
            family.add_metric([self._node, source], 0.0 if problem else 1.0)
        return family

    def _by_resource(self, name: str, about: str, values: tuple[float, ...]) -> Metric:
        family = GaugeMetricFamily(name, about, labels=["node", "resource"])
        for resource, value in zip(self._dimensions, values, strict=True):
            family.add_metric([self._node, resource], value)
        return family

    def _one(self, name: str, about: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, about, labels=["node"])
        family.add_metric([self._node], float(value))
        return family


class LinkCollector(Collector):
    """To whom the agent talks at this moment."""

    def __init__(self, links: Callable[[], Mapping[str, int]]) -> None:
        self._links = links

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "carico_connections", "Streams that are open now, by whom they lead to.", labels=["to"]
        )
        for to, count in self._links().items():
            family.add_metric([to], count)
        yield family


def refusal_counter(registry: CollectorRegistry) -> Callable[[str], None]:
    """Counts, by reason, what aggregator and schedulers refused to take from this node."""
    about = "Messages of this agent that the other side refused."
    counter = Counter("carico_refused", about, ["reason"], registry=registry)
    return lambda reason: counter.labels(reason=reason).inc()
