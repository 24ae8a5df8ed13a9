"""Histograms of durations that are noted several times per scheduling cycle.

An observation in prometheus_client's histogram takes a lock for each of its values and ten times as long as one in
plain lists. Everything here runs on one thread, as the scheduling cycle does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from time import perf_counter

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Durations(Collector):
    """`bounds` are the upper ends of the buckets, in s, without infinity.

    >>> durations = Durations("reads_seconds", "Duration of reads.", ("file",), (0.5, 1.0))
    >>> durations.note(("a",), 0.5); durations.note(("a",), 2.0)
    >>> [(sample.labels.get("le"), sample.value) for family in durations.collect() for sample in family.samples]
    [('0.5', 1), ('1.0', 1), ('+Inf', 2), (None, 2), (None, 2.5)]
    """

    def __init__(self, name: str, about: str, labels: tuple[str, ...], bounds: tuple[float, ...]) -> None:
        self._name, self._about, self._labels, self._bounds = name, about, labels, bounds
        self._counts: dict[tuple[str, ...], list[int]] = {}  # per bucket, not cumulative
        self._sums: dict[tuple[str, ...], float] = {}  # s

    def note(self, labels: tuple[str, ...], seconds: float) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def timed(self, *labels: str) -> Timer:
        """A context manager that notes how long its block takes, also if the block raises."""
        return Timer(self, labels)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        ends = [*map(floatToGoString, self._bounds), "+Inf"]
        for labels, counts in self._counts.items():
            family.add_metric(labels, list(zip(ends, accumulate(counts), strict=True)), self._sums[labels])
        yield family


class Timer:
    __slots__ = ("_began", "_durations", "_labels")

    def __init__(self, durations: Durations, labels: tuple[str, ...]) -> None:
        self._durations, self._labels, self._began = durations, labels, 0.0

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._durations.note(self._labels, perf_counter() - self._began)
