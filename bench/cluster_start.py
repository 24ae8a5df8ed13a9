"""How long a real cluster takes to start from a warm cache: 1,000 kwok nodes, and a real node."""

from __future__ import annotations

import os

from harness.cluster.cluster import Cluster

NODES = 1000
RUNS = 3
MODES: dict[str, dict[str, int | bool]] = {"scale": {"nodes": NODES}, "node": {"kubelet": True}}


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for mode, options in MODES.items():
        if mode == "node" and os.geteuid() != 0:
            print("node: left out, a real node needs root")
            continue
        figures |= _middle_of(mode, [_start(options) for _ in range(RUNS)])
    return figures


def _start(options: dict[str, int | bool]) -> dict[str, float]:
    """Seconds from the start of the inner process to each of its steps."""
    with Cluster(**options) as cluster:  # type: ignore[arg-type]
        return {text: at for at, text in cluster.steps()}


def _middle_of(mode: str, starts: list[dict[str, float]]) -> dict[str, float]:
    figures = {}
    for step in starts[0]:
        seconds = sorted(start[step] for start in starts)
        middle = seconds[len(seconds) // 2]
        print(f"{mode:<6} {step:<36} {middle:6.1f} s   (of {', '.join(f'{one:.1f}' for one in seconds)})")
        figures[f"{mode}: {step}, s"] = middle
    return figures
