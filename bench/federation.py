"""What a node learns from its peers: four scenarios; recreates the pictures of docs/federation.md.

Real pipelines, asking rule and messages with the real state of one aggregator; see federation_cluster.py.

1 A lightly cpu-loaded node while its peers start a heavy cpu workload: its k falls.
2 A memory-loaded node while its peers start a cpu workload: its k rises.
3 Pods become twice as expensive on 18 of 19 nodes: the 19th reports that before it has seen one.
4 Nodes of 2, 8 and 64 cores run the same pods: a new node of any size knows their cost.
"""

from __future__ import annotations

from pathlib import Path

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

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
EIGHT = NodeSize(8, 32 * GIB)
SWITCH = 90  # s: when the peers' workload changes
SECONDS = 200
LIGHT = (0.15, 0.5 * GIB)  # cores and bytes of a small pod
MIDDLE = (0.3, 0.5 * GIB)  # what the lightly loaded node runs
HEAVY = (0.9, 0.5 * GIB)  # the cpu workload that peers start
BIG = (0.1, 4 * GIB)  # a pod that needs memory

Lines = dict[str, list[float]]  # k and Pod-Capacity of the watched node, second by second


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for number, (title, plan) in enumerate(WATCHED.items(), start=1):
        together, alone = watched(plan, federated=True), watched(plan, federated=False)
        figures |= _figures(number, title, together, alone)
        _draw(number, title, together, alone)
    return figures | _doubling() | _sizes()


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


def _figures(number: int, title: str, together: Lines, alone: Lines) -> dict[str, float]:
    print(f"{number} {title}: its peers start a heavy cpu workload after {SWITCH} s")
    figures = {}
    for name, line in together.items():
        (before, after), (own_before, own_after) = before_and_after(line), before_and_after(alone[name])
        print(f"    {name:<13} {before:6.2f} → {after:6.2f}    without federation {own_before:6.2f} → {own_after:6.2f}")
        short = "k" if name == "k" else "pod_capacity"
        figures |= {f"scenario_{number}_{short}_before": before, f"scenario_{number}_{short}_after": after}
    return {name: round(value, 2) for name, value in figures.items()}


DOUBLED_AT, DOUBLED_SECONDS = 240, 360


def doubling() -> tuple[SimulatedNode, list[SimulatedNode]]:
    """18 nodes whose pods become twice as expensive, and the 19th, whose pods do not change."""
    small, dear = LIGHT, (2 * LIGHT[0], 2 * LIGHT[1])
    last = SimulatedNode("node-19", EIGHT, then(walk(6, *small, seed=19), DOUBLED_AT - 30, steady(3, *small)))
    others = [
        SimulatedNode(f"node-{i}", EIGHT, then(walk(6, *small, seed=i), DOUBLED_AT, walk(6, *dear, seed=i)))
        for i in range(18)
    ]
    SimulatedCluster([last, *others]).run(DOUBLED_SECONDS)
    return last, others


def _doubling() -> dict[str, float]:
    last, others = doubling()
    line = [estimate.cost_ratio[0] * EIGHT.cores for estimate in last.estimates]
    peers = np.median([[e.cost_ratio[0] * EIGHT.cores for e in node.estimates] for node in others], axis=0)
    before, after = float(np.median(line[DOUBLED_AT - 20 : DOUBLED_AT])), float(np.median(line[-30:]))
    half = next((s for s in range(DOUBLED_AT, len(line)) if line[s] >= 1.5 * before), len(line)) - DOUBLED_AT
    print(f"3 pods cost twice as much on 18 of 19 nodes from {DOUBLED_AT} s: the 19th says {before:.3f} → {after:.3f}")
    print(f"    cores (truth 0.15 → 0.30); half of the way after {half} s, without a new pod of its own")
    _draw_cost(line, peers.tolist())
    return {"doubling_cost_ratio": round(after / before, 2), "doubling_seconds_to_half": half}


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


def _sizes() -> dict[str, float]:
    print(
        "4 nodes of 2, 8 and 64 cores run the same pods; cost on a new node, from the prior alone, against the truth:"
    )
    errors = sizes()
    for cores, (cpu, memory) in errors.items():
        print(f"    {cores:>2} cores: cpu {cpu:+.1%}, memory {memory:+.1%}")
    return {"prior_worst_error": round(max(abs(e) for pair in errors.values() for e in pair), 3)}


def _draw(number: int, title: str, together: Lines, alone: Lines) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
    for axis, (name, line) in zip(axes, together.items(), strict=True):
        axis.plot(line, color="C0", label="with the cluster's model")
        axis.plot(alone[name], color="C7", linewidth=1, label="on its own")
        axis.axvline(SWITCH, color="C3", linestyle=":")
        axis.set_ylabel(name if name == "k" else "Pod-Capacity\n(pods)")
        axis.set_ylim(0, 1.3 * np.percentile(line[20:] + alone[name][20:], 98))
    axes[0].set_title(f"{title[0].upper()}{title[1:]}; its peers start a cpu workload at {SWITCH} s")
    axes[0].legend(loc="upper right", frameon=False)
    axes[1].set_xlabel("seconds")
    figure.savefig(PICTURES / f"federation-{number}.png", dpi=110)
    plt.close(figure)


def _draw_cost(line: list[float], peers: list[float]) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
    axis.plot(line, color="C0", label="the 19th node, which runs none of the expensive pods")
    axis.plot(peers, color="C1", linewidth=1, label="the 18 others (median)")
    axis.axvline(DOUBLED_AT, color="C3", linestyle=":")
    axis.set(xlabel="seconds", ylabel="advertised cost\n(cores per pod)", ylim=(0, 0.45))
    axis.set_title(f"Pods become twice as dear on 18 of 19 nodes at {DOUBLED_AT} s")
    axis.legend(loc="upper left", frameon=False)
    figure.savefig(PICTURES / "federation-3.png", dpi=110)
    plt.close(figure)
