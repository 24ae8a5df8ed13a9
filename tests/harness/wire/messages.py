"""Messages with the values of those that were recorded of the first version."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from carico.testing import make_cost, make_estimate, make_report
from carico.types import ClassCost, CostBelief, LocalModel, NodeReport, NodeSize


def local_model(**changes: Any) -> LocalModel:
    fields: dict[str, Any] = {
        "node": "n1",
        "start_id": 7,
        "sequence": 1,
        "size": NodeSize(cores=4, memory_bytes=2.0**33),
        "dimensions": ("cpu", "memory"),
        "basis": np.array([[0.3, 0.0], [0.4, 0.0]]),
        "baseline": (0.2, 2.0**30),
        "cost": CostBelief((0.5, 2.0**28), (0.01, 2.0**50)),
        "pods": 3,
        "samples": 100,
    }
    return LocalModel(**(fields | changes))


def class_cost(name: str = "web", **changes: Any) -> ClassCost:
    cost = make_cost(
        f"team-a/{name}",
        *(0.5, 2.0**28),
        revision="5d9c",
        pods=3,
        weight=7.5,
        variance=(0.01, 2.0**50),
        high=(0.7, 2.0**29),
        use_high=(0.4, 2.0**28),
        ramp=4.0,
    )
    return dataclasses.replace(cost, **changes)


def node_report(
    *, pod_capacity: float = 10.0, pods: int = 2, at: float = 100.0, room: tuple[float, ...] = (), **changes: Any
) -> NodeReport:
    estimate = make_estimate(
        at=at,
        usage=(0.3, 0.4),
        signal_k=2.5,
        baseline_ratio=(0.1, 0.2),
        cost_ratio=(0.05, 0.02),
        baseline_scalar=20.0,
        cost_scalar=0.05,
        pods=pods,
        pod_capacity=pod_capacity,
        room=room,
    )
    report = make_report(
        "n1",
        pod_capacity,
        counted=("uid-1", "uid-2"),
        start_id=7,
        sequence=0,
        sampled_at=1.7e9,
        estimate=estimate,
        cost_absolute=(0.2, 2.0**28),
        agent_version="0.1.0",
    )
    return dataclasses.replace(report, **changes)
