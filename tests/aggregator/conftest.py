"""Builders of nodes' models, a state whose clock is in the test's hand, and the folder `bench` as a package."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carico.aggregator.state import AggregatorState
from carico.settings import AggregatorSettings
from carico.types import CostBelief, LocalModel, NodeSize

BENCH = Path(__file__).parents[2] / "bench"
if "bench" not in sys.modules:  # without the repository's root on sys.path, where `import scheduler` would succeed too
    spec = importlib.util.spec_from_file_location(
        "bench", BENCH / "__init__.py", submodule_search_locations=[str(BENCH)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["bench"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["bench"])


@pytest.fixture(scope="session")
def node() -> Callable[..., LocalModel]:
    """node(i) is the i-th node: its size, usage and cost follow from i, unless said otherwise."""
    sequence = itertools.count(1)

    def build(i: int, **changes: Any) -> LocalModel:
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
            "sequence": next(sequence),
            "size": size,
            "dimensions": dimensions,
            "basis": u * sigma,
            "baseline": (0.1,) * m,
            "cost": cost,
            "pods": i % 7,
            "samples": 100,
        }
        return LocalModel(**(fields | changes))

    return build


@pytest.fixture(scope="session")
def new_state() -> Callable[..., AggregatorState]:
    def build(replica: str = "r1", start_id: int = 1, **settings: Any) -> AggregatorState:
        return AggregatorState(AggregatorSettings(**({"hold": 0.0} | settings)), replica, start_id)

    return build
