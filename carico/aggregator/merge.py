"""Rows to a replica's aggregate, and the aggregates of all replicas to the cluster's model.

The model is the mean of the nodes' Gram matrices, entry by entry over the nodes that watch both dimensions; each node
counts once, however often it reports, and one that fades counts for less. It is recomputed from the rows each time:
that costs a matrix product, and nothing can drift. Means of means weighted by their nodes are the mean of all, so
replicas exchange only (mean, weight) of their own nodes and compute the same model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from carico.aggregator import costs
from carico.aggregator.node_table import COLUMN, M, NodeTable
from carico.types import ClusterModel, CostBelief, CostPoints, Matrix, ReplicaModel, Vector

# Times the median size: a node that reports more counts as one of that size, or one forged size would dominate.
LARGEST = 32.0
NO_POINTS = CostPoints(np.zeros(0), np.zeros(0), np.zeros(0))


class Aggregate(NamedTuple):
    """Of some nodes, on all M dimensions."""

    gram: Matrix  # M × M, mean; 0 where no node has both dimensions
    gram_weight: Matrix  # M × M, nodes behind it
    nodes: int
    weight: float
    mean_pods: float
    costs: tuple[CostPoints, ...]


def of_rows(rows: NodeTable, weight: Vector) -> Aggregate:
    """`weight` of each row, in [0, 1]."""
    n = len(rows)
    has = rows.has[:n]
    gram_weight = has.T @ (weight[:, None] * has)
    total = float(weight.sum())
    return Aggregate(
        gram=_divided((weight @ _limited(rows, weight)).reshape(M, M), gram_weight),
        gram_weight=gram_weight,
        nodes=int(np.count_nonzero(weight)),
        weight=total,
        mean_pods=float(weight @ rows.pods[:n]) / total if total else 0.0,
        costs=tuple(_points(rows, weight, column) for column in range(M)),
    )


def _limited(rows: NodeTable, weight: Vector) -> Matrix:
    """The rows of Gram matrices, those of nodes beyond LARGEST as if they were of that size."""
    n = len(rows)
    size, gram = rows.size[:n], rows.gram[:n]
    largest = np.full(M, np.inf)
    for column in range(M):
        watches = (size[:, column] > 0) & (weight > 0)
        if watches.any():
            largest[column] = LARGEST * costs.median(size[watches, column], weight[watches])
    if not (size > largest).any():
        return gram
    scale = np.minimum(1.0, largest / np.maximum(size, costs.TINY))
    limited: Matrix = gram * (scale[:, :, None] * scale[:, None, :]).reshape(n, M * M)
    return limited


def _points(rows: NodeTable, weight: Vector, column: int) -> CostPoints:
    n = len(rows)
    known = np.flatnonzero((rows.has_cost[:n, column] > 0) & (weight > 0))
    return costs.points(rows.cost[known, column], rows.cost_variance[known, column], weight[known])


def of_replica(model: ReplicaModel, fading: float) -> Aggregate:
    """A peer's aggregate; `fading` in [0, 1] is its remaining weight. Dimensions not known here are ignored."""
    known = [i for i, dimension in enumerate(model.dimensions) if dimension in COLUMN]
    at = np.ix_([COLUMN[model.dimensions[i]] for i in known], [COLUMN[model.dimensions[i]] for i in known])
    gram, gram_weight = np.zeros((M, M)), np.zeros((M, M))
    gram[at] = model.gram[np.ix_(known, known)]
    gram_weight[at] = model.gram_weight[np.ix_(known, known)] * fading
    by_column = [NO_POINTS] * M
    for i in known:
        points = model.costs[i]
        by_column[COLUMN[model.dimensions[i]]] = points._replace(weight=points.weight * fading)
    return Aggregate(gram, gram_weight, model.nodes, model.weight * fading, model.mean_pods, tuple(by_column))


def combine(parts: Iterable[Aggregate]) -> Aggregate:
    """The aggregate of all nodes behind the parts."""
    parts = [part for part in parts if part.weight > 0]
    gram_weight = sum((part.gram_weight for part in parts), np.zeros((M, M)))
    gram = sum((part.gram * part.gram_weight for part in parts), np.zeros((M, M)))
    total = sum(part.weight for part in parts)
    return Aggregate(
        gram=_divided(gram, gram_weight),
        gram_weight=gram_weight,
        nodes=sum(part.nodes for part in parts),
        weight=total,
        mean_pods=sum(part.mean_pods * part.weight for part in parts) / total if total else 0.0,
        costs=tuple(_joined([part.costs[column] for part in parts]) for column in range(M)),
    )


def _joined(parts: list[CostPoints]) -> CostPoints:
    if not parts:
        return NO_POINTS
    return CostPoints(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _divided(total: Matrix, weight: Matrix) -> Matrix:
    return np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)


def dimensions_of(aggregate: Aggregate) -> tuple[str, ...]:
    return tuple(dimension for dimension, i in COLUMN.items() if aggregate.gram_weight[i, i] > 0)


def cluster_model(aggregate: Aggregate, version: int) -> ClusterModel:
    dimensions = dimensions_of(aggregate)
    columns = [COLUMN[dimension] for dimension in dimensions]
    weight = aggregate.gram_weight[np.ix_(columns, columns)]
    gram = aggregate.gram[np.ix_(columns, columns)]
    if np.ptp(weight) > 1e-9 * weight.max():
        gram = positive(gram)
    cost = _cost([costs.robust(aggregate.costs[column]) for column in columns])
    return ClusterModel(version, aggregate.nodes, dimensions, gram, aggregate.mean_pods, cost)


def _cost(known: list[tuple[float, float] | None]) -> CostBelief | None:
    if not any(known):
        return None
    pairs = [pair or (0.0, np.inf) for pair in known]
    return CostBelief(tuple(mean for mean, _ in pairs), tuple(variance for _, variance in pairs))


def positive(gram: Matrix) -> Matrix:
    """The nearest Gram matrix to means that were taken over different nodes, which together need not be one.

    Computed on correlations, because in absolute units bytes would outweigh cores.
    """
    size = np.sqrt(gram.diagonal())
    unit = np.outer(np.where(size > 0, size, 1.0), np.where(size > 0, size, 1.0))
    values, vectors = np.linalg.eigh(gram / unit)
    result: Matrix = (vectors * np.maximum(values, 0.0)) @ vectors.T * unit
    return result


def replica_model(
    aggregate: Aggregate, replica: str, start_id: int, sequence: int, joined: frozenset[str]
) -> ReplicaModel:
    dimensions = dimensions_of(aggregate)
    columns = [COLUMN[dimension] for dimension in dimensions]
    at = np.ix_(columns, columns)
    return ReplicaModel(
        replica=replica,
        start_id=start_id,
        sequence=sequence,
        dimensions=dimensions,
        gram=aggregate.gram[at],
        gram_weight=aggregate.gram_weight[at],
        nodes=aggregate.nodes,
        weight=aggregate.weight,
        mean_pods=aggregate.mean_pods,
        costs=tuple(aggregate.costs[column] for column in columns),
        joined=joined,
    )
