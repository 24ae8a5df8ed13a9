"""LocalSubspace: what a node sends to the aggregator."""

from __future__ import annotations

import math

import numpy as np

from carico.errors import InvalidMessage
from carico.settings import DIMENSIONS
from carico.types import CostBelief, LocalModel, Matrix, NodeSize
from carico.wire.codec import checks, class_cost
from carico.wire.v1 import aggregation_pb2 as pb
from carico.wire.v1 import common_pb2 as common

# Columns of U·Σ are orthogonal up to rounding; this share of σ₁² is far above rounding and far below a forgery.
ORTHOGONAL_WITHIN = 1e-6
NOT_NEGATIVE_WITHIN = 1e-9
ROUNDING = 1e-6
# One pod may cost a few times a node while a filter is young, but not more.
COST_LIMIT = 10.0  # nodes


def encode(model: LocalModel) -> bytes:
    message = pb.LocalSubspace(
        node=model.node,
        start_id=model.start_id,
        sequence=model.sequence,
        size=common.NodeSize(cores=model.size.cores, memory_bytes=model.size.memory_bytes),
        dimensions=model.dimensions,
        rank=model.basis.shape[1],
        basis=model.basis.ravel(),
        baseline=model.baseline,
        pods=model.pods,
        samples=model.samples,
        class_costs=class_cost.messages_of(model.class_costs),
    )
    if model.cost is not None:
        message.cost.CopyFrom(common.CostBelief(mean=model.cost.mean, variance=model.cost.variance))
    data: bytes = message.SerializeToString()
    return data


def parse(data: bytes) -> pb.LocalSubspace:
    return checks.parsed(pb.LocalSubspace, data)


def decode(message: pb.LocalSubspace) -> LocalModel:
    """The model in `message`, or InvalidMessage."""
    dimensions = checks.dimensions(tuple(message.dimensions))
    size = _size(message.size)
    return LocalModel(
        node=checks.name(message.node),
        start_id=message.start_id,
        sequence=message.sequence,
        size=size,
        dimensions=dimensions,
        basis=_basis(message, len(dimensions)),
        baseline=checks.amounts("baseline", message.baseline, len(dimensions)),
        cost=_cost(message.cost, size, dimensions) if message.HasField("cost") else None,
        pods=int(checks.number("pods", message.pods, most=checks.PODS_LIMIT)),
        samples=message.samples,
        class_costs=class_cost.of_node(message.class_costs, class_cost.limits_of(size, dimensions)),
    )


def _size(message: common.NodeSize) -> NodeSize:
    return NodeSize(
        cores=checks.number("cores", message.cores, least=0.001, most=checks.CORES_LIMIT),
        memory_bytes=checks.number("memory_bytes", message.memory_bytes, least=1.0, most=checks.BYTES_LIMIT),
    )


def _basis(message: pb.LocalSubspace, m: int) -> Matrix:
    rank = message.rank
    if not 1 <= rank <= m:
        raise InvalidMessage("shape", f"rank {rank} with {m} dimensions")
    # No entry exceeds σ₁, and usage in [0, 1] cannot make σ₁ exceed √m.
    basis = checks.vector("basis", message.basis, m * rank, most=math.sqrt(m) * (1 + ROUNDING)).reshape(m, rank)
    energies = basis.T @ basis  # Σ² on the diagonal, zero elsewhere
    diagonal = energies.diagonal()
    most = float(diagonal.max())
    if most > m * (1 + ROUNDING):
        raise InvalidMessage("range", f"σ₁ is {math.sqrt(most):g}, beyond √{m}")
    off_diagonal = float(np.abs(energies).sum() - diagonal.sum())
    if off_diagonal > 2 * ORTHOGONAL_WITHIN * most * rank:
        raise InvalidMessage(
            "subspace", f"columns of the basis are not orthogonal: {off_diagonal:g} off the diagonal, σ₁² = {most:g}"
        )
    if basis[:, 0].min() < -NOT_NEGATIVE_WITHIN:
        raise InvalidMessage("subspace", f"the first column of the basis has the negative value {basis[:, 0].min():g}")
    return basis


def _cost(message: common.CostBelief, size: NodeSize, dimensions: tuple[str, ...]) -> CostBelief:
    mean = checks.amounts("cost", message.mean, len(dimensions))
    for dimension, value in zip(dimensions, mean, strict=True):
        if dimension in DIMENSIONS:  # of a dimension that is not known here the size is not known either
            checks.number(f"cost of {dimension}", value, most=COST_LIMIT * size.of(dimension))
    return CostBelief(mean, checks.amounts("variance of the cost", message.variance, len(dimensions)))
