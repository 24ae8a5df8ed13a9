"""What a node learns from its peers: four scenarios; recreates the pictures of docs/federation.md.

The scenarios are in tests/harness/estimate/federation.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.estimate.federation import (
    DOUBLED_AT,
    EIGHT,
    SWITCH,
    WATCHED,
    Lines,
    before_and_after,
    doubling,
    sizes,
    watched,
)

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for number, (title, plan) in enumerate(WATCHED.items(), start=1):
        together, alone = watched(plan, federated=True), watched(plan, federated=False)
        figures |= _figures(number, title, together, alone)
        _draw(number, title, together, alone)
    return figures | _doubling() | _sizes()


def _figures(number: int, title: str, together: Lines, alone: Lines) -> dict[str, float]:
    print(f"{number} {title}: its peers start a heavy cpu workload after {SWITCH} s")
    figures: dict[str, float] = {}
    for name, line in together.items():
        (before, after), (own_before, own_after) = before_and_after(line), before_and_after(alone[name])
        print(f"    {name:<13} {before:6.2f} → {after:6.2f}    without federation {own_before:6.2f} → {own_after:6.2f}")
        short = "k" if name == "k" else "pod_capacity"
        figures |= {f"scenario_{number}_{short}_before": before, f"scenario_{number}_{short}_after": after}
    return {name: round(value, 2) for name, value in figures.items()}


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
    axis.set_title(f"Pods become twice as expensive on 18 of 19 nodes at {DOUBLED_AT} s")
    axis.legend(loc="upper left", frameon=False)
    figure.savefig(PICTURES / "federation-3.png", dpi=110)
    plt.close(figure)
