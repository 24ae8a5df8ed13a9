"""A small cluster in memory, and the results of its filters and scores, for tests of the plugins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from carico.kube.meta import KubeObject
from carico.kube.objects import Node, Pod
from carico.scheduler.cache.rows import RowIndex
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.framework.contract import Cycle
from carico.scheduler.framework.filtering import FilterResult, FilterRunner
from carico.scheduler.framework.scoring import Scoring
from carico.scheduler.plugins import registry
from carico.testing import ManualClock

NAMES = [name for name in registry.DEFAULT if name != "Capacity"]


class World:
    def __init__(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod] = (),
        things: Iterable[KubeObject] = (),
        names: Sequence[str] = NAMES,
    ) -> None:
        self.snapshot = Snapshot(RowIndex())
        self.plugins = registry.make(names, registry.PluginTools(self.snapshot, ManualClock()))
        self.filters = FilterRunner(self.plugins)
        for obj in things:
            self.snapshot.put(obj)
        for node in nodes:
            self.snapshot.set_node(node)
        for pod in pods:
            self.add(pod)

    def add(self, pod: Pod) -> None:
        self.snapshot.add_pod(self.snapshot.templates.info(pod), pod.spec.node_name)

    def judge(self, pod: Pod) -> FilterResult:
        return self.filters.run(Cycle(self.snapshot.templates.info(pod), self.snapshot))

    def feasible(self, pod: Pod) -> set[str]:
        return {self.snapshot.name(int(row)) for row in self.judge(pod).rows}

    def scores(self, pod: Pod, plugin: str) -> dict[str, float]:
        """The scores of one plugin for the feasible nodes; empty if it skipped scoring."""
        cycle = Cycle(self.snapshot.templates.info(pod), self.snapshot)
        rows = self.filters.run(cycle).rows
        for name, _, scores in Scoring(self.plugins, {}).table(cycle, rows):
            if name == plugin:
                return {self.snapshot.name(int(row)): round(float(s), 1) for row, s in zip(rows, scores, strict=True)}
        return {}
