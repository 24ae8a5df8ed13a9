"""A random cluster in a scheduler without a network, for one plugin: one round of the contract checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import numpy as np

from carico.kube.objects import Node, Pod
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cache.object_store import KINDS
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.contract import SKIP, Code, Cycle, Plugin, PreFilter, Status
from carico.scheduler.plugins.registry import Factory, PluginTools, make_one
from carico.settings import SchedulerSettings
from carico.testing.builders import make_report
from carico.testing.manual_clock import ManualClock
from carico.testing.random_cluster import pods as random_pods
from carico.testing.random_cluster.cluster import make
from carico.testing.random_cluster.nodes import Object

PRIORITIES = (0, 0, 0, 10)
GIB = float(1 << 30)


@dataclass
class PluginTrial:
    """`waiting` are the pods that the checks run with; `spare` pods are added to nodes to see what that changes."""

    plugin: Plugin
    seed: int
    rng: Random
    parts: Components
    waiting: list[PodInfo]
    spare: list[PodInfo]
    drawn_nodes: list[Object]

    @property
    def snapshot(self) -> Snapshot:
        return self.parts.snapshot

    def fail(self, problem: str, pod: PodInfo | None = None) -> AssertionError:
        about = "" if pod is None else f" for pod {pod.pod.name}"
        return AssertionError(f"plugin {self.plugin.name}, seed {self.seed}{about}: {problem}")

    def pre_filtered(self, pod: PodInfo) -> tuple[Cycle, Status]:
        """A new cycle and what the plugin's pre-filter says; SKIP if the plugin has no pre-filter and no filter."""
        cycle = Cycle(pod, self.snapshot)
        if not isinstance(self.plugin, PreFilter):
            return cycle, SKIP if not hasattr(self.plugin, "filter") else Status(Code.SUCCESS)
        status = self.plugin.pre_filter(cycle)
        if not isinstance(status, Status):
            raise self.fail(f"pre_filter returned {status!r}, not a Status", pod)
        return cycle, status

    def filtered(self) -> Iterator[Cycle]:
        """Cycles whose pods the plugin's filter is called for."""
        for pod in self.waiting:
            cycle, status = self.pre_filtered(pod)
            if status.ok:
                yield cycle

    def present_rows(self) -> RowArray:
        return np.flatnonzero(self.snapshot.present)

    def other_pod(self, pod: PodInfo, **metadata: Any) -> PodInfo:
        """A pod of the same template with another name and UID."""
        name = f"{pod.pod.name}-twin"
        changed = msgspec.structs.replace(pod.pod.metadata, name=name, uid=f"{name} {self.rng.random()}", **metadata)
        return self.snapshot.templates.info(msgspec.structs.replace(pod.pod, metadata=changed))

    def changed_node(self) -> int:
        """Another Node object for one row, which is returned; pods stay."""
        row = int(self.rng.choice(self.present_rows().tolist()))
        old = self.snapshot.nodes[row]
        assert old is not None
        other = self.rng.choice(self.drawn_nodes)
        labels = other["metadata"]["labels"]
        plain = {"metadata": {"name": old.name, "uid": old.uid, "labels": labels}}
        self.parts.cluster.node_changed(old, msgspec.convert({**other, **plain}, Node))
        return row

    def fingerprint(self) -> dict[str, Any]:
        """What plugins must not change: pods, amounts, ports, objects, reservations."""
        snapshot, ledger = self.snapshot, self.parts.ledger
        rows = range(len(snapshot))
        amounts = {
            "cpu",
            "memory",
            "pods",
            "ephemeral-storage",
            *(name for pod in self.waiting for name in pod.requests),
        }
        return {
            "nodes": list(map(id, snapshot.nodes)),
            "pods on nodes": [sorted(snapshot.on[row]) for row in rows],
            "free amounts": {name: snapshot.unrequested(name).tolist() for name in sorted(amounts)},
            "allocatable amounts": {name: snapshot.allocatable(name).tolist() for name in sorted(amounts)},
            "cordons": snapshot.unschedulable.tolist(),
            "volume users": {row: sorted(there) for row, there in snapshot.with_volumes.items()},
            "nominations": {uid: nominated.node for uid, nominated in snapshot.nominated.items()},
            "claims": {key: id(obj) for key, obj in snapshot.store.claims.items()},
            "volumes": {key: id(obj) for key, obj in snapshot.store.volumes.items()},
            "ledger": {name: (account.reserved, sorted(account.pods)) for name, account in ledger.accounts()},
        }

    def check_unchanged(self, before: dict[str, Any], by: str, pod: PodInfo) -> None:
        """`before` is an earlier `fingerprint`."""
        after = self.fingerprint()
        if changed := [name for name in before if before[name] != after[name]]:
            raise self.fail(f"{by} changed {' and '.join(changed)} of the cluster", pod)


def trial(make_plugin: Factory, seed: int) -> PluginTrial:
    """Everything that one seed draws: nodes, some of them deleted again, pods, storage, and reports of most nodes."""
    drawn = make(seed, 8)
    rng = Random(seed)
    clock = ManualClock(now=1000.0)
    parts = assemble(SchedulerSettings(profiles={"carico": {}}), clock, None)
    tools = PluginTools(parts.snapshot, clock, parts.ledger, parts.classes, None, parts.waiting)
    plugin = make_one(make_plugin, tools)
    stock = drawn.storage
    objects = (*drawn.namespaces, *stock.classes, *stock.drivers, *stock.csi_nodes, *stock.capacities,
               *stock.volumes, *stock.claims, *stock.attachments)  # fmt: skip
    for item in objects:
        parts.cluster.thing_changed(None, msgspec.convert(item, KINDS[item["kind"]]))
    nodes = [_node(item) for item in drawn.nodes]
    for node in nodes:
        parts.cluster.node_changed(None, node)
    for item in drawn.running:
        parts.cluster.pod_changed(None, _pod(rng, item))
    for node in rng.sample(nodes, len(nodes) // 8):  # their rows stay while they have pods, or are free
        parts.cluster.node_changed(node, None)
    _reports(rng, parts)
    waiting = [parts.snapshot.templates.info(_pod(rng, item)) for item in drawn.waiting]
    spare = [
        parts.snapshot.templates.info(
            _pod(rng, {**random_pods.running(rng, f"s{i}", drawn.namespace, ""), "status": {}})
        )
        for i in range(4)
    ]
    return PluginTrial(plugin, seed, rng, parts, waiting, spare, drawn.nodes)


def _node(item: Object) -> Node:
    images = [{"names": ["example.com/nothing:1"], "sizeBytes": 300 << 20}]
    status = item["status"] | ({"images": images} if _number_of(item) % 2 else {})
    return msgspec.convert({**item, "status": status}, Node)


def _number_of(item: Object) -> int:
    """A number that depends on the name, the same in every process."""
    return sum(map(ord, item["metadata"]["name"]))


def _pod(rng: Random, item: Object) -> Pod:
    metadata = {**item["metadata"], "uid": f"{item['metadata']['namespace']}/{item['metadata']['name']}"}
    if item.get("leaving"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {**item["spec"], "schedulerName": "carico", "priority": rng.choice(PRIORITIES)}
    return msgspec.convert({**item, "metadata": metadata, "spec": spec}, Pod)


def _reports(rng: Random, parts: Components) -> None:
    """Of most nodes; some have little left, some report no room per resource, a few are stale."""
    for row, node in enumerate(parts.snapshot.nodes):
        if node is None or rng.random() < 0.15:
            continue
        counted = list(parts.snapshot.on[row])
        room = () if rng.random() < 0.2 else (rng.uniform(0, 4), rng.uniform(0, 4 * GIB))
        age = 1000.0 if rng.random() < 0.1 else 0.0
        full = (8.0, 16 * GIB) if room else ()
        parts.cluster.apply_report(make_report(node.name, rng.uniform(0, 12), counted, room=room, age=age, full=full))
