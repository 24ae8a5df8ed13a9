"""What was kept and corrected row by row equals what is worked out from nothing, after any sequence of changes."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from carico.kube.meta import KubeObject
from carico.kube.objects import Node, Pod
from carico.scheduler.cache.object_store import KINDS
from carico.scheduler.cache.rows import RowIndex
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.contract import Cycle
from carico.scheduler.framework.filtering import FilterResult, FilterRunner
from carico.scheduler.plugins import registry
from carico.testing import ManualClock
from carico.testing.random_cluster.cluster import make as random_cluster

NAMES = [name for name in registry.DEFAULT if name != "Capacity"]
STEPS = 60


def filters(snapshot: Snapshot) -> FilterRunner:
    return FilterRunner(registry.make(NAMES, registry.PluginTools(snapshot, ManualClock())))


class Changing:
    """A random world that changes, with the state that a rebuild needs."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.drawn = random_cluster(seed, 6)
        self.things = [self._object(item) for item in self._others()]
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.waiting = [self._pod(item) for item in self.drawn.waiting]
        self.snapshot = Snapshot(RowIndex())
        for obj in self.things:
            self.snapshot.put(obj)
        self._fresh_names = itertools.count()

    def _others(self) -> list[dict[str, Any]]:
        stock = self.drawn.storage
        return [
            *self.drawn.namespaces, *stock.classes, *stock.drivers, *stock.csi_nodes, *stock.capacities,
            *stock.volumes, *stock.claims, *stock.attachments,
        ]  # fmt: skip

    def _object(self, item: dict[str, Any]) -> KubeObject:
        return msgspec.convert(item, KINDS[item["kind"]])

    def _pod(self, item: dict[str, Any]) -> Pod:
        item["metadata"]["uid"] = item["metadata"]["name"]
        return msgspec.convert(item, Pod)

    def step(self) -> None:
        draw = self.rng.random()
        if draw < 0.25 or not self.nodes:
            self._set_node(self.rng.choice(self.drawn.nodes))
        elif draw < 0.32:
            name = self.rng.choice(sorted(self.nodes))
            del self.nodes[name]
            self.snapshot.remove_node(name)
        elif draw < 0.75 or not self.pods:
            self._add_pod()
        else:
            uid = self.rng.choice(sorted(self.pods))
            del self.pods[uid]
            self.snapshot.remove_pod(uid)

    def _set_node(self, item: dict[str, Any]) -> None:
        """New, or with other labels and another size than before."""
        other = self.rng.choice(self.drawn.nodes)
        mixed = {**item, "status": other["status"], "spec": other["spec"]}
        node = msgspec.convert(mixed, Node)
        self.nodes[node.name] = node
        self.snapshot.set_node(node)

    def _add_pod(self) -> None:
        """A new pod, or a known one that moved, changed or ended."""
        source = self.rng.choice(self.drawn.running or self.drawn.waiting)
        known = sorted(self.pods)
        uid = self.rng.choice(known) if known and self.rng.random() < 0.3 else f"u{next(self._fresh_names)}"
        item = {**source, "metadata": {**source["metadata"], "uid": uid, "name": uid}}
        if self.rng.random() < 0.1:
            item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pod = msgspec.convert(item, Pod)
        node = self.rng.choice(self.drawn.nodes)["metadata"]["name"]
        self.snapshot.add_pod(self.snapshot.templates.info(pod), node)
        self.pods.pop(uid, None)
        if not pod.terminal:
            self.pods[uid] = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))

    def rebuilt(self) -> Snapshot:
        snapshot = Snapshot(RowIndex())
        for obj in self.things:
            snapshot.put(obj)
        for node in self.nodes.values():
            snapshot.set_node(node)
        for pod in self.pods.values():
            snapshot.add_pod(snapshot.templates.info(pod), pod.spec.node_name)
        return snapshot


def names(found: FilterResult) -> set[str]:
    return {found.snapshot.name(int(row)) for row in found.rows}


@pytest.mark.parametrize("seed", range(8))
def test_kept_answers_equal_fresh_ones(seed: int) -> None:
    changing = Changing(seed)
    kept = filters(changing.snapshot)
    for _ in range(STEPS):
        changing.step()
        pod = changing.snapshot.templates.info(changing.rng.choice(changing.waiting))
        mine = kept.run(Cycle(pod, changing.snapshot))
        fresh = changing.rebuilt()
        theirs = filters(fresh).run(Cycle(fresh.templates.info(pod.pod), fresh))
        assert names(mine) == names(theirs)
        if not len(mine.rows):
            assert mine.message() == theirs.message()
            assert mine.refusing == theirs.refusing
    assert kept.hits > 10


def state(snapshot: Snapshot) -> dict[str, Any]:
    """All that pods add up to, by node name."""
    rows = [(snapshot.name(row), row) for row in range(len(snapshot)) if snapshot.name(row)]
    resources = ("cpu", "memory", "pods", "ephemeral-storage", "example.com/gpu")
    return {
        "pods": {name: sorted(snapshot.on[row]) for name, row in rows},
        "free": {name: [int(snapshot.unrequested(r)[row]) for r in resources] for name, row in rows},
        "volumes": {name: sorted(snapshot.with_volumes.get(row, ())) for name, row in rows},
        "terms": {term: {snapshot.name(r): n for r, n in c.sparse.items()} for term, c in _terms(snapshot)},
    }


def _terms(snapshot: Snapshot) -> Any:
    return snapshot.match_counts.anti_affinity.items()


@pytest.mark.parametrize("seed", range(4))
def test_pretending_leaves_no_trace(seed: int) -> None:
    changing = Changing(100 + seed)
    for _ in range(STEPS):
        changing.step()
    snapshot, kept = changing.snapshot, filters(changing.snapshot)
    before = state(snapshot)
    for pod in map(PodInfo, changing.waiting):
        cycle = Cycle(pod, snapshot)
        found = kept.run(cycle)
        if not found.status.ok:
            continue
        verdicts = {name: verdict.bits.copy() for name, verdict in found.verdicts}
        for row in np.flatnonzero(snapshot.present):
            there = list(snapshot.on[row].values())
            with kept.pretending(cycle, int(row), remove=there), kept.pretending(cycle, int(row), add=there[:1]):
                kept.fits(cycle, int(row))
        again = {p.name: p.filter(cycle, None).bits for p in kept._filters if p.name not in cycle.skipped}
        for name, bits in again.items():
            assert np.array_equal(bits[snapshot.present], verdicts[name][snapshot.present]), name
    assert state(snapshot) == before
    assert state(snapshot) == state(changing.rebuilt())
