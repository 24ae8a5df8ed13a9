"""A profile: the plugins for pods of one `schedulerName`, in order, with their weights (profile_settings.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from carico.kube.delivery import Firewall
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import (
    Bind,
    Cycle,
    DecisionFigures,
    Explain,
    ExplainRows,
    Filter,
    GroupPods,
    MeasuredSupply,
    Permit,
    Plugin,
    PostBind,
    PostFilter,
    PreBind,
    PreEnqueue,
    QueueSort,
    Reserve,
    Reuse,
    Supply,
)
from carico.scheduler.framework.filtering import FilterResult, FilterRunner
from carico.scheduler.framework.needs import Available
from carico.scheduler.framework.plugin_times import PluginTimes
from carico.scheduler.framework.scoring import Scoring
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.queue.scheduling_queue import SortKey
from carico.scheduler.queue.unschedulable import Scope

NO_FIGURES = DecisionFigures()
RowTexts = Callable[[int], list[str]]


class LastKey:
    """A sort key after those of any plugin, and in order of time among its own kind.

    >>> sorted([LastKey(2.0), (5,), LastKey(1.0), (3,)])
    [(3,), (5,), LastKey(1.0), LastKey(2.0)]
    """

    __slots__ = ("queued_at",)

    def __init__(self, queued_at: float) -> None:
        self.queued_at = queued_at

    def __repr__(self) -> str:
        return f"LastKey({self.queued_at})"

    def __lt__(self, other: object) -> bool:
        return isinstance(other, LastKey) and self.queued_at < other.queued_at

    def __gt__(self, other: object) -> bool:
        return not isinstance(other, LastKey) or self.queued_at > other.queued_at


class Profile:
    """Plugins by extension point; the order within each list is the profile's."""

    def __init__(
        self,
        name: str,
        plugins: Sequence[Plugin],
        weights: dict[str, float],
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self.name, self.plugins, self.weights, self._metrics = name, list(plugins), weights, metrics
        self.feasible = FilterRunner(plugins)
        self.scoring = Scoring(plugins, weights)
        self.pre_enqueues = [p for p in plugins if isinstance(p, PreEnqueue)]
        self.groupings = [p for p in plugins if isinstance(p, GroupPods)]
        self.post_filters = [p for p in plugins if isinstance(p, PostFilter)]
        self.reserves = [p for p in plugins if isinstance(p, Reserve)]
        self.permits = [p for p in plugins if isinstance(p, Permit)]
        self.pre_binds = [p for p in plugins if isinstance(p, PreBind)]
        self.binds = [p for p in plugins if isinstance(p, Bind)]
        self.post_binds = [p for p in plugins if isinstance(p, PostBind)]
        self.sorts = [p for p in plugins if isinstance(p, QueueSort)]
        self.supplies = [p for p in plugins if isinstance(p, Supply)]
        self.measured = {p.name for p in plugins if isinstance(p, MeasuredSupply)}
        self._by_template = {p.name for p in plugins if isinstance(p, Filter) and p.reuse is not Reuse.NEVER}
        self._by_template |= {p.name for p in self.supplies}
        self._explains = [p for p in plugins if isinstance(p, Explain)]
        self._explains_rows = [p for p in plugins if isinstance(p, ExplainRows)]
        self._firewalls = {p.name: self._firewall(p.name) for p in plugins}
        self._interests = {
            p.name: tuple(replace(i, on_error=self._firewalls[p.name].caught) for i in p.interests) for p in plugins
        }

    def interests(self, names: Iterable[str]) -> tuple[EventInterest, ...]:
        """The events that could make these plugins accept a rejected pod."""
        return tuple(interest for name in sorted(names) for interest in self._interests.get(name, ()))

    def scope(self, pod: PodInfo, names: Iterable[str]) -> Scope:
        """For which other pods the verdicts of these plugins are valid too; volume claims depend on the pod itself."""
        if pod.volumes:
            return Scope.POD
        return Scope.TEMPLATE if self._by_template.issuperset(names) else Scope.LABELS

    def explain_need(self, pod: PodInfo, *, exact: bool, of: Container[str] | None = None) -> str:
        """What the pod needs of a node, by every plugin that explains it; `of`: by these plugins only."""
        explains = (p for p in self._explains if of is None or p.name in of)
        return "; ".join(text for p in explains if (text := p.explain_need(pod, exact=exact)))

    def figures(self, cycle: Cycle, row: int | None) -> DecisionFigures:
        """What the decision is based on, by the first plugin that explains it; `row` is the chosen node's."""
        for plugin in self._explains:
            if plugin.name not in cycle.skipped and (found := plugin.explain_decision(cycle, row)) is not None:
                return found
        return NO_FIGURES

    def explain_rows(self, cycle: Cycle, feasibility: FilterResult) -> Iterator[tuple[str, RowArray, RowTexts]]:
        """By plugin, the rows that it rejected, and a function from an index of these to texts with numbers."""
        for plugin in self._explains_rows:
            rows = np.flatnonzero(feasibility.refused_by({plugin.name}) & feasibility.snapshot.present)
            if len(rows):
                yield plugin.name, rows, plugin.explain_rows(cycle, rows)

    def contain(self, plugin: str, error: Exception) -> None:
        """Logs and counts an exception of a plugin that must not stop the others."""
        self._firewalls[plugin].caught(error)

    def available(self, plugin: Supply) -> Available:
        """What rows have; where the plugin raises, enough for any pod: it is retried, as after a hint that raised."""

        def available(resource: str, row: int) -> float:
            try:
                return plugin.available(resource, row)
            except Exception as error:
                self.contain(plugin.name, error)
                return math.inf

        return available

    def sort_key(self, plugin: QueueSort) -> SortKey:
        """The order of the queue; a pod for which the plugin raises goes after all others."""

        def sort_key(pod: PodInfo, queued_at: float) -> Any:
            try:
                return plugin.sort_key(pod, queued_at)
            except Exception as error:
                self.contain(plugin.name, error)
                return LastKey(queued_at)

        return sort_key

    def _firewall(self, plugin: str) -> Firewall:
        count = self._metrics.plugin_errors.labels(plugin).inc if self._metrics is not None else _nothing
        return Firewall(f"plugin {plugin} broke", count)

    def sampled(self) -> PluginTimes | None:
        """For a new cycle: records the duration of each plugin, if the cycle is sampled; else None."""
        return self._metrics.plugin_times.sample() if self._metrics is not None else None

    def timed(self, point: str) -> AbstractContextManager[None]:
        return self._metrics.point(point, self.name) if self._metrics is not None else nullcontext()


def _nothing() -> None:
    """Without metrics."""
