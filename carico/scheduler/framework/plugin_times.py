"""Duration of each plugin at each extension point, with kube-scheduler's metric name, labels and buckets.

As in kube-scheduler, a random tenth of the cycles is sampled: a cycle has some twenty calls to measure.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from itertools import accumulate, repeat
from operator import mul
from time import perf_counter
from typing import ParamSpec, TypeVar

from carico.scheduler.framework.contract import Code, PermitWait, Status
from carico.scheduler.framework.durations import Durations

P = ParamSpec("P")
R = TypeVar("R")

SHARE = 0.1  # of the cycles that are sampled
BOUNDS = tuple(accumulate(repeat(1.5, 19), mul, initial=0.00001))  # s
NAME = "scheduler_plugin_execution_duration_seconds"
ABOUT = "Duration for running a plugin at a specific extension point, on all nodes in question."
LABELS = ("plugin", "extension_point", "status")
STATUSES = {
    Code.SUCCESS: "Success",
    Code.SKIP: "Skip",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.ERROR: "Error",
}


class PluginTimes(Durations):
    def __init__(self, share: float = SHARE) -> None:
        super().__init__(NAME, ABOUT, LABELS, BOUNDS)
        self.share = share

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
            self.note((plugin, point, status), perf_counter() - began)

    async def wait(self, point: str, plugin: str, answer: Awaitable[R]) -> R:
        """The same for a plugin that awaits."""
        began, status = perf_counter(), "Error"
        try:
            found = await answer
            status = _status(found)
            return found
        finally:
            self.note((plugin, point, status), perf_counter() - began)


def _status(answer: object) -> str:
    """Verdicts and scores are per node, so they count as success; a post-filter without actions found no remedy."""
    if isinstance(answer, Status):
        return STATUSES[answer.code]
    if isinstance(answer, PermitWait):
        return "Wait"
    return "Unschedulable" if answer is None or (isinstance(answer, tuple | list) and not answer) else "Success"
