"""A random cluster with random pods: everything that one seed makes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

from carico.testing.random_cluster import nodes, pods
from carico.testing.random_cluster.nodes import Object
from carico.testing.random_cluster.storage import Storage, storage


@dataclass
class RandomCluster:
    prefix: str  # begins the name of everything in it, so that clusters follow each other without touching
    namespaces: list[Object]
    nodes: list[Object]
    storage: Storage
    running: list[Object]
    waiting: list[Object]

    @property
    def namespace(self) -> str:
        return self.prefix

    @property
    def node_names(self) -> set[str]:
        return {node["metadata"]["name"] for node in self.nodes}


def make(seed: int, waiting: int) -> RandomCluster:
    rng = Random(seed)
    prefix = f"w{seed}"
    other = f"{prefix}-other"
    roomy = rng.random() < 0.6
    found = [nodes.node(rng, f"{prefix}-n{i}", roomy) for i in range(rng.randint(8, 30))]
    spaces = [_namespace(prefix, {"kind": "main"}), _namespace(other, {"kind": "other"})]
    stock = storage(rng, prefix, found, prefix)
    running = []
    for i in range(rng.randint(0, 3 * len(found))):
        node = rng.choice(found)["metadata"]["name"]
        running.append(pods.running(rng, f"r{i}", prefix if rng.random() < 0.8 else other, node))
    _free_ports_of_ended(running)
    asked = [pods.waiting(rng, f"p{i}", prefix, found) for i in range(waiting)]
    # Pods may be left over from a node that has gone.
    there = [node for node in found if rng.random() < 0.96]
    return RandomCluster(prefix, spaces, there, stock, _named(running, prefix), _named(asked, prefix))


def _free_ports_of_ended(running: list[Object]) -> None:
    """An ended pod has no host port that another pod of its node has: no scheduler would have put both there.

    kube-scheduler keeps the ports of a node as a set. When one of two users ends, the port is free for it until it
    restarts; Carico counts the users.
    """
    for pod in running:
        if pod["status"]["phase"] == "Succeeded":
            others = (p for p in running if p is not pod and p["spec"]["nodeName"] == pod["spec"]["nodeName"])
            if pods.ports_of(pod) & {port for other in others for port in pods.ports_of(other)}:
                del pod["spec"]["containers"][0]["ports"]


def _namespace(name: str, labels: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _named(objects: list[Object], prefix: str) -> list[Object]:
    """Terms name the other namespace before it exists."""
    found: list[Object] = json.loads(json.dumps(objects).replace("NAMESPACE", prefix))
    return found
