"""Requests to the API server, under client-go's names, labels and buckets; and the pods that Carico evicts."""

from __future__ import annotations

from enum import Enum

from prometheus_client import CollectorRegistry, Counter, Histogram

BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)  # s


class EvictionReason(Enum):
    PREEMPTION = "preemption"


class EvictionMetrics:
    """One counter for every part of Carico that evicts pods, so that their sum is what users lose."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._evictions = Counter(
            "carico_evictions",
            "Pods whose deletion or eviction the API server has accepted from Carico, by reason.",
            ["reason"],
            registry=registry,
        )
        for reason in EvictionReason:
            self._evictions.labels(reason.value)

    def accepted(self, reason: EvictionReason) -> None:
        self._evictions.labels(reason.value).inc()


class RequestMetrics:
    """`host` is that of the only API server."""

    def __init__(self, registry: CollectorRegistry, host: str) -> None:
        self._host = host
        self._requests = Counter(
            "rest_client_requests",
            "Requests to the API server, by status (<error> without a response), method and host.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._seconds = Histogram(
            "rest_client_request_duration_seconds",
            "From sending a request to the API server until its whole response has arrived; without watches.",
            ["verb", "host"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._counters: dict[tuple[str, str], Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def answered(self, method: str, code: str, seconds: float | None) -> None:
        """Counts one request; `seconds` is None for one that is not timed."""
        counter = self._counters.get((method, code))
        if counter is None:
            counter = self._counters[method, code] = self._requests.labels(code, method, self._host)
        counter.inc()
        if seconds is None:
            return
        histogram = self._histograms.get(method)
        if histogram is None:
            histogram = self._histograms[method] = self._seconds.labels(method, self._host)
        histogram.observe(seconds)
