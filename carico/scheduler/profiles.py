"""A profile: the plugins that pods of one `schedulerName` meet, in their order, with their weights.

    [scheduler.profiles.carico]            every default plugin
    [scheduler.profiles.lean]
    disable = ["ImageLocality"]            one less …
    enable = ["MyPlugin"]                  … and one more, of another package
    weights = { Capacity = 5 }
    [scheduler.profiles.report]
    plugins = ["PrioritySort", "DefaultBinder", "Capacity"]
    release = "pending"

`report` need not be written out: a profile of that name gets these plugins unless it says otherwise.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from carico.errors import UsageError
from carico.kube.delivery import Firewall
from carico.scheduler.changes import Interest
from carico.scheduler.feasible import Feasible
from carico.scheduler.framework import (
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
from carico.scheduler.metrics import SchedulerMetrics
from carico.scheduler.plugin_times import PluginTimes
from carico.scheduler.plugins.capacity import Capacity
from carico.scheduler.scoring import Scoring
from carico.scheduler.template import PodInfo
from carico.scheduler.unschedulable import Scope

KEYS = ("plugins", "enable", "disable", "weights", "release")
REPORT: dict[str, Any] = {"plugins": ["PrioritySort", "Capacity"], "release": "pending"}


class Profile:
    """Plugins sorted by what they do; the order within each list is the profile's."""

    def __init__(
        self,
        name: str,
        plugins: Sequence[Plugin],
        weights: dict[str, float],
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self.name, self.plugins, self.weights, self._metrics = name, list(plugins), weights, metrics
        self.feasible = Feasible(plugins)
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

    def interests(self, names: Iterable[str]) -> tuple[Interest, ...]:
        """What could turn the refusals of these plugins."""
        return tuple(interest for name in sorted(names) for interest in self._interests.get(name, ()))

    def scope(self, pod: PodInfo, names: Iterable[str]) -> Scope:
        """Which other pods these plugins judge like this one; claims are told apart by the pod's name."""
        if pod.volumes:
            return Scope.POD
        return Scope.TEMPLATE if self._by_template.issuperset(names) else Scope.LABELS

    def contain(self, plugin: str, error: Exception) -> None:
        """A plugin raised where it must not stop the others."""
        self._firewalls[plugin].caught(error)

    def _firewall(self, plugin: str) -> Firewall:
        count = self._metrics.plugin_errors.labels(plugin).inc if self._metrics is not None else _nothing
        return Firewall(f"plugin {plugin} broke", count)

    def sampled(self) -> PluginTimes | None:
        """For a new cycle: where the time of each plugin is noted, if this one is measured."""
        return self._metrics.plugin_times.sample() if self._metrics is not None else None

    def timed(self, point: str) -> AbstractContextManager[None]:
        return self._metrics.point(point, self.name) if self._metrics is not None else nullcontext()


def _nothing() -> None:
    """Nobody counts."""


def chosen(profile: str, table: dict[str, Any], known: Sequence[str], default: Sequence[str]) -> list[str]:
    """The names of a profile's plugins, in order; UsageError for anything that makes no sense."""
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
