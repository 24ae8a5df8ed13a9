"""Duration of each plugin at each extension point, with kube-scheduler's metric name, labels and buckets.

As in kube-scheduler, a random tenth of the cycles is sampled. A cycle has some twenty calls to measure, and an
observation in prometheus_client's histograms takes ten times as long as one in plain lists.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate, repeat
from operator import mul
from time import perf_counter
from typing import ParamSpec, TypeVar

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from carico.scheduler.framework.contract import Code, PermitWait, Status

P = ParamSpec("P")
R = TypeVar("R")

SHARE = 0.1  # of the cycles that are sampled
BOUNDS = tuple(accumulate(repeat(1.5, 19), mul, initial=0.00001))  # s
NAMES = [*map(repr, BOUNDS), "+Inf"]
LABELS = ("plugin", "extension_point", "status")
STATUSES = {
    Code.SUCCESS: "Success",
    Code.SKIP: "Skip",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.ERROR: "Error",
}


class PluginTimes(Collector):
    def __init__(self, share: float = SHARE) -> None:
        self.share = share
        self._counts: dict[tuple[str, str, str], list[int]] = {}  # per bucket, not cumulative
        self._sums: dict[tuple[str, str, str], float] = {}  # s

    def sample(self) -> PluginTimes | None:
        """Itself, if the cycle that begins is sampled; else None."""
        return self if random.random() < self.share else None

    def call(self, point: str, plugin: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a plugin and records the duration."""
        began, status = perf_counter(), "Error"
        try:
            answer = function(*args, **kwargs)
            status = _status(answer)
            return answer
        finally:
            self._note(plugin, point, status, perf_counter() - began)

    async def wait(self, point: str, plugin: str, answer: Awaitable[R]) -> R:
        """The same for a plugin that awaits."""
        began, status = perf_counter(), "Error"
        try:
            found = await answer
            status = _status(found)
            return found
        finally:
            self._note(plugin, point, status, perf_counter() - began)

    def collect(self) -> Iterator[Metric]:
        about = "Duration for running a plugin at a specific extension point, on all nodes in question."
        family = HistogramMetricFamily("scheduler_plugin_execution_duration_seconds", about, labels=LABELS)
        for key, counts in self._counts.items():
            buckets = list(zip(NAMES, accumulate(counts), strict=True))
            family.add_metric(key, buckets, self._sums[key])
        yield family

    def _note(self, plugin: str, point: str, status: str, seconds: float) -> None:
        key = (plugin, point, status)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(BOUNDS) + 1)
            self._sums[key] = 0.0
        counts[bisect_left(BOUNDS, seconds)] += 1
        self._sums[key] += seconds


def _status(answer: object) -> str:
    """Verdicts and scores are per node, so they count as success. None is a post-filter that found no victims."""
    if isinstance(answer, Status):
        return STATUSES[answer.code]
    if isinstance(answer, PermitWait):
        return "Wait"
    return "Unschedulable" if answer is None else "Success"
