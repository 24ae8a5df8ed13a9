"""The same pod costs each node its own fraction, and the same absolute amount."""

from __future__ import annotations

import numpy as np
import pytest

from carico.agent import units
from carico.types import ClusterModel, CostBelief, NodeSize

DIMENSIONS = ("cpu", "memory")
GIB = 2.0**30


def cluster(dimensions: tuple[str, ...] = DIMENSIONS, cost: CostBelief | None = None) -> ClusterModel:
    scale = np.arange(1.0, len(dimensions) + 1)
    return ClusterModel(
        version=1, nodes=3, dimensions=dimensions, gram=np.outer(scale, scale), mean_pods=2.0, cost=cost
    )


@pytest.mark.parametrize("cores", [2, 8, 64])
def test_a_cost_survives_the_way_through_the_cluster(cores: int) -> None:
    size = NodeSize(cores=cores, memory_bytes=cores * 4 * GIB)
    one_pod = CostBelief((0.5, GIB), (0.01, (0.1 * GIB) ** 2))  # half a core, one gibibyte
    fractions = units.cluster_cost(cluster(cost=one_pod), DIMENSIONS, size)
    assert fractions is not None
    assert fractions.mean == pytest.approx((0.5 / cores, 0.25 / cores))
    back = units.absolute_cost(fractions, size.vector(DIMENSIONS))
    assert back.mean == pytest.approx(one_pod.mean)
    assert back.variance == pytest.approx(one_pod.variance)


def test_the_order_of_dimensions_is_our_own() -> None:
    size = NodeSize(cores=2, memory_bytes=4)
    gram = units.cluster_gram(cluster(("memory", "cpu")), DIMENSIONS, size, np.zeros((2, 2)))
    # memory is 1 absolutely and 1/4 of this node, cpu is 2 and the whole of it
    assert gram == pytest.approx(np.outer([1.0, 0.25], [1.0, 0.25]))


def test_what_the_cluster_does_not_watch_stays_local() -> None:
    local = np.array([[9.0, 1.0], [1.0, 7.0]])
    gram = units.cluster_gram(cluster(("cpu",)), DIMENSIONS, NodeSize(cores=1, memory_bytes=1), local)
    assert gram.tolist() == [[1.0, 1.0], [1.0, 7.0]]
    assert local[0, 0] == 9.0
    cost = units.cluster_cost(cluster(("cpu",), CostBelief((0.5,), (0.1,))), DIMENSIONS, NodeSize(1, 1))
    assert cost == CostBelief((0.5, 0.0), (0.1, units.KNOWS_NOTHING))


def test_no_cost_is_known_before_anybody_saw_a_pod() -> None:
    assert units.cluster_cost(cluster(), DIMENSIONS, NodeSize(1, 1)) is None
