"""A profile: the plugins for pods of one `schedulerName`, in order, with their weights.

    [scheduler.profiles.carico]            every default plugin
    [scheduler.profiles.lean]
    disable = ["ImageLocality"]            without one of them …
    enable = ["MyPlugin"]                  … and with one of another package
    weights = { Capacity = 5 }
    [scheduler.profiles.report]
    plugins = ["PrioritySort", "Capacity"]
    release = "pending"

The settings of `report` are built in: a profile of that name has them unless it sets others.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from carico.errors import UsageError
from carico.kube.delivery import Firewall
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import (
    Bind,
    Filter,
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
from carico.scheduler.framework.filtering import FilterRunner
from carico.scheduler.framework.needs import Available
from carico.scheduler.framework.plugin_times import PluginTimes
from carico.scheduler.framework.scoring import Scoring
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.plugins.capacity import Capacity
from carico.scheduler.queue.scheduling_queue import SortKey
from carico.scheduler.queue.unschedulable import Scope

KEYS = ("plugins", "enable", "disable", "weights", "release")
REPORT: dict[str, Any] = {"plugins": ["PrioritySort", "Capacity"], "release": "pending"}


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
        self.post_filters = [p for p in plugins if isinstance(p, PostFilter)]
        self.reserves = [p for p in plugins if isinstance(p, Reserve)]
        self.permits = [p for p in plugins if isinstance(p, Permit)]
        self.pre_binds = [p for p in plugins if isinstance(p, PreBind)]
        self.binds = [p for p in plugins if isinstance(p, Bind)]
        self.post_binds = [p for p in plugins if isinstance(p, PostBind)]
        self.sorts = [p for p in plugins if isinstance(p, QueueSort)]
        self.supplies = [p for p in plugins if isinstance(p, Supply)]
        self._by_template = {p.name for p in plugins if isinstance(p, Filter) and p.reuse is not Reuse.NEVER}
        self._by_template |= {p.name for p in self.supplies}
        self.capacity = next((p for p in plugins if isinstance(p, Capacity)), None)
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


def chosen(profile: str, table: dict[str, Any], known: Sequence[str], default: Sequence[str]) -> list[str]:
    """The names of a profile's plugins, in order; UsageError for invalid settings."""
    where = f"[scheduler.profiles.{profile}]"
    if not isinstance(table, dict):
        raise UsageError(f"{where}: is not a table")
    if unknown := [key for key in table if key not in KEYS]:
        raise UsageError(f"{where}: no setting is called {unknown[0]!r}{_nearest(unknown[0], KEYS)}")
    if profile == "report":
        table = REPORT | table
    named = [*table.get("plugins", ()), *table.get("enable", ()), *table.get("disable", ()), *table.get("weights", {})]
    for name in named:
        if name not in known:
            raise UsageError(f"{where}: no plugin is called {name!r}{_nearest(str(name), known)}")
    if table.get("release", "handover") not in ("handover", "pending"):
        raise UsageError(f"{where}: release {table['release']!r} is neither 'handover' nor 'pending'")
    names = list(table.get("plugins", default))
    names += [name for name in table.get("enable", ()) if name not in names]
    return [name for name in names if name not in table.get("disable", ())]


def release_of(profile: str, table: dict[str, Any]) -> str:
    return str(((REPORT | table) if profile == "report" else table).get("release", "handover"))


def weights_of(profile: str, table: dict[str, Any]) -> dict[str, float]:
    weights = table.get("weights", {})
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1000:
            raise UsageError(
                f"[scheduler.profiles.{profile}]: weight {weight!r} of {name} is not a number from 0 to 1000"
            )
    return {name: float(weight) for name, weight in weights.items()}


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
