"""What a node learns from its peers: four scenarios of bench/federation.py.

Real pipelines, sending rule and messages with the real state of one aggregator; see federation_cluster.py.

1 A lightly cpu-loaded node while its peers start a heavy cpu workload: its k falls.
2 A memory-loaded node while its peers start a cpu workload: its k rises.
3 Pods become twice as expensive on 18 of 19 nodes: the 19th reports that before it has seen one.
4 Nodes of 2, 8 and 64 cores run the same pods: a new node of any size knows their cost.
"""

from __future__ import annotations

import numpy as np

from carico.types import NodeSize
from harness.estimate.federation_cluster import (
    DIMENSIONS,
    GIB,
    Load,
    Plan,
    SimulatedCluster,
    SimulatedNode,
    steady,
    then,
    walk,
)

EIGHT = NodeSize(8, 32 * GIB)
SWITCH = 90  # s: when the peers' workload changes
SECONDS = 200
LIGHT = (0.15, 0.5 * GIB)  # cores and bytes of a small pod
MIDDLE = (0.3, 0.5 * GIB)  # what the lightly loaded node runs
HEAVY = (0.9, 0.5 * GIB)  # the cpu workload that peers start
BIG = (0.1, 4 * GIB)  # a pod that needs memory

Lines = dict[str, list[float]]  # k and Pod-Capacity of the watched node, second by second


def peers_plan(seed: int) -> Plan:
    """A few small pods that start and end, then heavy ones up to nine tenths of the cores."""
    return then(walk(3, *LIGHT, seed=seed), SWITCH, walk(8, *HEAVY, seed=seed, hold=4))


WATCHED = {
    "a lightly cpu-loaded node": then(walk(4, *MIDDLE, seed=50), 60, steady(4, *MIDDLE)),
    "a memory-loaded node": then(walk(4, *BIG, seed=51), 60, steady(4, *BIG)),
}


def watched(plan: Plan, *, federated: bool) -> Lines:
    """The signals of a node with this plan among nine peers that start the cpu workload at SWITCH."""
    node = SimulatedNode("watched", EIGHT, plan)
    peers = [SimulatedNode(f"peer-{i}", EIGHT, peers_plan(i)) for i in range(9)]
    SimulatedCluster([node, *peers], federated=federated).run(SECONDS)
    return {
        "k": [estimate.signal_k for estimate in node.estimates],
        "Pod-Capacity": [estimate.pod_capacity for estimate in node.estimates],
    }


def before_and_after(line: list[float]) -> tuple[float, float]:
    """Medians of the last 20 s before the switch, and of the last 60 s of the run."""
    return float(np.median(line[SWITCH - 20 : SWITCH])), float(np.median(line[-60:]))


DOUBLED_AT, DOUBLED_SECONDS = 240, 360


def doubling() -> tuple[SimulatedNode, list[SimulatedNode]]:
    """18 nodes whose pods become twice as expensive, and the 19th, whose pods do not change."""
    small, expensive = LIGHT, (2 * LIGHT[0], 2 * LIGHT[1])
    last = SimulatedNode("node-19", EIGHT, then(walk(6, *small, seed=19), DOUBLED_AT - 30, steady(3, *small)))
    others = [
        SimulatedNode(f"node-{i}", EIGHT, then(walk(6, *small, seed=i), DOUBLED_AT, walk(6, *expensive, seed=i)))
        for i in range(18)
    ]
    SimulatedCluster([last, *others]).run(DOUBLED_SECONDS)
    return last, others


POD = (0.5, 1 * GIB)


def sizes() -> dict[int, tuple[float, ...]]:
    """Relative error of cpu and memory cost, per node size, of a new node that has only the prior."""
    cores = (2, 8, 64)
    nodes = [
        SimulatedNode(f"node-{c}-{i}", NodeSize(c, 4 * c * GIB), walk(round(1.4 * c), *POD, seed=10 * c + i, hold=3))
        for c in cores
        for i in range(4)
    ]
    cluster = SimulatedCluster(nodes)
    cluster.run(240)
    errors = {}
    for c in cores:
        new = SimulatedNode(f"new-{c}", NodeSize(c, 4 * c * GIB), lambda _: Load(0, *POD))
        cluster.add(new)
    cluster.run(15, since=240)
    for c, new in zip(cores, cluster.nodes[-3:], strict=True):
        truth = np.array(POD) / new.size.vector(DIMENSIONS)
        errors[c] = tuple((np.array(new.estimates[-1].cost_ratio) / truth - 1).tolist())
    return errors
