"""Between fractions of this node and absolute figures.

A tenth of a 4-core node is not a tenth of a 64-core node: whatever is compared or merged between nodes is in cores and
bytes, and whatever this node computes with is a fraction of itself. With S = diag(size), a Gram matrix G of fractions
is S·G·S absolutely.
"""

from __future__ import annotations

import numpy as np

from carico.types import ClusterModel, CostBelief, Matrix, NodeSize, Vector

# Variance of a cost that nobody has told us anything about: a pod that takes ten whole nodes is within one sigma.
KNOWS_NOTHING = 100.0


def absolute_cost(cost: CostBelief, size: Vector) -> CostBelief:
    """
    >>> absolute_cost(CostBelief((0.5,), (0.01,)), np.array([8.0]))
    CostBelief(mean=(4.0,), variance=(0.64,))
    """
    mean, variance = np.array(cost.mean) * size, np.array(cost.variance) * size**2
    return CostBelief(tuple(mean.tolist()), tuple(variance.tolist()))


def cluster_gram(model: ClusterModel, dimensions: tuple[str, ...], size: NodeSize, local: Matrix) -> Matrix:
    """The cluster's Gram matrix in fractions of this node. What the cluster does not watch stays as it is here."""
    theirs = {name: i for i, name in enumerate(model.dimensions)}
    ours = [i for i, name in enumerate(dimensions) if name in theirs]
    common = [theirs[dimensions[i]] for i in ours]
    scale = size.vector(dimensions)[ours]
    gram = local.copy()
    gram[np.ix_(ours, ours)] = model.gram[np.ix_(common, common)] / np.outer(scale, scale)
    return gram


def cluster_cost(model: ClusterModel, dimensions: tuple[str, ...], size: NodeSize) -> CostBelief | None:
    """The cluster's cost of one pod in fractions of this node, or None while nobody knows it."""
    if model.cost is None:
        return None
    theirs = dict(zip(model.dimensions, zip(model.cost.mean, model.cost.variance, strict=True), strict=True))
    mean, variance = [], []
    for name in dimensions:
        scale = size.of(name)
        their_mean, their_variance = theirs.get(name, (0.0, KNOWS_NOTHING * scale**2))
        mean.append(their_mean / scale)
        variance.append(their_variance / scale**2)
    return CostBelief(tuple(mean), tuple(variance))
