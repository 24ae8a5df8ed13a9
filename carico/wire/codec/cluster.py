"""GlobalSubspace: what the aggregator answers, and what a node makes of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from carico.errors import RefusedMessage
from carico.types import ClusterModel, CostBelief, Matrix, NodeSize
from carico.wire.codec import checks
from carico.wire.v1 import aggregation_pb2 as pb
from carico.wire.v1 import common_pb2 as common


class Refused(NamedTuple):
    """The aggregator did not take the message with this sequence."""

    sequence: int
    reason: str
    detail: str


NONE_YET: bytes = pb.GlobalSubspace(none_yet=pb.NoneYet()).SerializeToString()


def encode(model: ClusterModel) -> bytes:
    answer = pb.ClusterModel(
        version=model.version,
        nodes=model.nodes,
        dimensions=model.dimensions,
        gram=model.gram.ravel(),
        mean_pods=model.mean_pods,
    )
    if model.cost is not None:
        answer.cost.CopyFrom(common.CostBelief(mean=model.cost.mean, variance=model.cost.variance))
    data: bytes = pb.GlobalSubspace(model=answer).SerializeToString()
    return data


def encode_refusal(message: pb.LocalSubspace, error: RefusedMessage) -> bytes:
    refusal = common.Refusal(**checks.refusal_of(message, error))
    data: bytes = pb.GlobalSubspace(refusal=refusal).SerializeToString()
    return data


def decode(data: bytes) -> ClusterModel | Refused | None:
    """The model, or why there is none; None when no node has told the aggregator anything yet."""
    message = checks.parsed(pb.GlobalSubspace, data)
    kind = message.WhichOneof("answer")
    if kind == "refusal":
        return Refused(message.refusal.sequence, message.refusal.reason, message.refusal.detail)
    return _model(message.model) if kind == "model" else None


def _model(message: pb.ClusterModel) -> ClusterModel:
    dimensions = checks.dimensions(message.dimensions)
    m = len(dimensions)
    gram = checks.vector("gram", message.gram, m * m).reshape(m, m)
    return ClusterModel(
        version=message.version,
        nodes=message.nodes,
        dimensions=dimensions,
        gram=gram,
        mean_pods=checks.number("mean_pods", message.mean_pods),
        cost=_cost(message.cost, m) if message.HasField("cost") else None,
    )


def _cost(message: common.CostBelief, m: int) -> CostBelief:
    variance = tuple(message.variance)
    known = [value for value in variance if value != math.inf]
    checks.amounts("variance of the cost", known, len(known))
    if len(variance) != m:
        raise RefusedMessage("shape", f"variance of the cost has {len(variance)} values instead of {m}")
    return CostBelief(checks.amounts("cost", message.mean, m), variance)


class NodeView(NamedTuple):
    """The cluster's model as one node sees it: divided by its own size, on its own dimensions."""

    gram: Matrix  # m × m, fractions of this node
    cost: CostBelief | None  # fractions of this node; infinite variance where the cluster knows nothing
    mean_pods: float


def view(model: ClusterModel, size: NodeSize, dimensions: tuple[str, ...], own: Matrix) -> NodeView:
    """What `model` means to a node of this size that watches these dimensions.

    A dimension that the cluster's model lacks (this node is newer than the aggregator) keeps the node's `own` energy,
    m × m, and no correlation with the others, so that merging changes nothing about it.
    """
    at = {dimension: i for i, dimension in enumerate(model.dimensions)}
    common_here = [i for i, dimension in enumerate(dimensions) if dimension in at]
    there = [at[dimensions[i]] for i in common_here]
    scale = 1.0 / size.vector(dimensions)
    gram = np.diag(own.diagonal().copy())
    gram[np.ix_(common_here, common_here)] = model.gram[np.ix_(there, there)]
    gram[np.ix_(common_here, common_here)] *= np.outer(scale, scale)[np.ix_(common_here, common_here)]
    return NodeView(gram, _share(model.cost, scale, dimensions, at), model.mean_pods)


def _share(
    cost: CostBelief | None, scale: np.ndarray, dimensions: tuple[str, ...], at: dict[str, int]
) -> CostBelief | None:
    if cost is None:
        return None
    mean, variance = [], []
    for dimension, factor in zip(dimensions, scale.tolist(), strict=True):
        known = dimension in at
        mean.append(cost.mean[at[dimension]] * factor if known else 0.0)
        variance.append(cost.variance[at[dimension]] * factor**2 if known else math.inf)
    return CostBelief(tuple(mean), tuple(variance))
