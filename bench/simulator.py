"""How fast the simulator is: 19 nodes with 1,000 pods for 2 minutes at 10 Hz, and 1,000 with 20,000 for 10 at 1 Hz.

CASE=small or CASE=large runs one of them. Times are of one process.
"""

from __future__ import annotations

import os
import time

import yaml

from carico.sim.kubelet import SUCCEEDED
from carico.sim.scenario import parse
from carico.sim.simulation import Simulation

SMALL = {
    "nodes": [{"count": 19, "cores": 4, "memory": "8Gi"}],
    "workloads": [{"name": "pi", "pods": 1000, "pod": {"pattern": "pi", "requests": {"cpu": "100m"}}}],
    "seconds": 120,
}
LARGE = {
    "nodes": [{"count": 1000, "cores": 16, "memory": "64Gi"}],
    "workloads": [
        {
            "name": "pi", "controller": "arrivals", "per_second": 36, "pods": 20_000,
            "pod": {"phases": [{"cpu": "300s", "memory": "500Mi"}], "requests": {"cpu": "500m"}},
        }
    ],
    "seconds": 600,
    "telemetry": {"rate_hz": 1, "exchange_every": 10},
}  # fmt: skip
CASES = {"small": SMALL, "large": LARGE}


def run() -> dict[str, object]:
    chosen = os.environ.get("CASE", "")
    figures: dict[str, object] = {}
    for name, plain in CASES.items():
        if chosen in ("", name):
            figures |= {f"{name}_{key}": value for key, value in measure(plain).items()}
            print(name, {key: value for key, value in figures.items() if key.startswith(name)}, flush=True)
    return figures


def measure(plain: dict[str, object]) -> dict[str, object]:
    scenario = parse(yaml.safe_dump(plain))
    simulation = Simulation(scenario, scenario.entries[0], seed=1)
    began, spent = time.perf_counter(), time.process_time()
    recorder = simulation.run()
    return {
        "s": round(time.perf_counter() - began, 1),
        "cpu_s": round(time.process_time() - spent, 1),
        "pods": len(recorder.pods),
        "ended": sum(pod.outcome == SUCCEEDED for pod in recorder.pods.values()),
        "node_seconds": len(recorder.nodes) * len(recorder.times),
    }
