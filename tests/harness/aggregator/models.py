"""Models of nodes as an aggregator receives them, and its state without a network."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from carico.aggregator.state import AggregatorState
from carico.settings import AggregatorSettings
from carico.types import ClusterModel, CostBelief, LocalModel, NodeSize

_sequence = itertools.count(1)


def make_model(i: int, **changes: Any) -> LocalModel:
    """The model of the i-th node: its size, usage and cost follow from i, unless given."""
    rng = np.random.default_rng(i)
    dimensions = changes.get("dimensions", ("cpu", "memory"))
    m = len(dimensions)
    u, sigma, _ = np.linalg.svd(rng.uniform(0, 1, (m, 10)) / np.sqrt(10), full_matrices=False)
    u[:, 0] = np.abs(u[:, 0])
    cores = float(rng.choice([2, 8, 64]))
    size = changes.get("size", NodeSize(cores, cores * 2.0**32))
    cost = CostBelief(tuple(0.02 * size.vector(dimensions)), tuple((0.002 * size.vector(dimensions)) ** 2))
    fields: dict[str, Any] = {
        "node": f"node-{i}",
        "start_id": 1,
        "sequence": next(_sequence),
        "size": size,
        "dimensions": dimensions,
        "basis": u * sigma,
        "baseline": (0.1,) * m,
        "cost": cost,
        "pods": i % 7,
        "samples": 100,
    }
    return LocalModel(**(fields | changes))


def make_state(replica: str = "r1", start_id: int = 1, **settings: Any) -> AggregatorState:
    return AggregatorState(AggregatorSettings(**({"warmup": 0.0} | settings)), replica, start_id)


def model_of(state: AggregatorState) -> ClusterModel:
    """The cluster's model, which is there."""
    assert state.model is not None
    return state.model
