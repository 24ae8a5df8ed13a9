"""What the signal k must do when a node learns of its peers' workload (the report's figures 3.1 and 3.2)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.estimate.paper.capacity_signal import signal, trace_workload, workload
from carico.estimate.paper.subspace import decompose, merge

FULL = (0.99, 0.99)
LIGHT_CPU = np.array([[0.3], [0.1]])
HEAVY_CPU = np.array([[0.9], [0.1]])
MEMORY = np.array([[0.1], [0.8]])


def k_after(own: np.ndarray, peers: np.ndarray, weight: float = 0.8) -> float:
    model = merge(decompose(peers), decompose(own), weight)
    return signal(tuple(own[:, 0].tolist()), workload(model), FULL, limit=1000.0)


def test_peers_with_a_heavier_workload_of_the_same_kind_lower_k() -> None:
    assert k_after(LIGHT_CPU, HEAVY_CPU) < 0.6 * k_after(LIGHT_CPU, LIGHT_CPU)


def test_peers_with_a_complementary_workload_raise_k() -> None:
    assert k_after(MEMORY, HEAVY_CPU) > 1.5 * k_after(MEMORY, MEMORY)


def test_the_authors_unit_hardly_depends_on_the_load() -> None:
    light, heavy = decompose(0.1 * HEAVY_CPU), decompose(HEAVY_CPU)
    assert trace_workload(light) == pytest.approx(trace_workload(heavy))
    assert trace_workload(decompose(np.zeros((2, 3)))) == (0.0, 0.0)


ratios = st.tuples(st.floats(0, 1), st.floats(0, 1))


@given(ratios, ratios)
def test_k_is_the_largest_step_that_stays_inside(usage: tuple[float, float], unit: tuple[float, float]) -> None:
    k = signal(usage, unit, FULL, limit=1000.0)
    assert 0 <= k <= 1000
    after = [y + k * v for y, v in zip(usage, unit, strict=True)]
    assert max(after) <= 1 + 1e-6 + 1000 * 1e-6
    if max(usage) >= 0.99:
        assert k == 0
    elif k < 1000:
        assert max(after) == pytest.approx(1.0)
