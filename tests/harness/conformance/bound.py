"""Pods that are really bound, one after the other: Carico's node must be one that kube-scheduler found feasible.

Every binding changes the cluster, so kube-scheduler decides about each pod just before Carico gets it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from carico.testing.random_cluster.cluster import RandomCluster
from carico.testing.random_cluster.nodes import Object
from harness.cluster.errors import ClusterError

from . import compare
from .plane import Plane

PATIENCE = 180.0  # s; on a busy machine
SECOND_CHANCE = 15.0  # s; longer than the longest back-off


@dataclass
class Bound:
    bound: int = 0
    refused: int = 0  # fit nowhere, by either
    wrong: list[tuple[Object, str, frozenset[str]]] = field(default_factory=list)  # pod, node, feasible nodes


def bindable(world: RandomCluster) -> list[Object]:
    """Claims that wait for a consumer would wait for a volume controller as well, and there is none here."""
    return [pod for pod in world.waiting if "open-" not in str(pod["spec"].get("volumes"))]


def run(plane: Plane, world: RandomCluster, pods: list[Object]) -> Bound:
    result = Bound()
    for pod in pods:
        feasible = _asked(plane, world, pod)
        if feasible is None:
            continue
        node = _given(plane, world, pod, feasible)
        if _differ(node, feasible):
            # Kube-scheduler may have looked before its watch had the pod before this one, or a volume.
            _delete(plane, world, pod["metadata"]["name"])
            time.sleep(1.0)
            feasible = _asked(plane, world, pod) or frozenset()
            node = _given(plane, world, pod, feasible)
        if node:
            result.bound += 1
        else:
            result.refused += 1
            _delete(plane, world, pod["metadata"]["name"])
        if _differ(node, feasible):
            result.wrong.append((pod, node, feasible))
    return result


def _differ(node: str, feasible: frozenset[str]) -> bool:
    return node not in feasible if node else bool(feasible)


def _asked(plane: Plane, world: RandomCluster, pod: Object) -> frozenset[str] | None:
    """Kube-scheduler's feasible nodes; None when the API server calls the pod invalid."""
    name = f"asked-{pod['metadata']['name']}"
    made = compare.create(plane.api, "/api/v1/pods", _with(pod, name, "default-scheduler"))
    if made is None:
        return None
    compare.decided(plane, world, [made])
    _delete(plane, world, name)
    return plane.recorder.seen.get(made["metadata"]["uid"], frozenset())


def _given(plane: Plane, world: RandomCluster, pod: Object, feasible: frozenset[str]) -> str:
    """The node that Carico bound the pod to; empty when there is none.

    Where there should be one, a first rejection is not final: Carico's watch may not have a volume yet.
    """
    name = pod["metadata"]["name"]
    compare.create(plane.api, "/api/v1/pods", _with(pod, name, "carico"))
    path = f"/api/v1/namespaces/{world.namespace}/pods/{name}"
    final = time.monotonic() + (SECOND_CHANCE if feasible else 0.0)

    def verdict() -> Object | None:
        item: Any = plane.api.get(path)
        refused = compare.has_verdict(item) and time.monotonic() > final
        return item if item["spec"].get("nodeName") or refused else None

    item = _wait(f"Carico's decision about {name}", verdict)
    node: str = item["spec"].get("nodeName", "")
    return node


def _with(pod: Object, name: str, scheduler: str) -> Object:
    metadata = {**pod["metadata"], "name": name}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "schedulerName": scheduler}}


def _delete(plane: Plane, world: RandomCluster, name: str) -> None:
    plane.api.delete(f"/api/v1/namespaces/{world.namespace}/pods/{name}?gracePeriodSeconds=0")


def _wait(what: str, condition: Callable[[], Object | None]) -> Object:
    deadline = time.monotonic() + PATIENCE
    while (found := condition()) is None:
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: nothing within {PATIENCE:.0f} s")
        time.sleep(0.03)
    return found
