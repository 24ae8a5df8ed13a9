"""GlobalSubspace: the aggregator's response, and a node's view of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from carico.errors import InvalidMessage
from carico.types import ClusterModel, CostBelief, Matrix, NodeSize, Vector
from carico.wire.codec import checks
from carico.wire.v1 import aggregation_pb2 as pb
from carico.wire.v1 import common_pb2 as common


class RejectedMessage(NamedTuple):
    """The aggregator rejected the message with this sequence."""

    sequence: int
    reason: str
    detail: str


def refused(message: common.Refusal) -> RejectedMessage:
    """The reason becomes a label of a metric and the detail a log line, so neither is used unchecked."""
    reason = message.reason if message.reason in checks.REASONS else checks.OTHER_REASON
    detail = message.detail[: checks.DETAIL_LIMIT]
    return RejectedMessage(message.sequence, reason, detail if detail.isprintable() else repr(detail))


LONGEST_NEXT_ASK = 120.0  # s
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


def next_ask(seconds: float) -> bytes:
    """Appended to a response: seconds for the node to wait before its next message."""
    data: bytes = pb.GlobalSubspace(next_ask_seconds=seconds).SerializeToString()
    return data


def encode_refusal(message: pb.LocalSubspace, error: InvalidMessage) -> bytes:
    refusal = common.Refusal(**checks.refusal_of(message, error))
    data: bytes = pb.GlobalSubspace(refusal=refusal).SerializeToString()
    return data


def decode(data: bytes) -> ClusterModel | RejectedMessage | None:
    """The model, or its rejection; None when no node has sent the aggregator anything yet."""
    message = checks.parsed(pb.GlobalSubspace, data)
    kind = message.WhichOneof("answer")
    if kind == "refusal":
        return refused(message.refusal)
    return _model(message.model) if kind == "model" else None


def decode_next_ask(data: bytes) -> float:
    """Seconds that the aggregator requests the node to wait; 0: the node's own rule."""
    seconds = checks.parsed(pb.GlobalSubspace, data).next_ask_seconds
    return min(seconds, LONGEST_NEXT_ASK) if math.isfinite(seconds) and seconds > 0 else 0.0


def _model(message: pb.ClusterModel) -> ClusterModel:
    dimensions = checks.dimensions(tuple(message.dimensions))
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
        raise InvalidMessage("shape", f"variance of the cost has {len(variance)} values instead of {m}")
    return CostBelief(checks.amounts("cost", message.mean, m), variance)


class NodeView(NamedTuple):
    """The cluster's model as one node sees it: divided by its own size, on its own dimensions."""

    gram: Matrix  # m × m, fractions of this node
    cost: CostBelief | None  # fractions of this node
    mean_pods: float


# The values of a cost that no node knows.
UNKNOWN_COST, UNKNOWN_VARIANCE = 0.0, math.inf
# Mean squares in fractions of this node beyond which the cluster's workload is not applicable to it: the nodes are not
# comparable with this one, or a size was forged.
GRAM_LIMIT = 1e6


def view(model: ClusterModel, size: NodeSize, dimensions: tuple[str, ...], own: Matrix) -> NodeView:
    """`model` as seen by a node of this size that watches these dimensions and whose own Gram matrix is `own`.

    A dimension that the cluster's model lacks (this node is newer than the aggregator) keeps the node's own energy and
    no correlation with the others, so that merging changes nothing about it. A matrix beyond GRAM_LIMIT is replaced by
    the node's own: the cost in the same message is still useful.
    """
    at = {dimension: i for i, dimension in enumerate(model.dimensions)}
    here = [i for i, dimension in enumerate(dimensions) if dimension in at]
    there = [at[dimensions[i]] for i in here]
    share = 1.0 / size.vector(dimensions)
    gram = np.diag(own.diagonal())
    gram[np.ix_(here, here)] = model.gram[np.ix_(there, there)] * np.outer(share[here], share[here])
    if not (np.abs(gram) <= GRAM_LIMIT).all():
        gram = own
    return NodeView(gram, _cost_here(model.cost, share, dimensions, at), model.mean_pods)


def _cost_here(
    cost: CostBelief | None, share: Vector, dimensions: tuple[str, ...], at: dict[str, int]
) -> CostBelief | None:
    if cost is None:
        return None
    mean, variance = [UNKNOWN_COST] * len(dimensions), [UNKNOWN_VARIANCE] * len(dimensions)
    for i, (dimension, factor) in enumerate(zip(dimensions, share.tolist(), strict=True)):
        if dimension in at and math.isfinite(cost.variance[at[dimension]]):
            mean[i] = cost.mean[at[dimension]] * factor
            variance[i] = cost.variance[at[dimension]] * factor**2
    return CostBelief(tuple(mean), tuple(variance))
