"""ReplicaModel and PeerReply: what replicas of the aggregator send each other."""

from __future__ import annotations

import numpy as np

from carico.errors import InvalidMessage
from carico.types import CostPoints, Matrix, ReplicaModel
from carico.wire.codec import checks, class_cost, cluster
from carico.wire.codec.cluster import RejectedMessage
from carico.wire.v1 import aggregation_pb2 as pb
from carico.wire.v1 import common_pb2 as common

POINTS_LIMIT = 4096  # per dimension
JOINED_LIMIT = 20_000  # names
CLASSES_LIMIT = 20_000  # classes
# Mean squares of the largest node that is accepted.
GRAM_LIMIT = checks.DIMENSION_LIMIT * checks.BYTES_LIMIT**2
NODES_LIMIT = 1_000_000
YOURSELF: bytes = pb.PeerReply(yourself=pb.Yourself()).SerializeToString()


def message_of(model: ReplicaModel) -> pb.ReplicaModel:
    return pb.ReplicaModel(
        replica=model.replica,
        start_id=model.start_id,
        sequence=model.sequence,
        dimensions=model.dimensions,
        gram=model.gram.ravel(),
        gram_weight=model.gram_weight.ravel(),
        nodes=model.nodes,
        weight=model.weight,
        mean_pods=model.mean_pods,
        costs=[pb.CostPoints(cost=c.cost, variance=c.variance, weight=c.weight) for c in model.costs],
        joined=sorted(model.joined),
        class_costs=class_cost.messages_of(model.class_costs),
    )


def encode(model: ReplicaModel) -> bytes:
    data: bytes = message_of(model).SerializeToString()
    return data


def encode_reply(model: ReplicaModel) -> bytes:
    data: bytes = pb.PeerReply(model=message_of(model)).SerializeToString()
    return data


def encode_refusal(message: pb.ReplicaModel, error: InvalidMessage) -> bytes:
    data: bytes = pb.PeerReply(refusal=common.Refusal(**checks.refusal_of(message, error))).SerializeToString()
    return data


def decode_reply(data: bytes) -> ReplicaModel | RejectedMessage | None:
    """The peer's model, or its rejection; None when the caller reached itself."""
    message = checks.parsed(pb.PeerReply, data)
    kind = message.WhichOneof("answer")
    if kind == "refusal":
        return cluster.refused(message.refusal)
    return decode(message.model) if kind == "model" else None


def parse(data: bytes) -> pb.ReplicaModel:
    return checks.parsed(pb.ReplicaModel, data)


def decode(message: pb.ReplicaModel) -> ReplicaModel:
    """The model in `message`, or InvalidMessage. A replica that has no node yet has no dimensions either."""
    dimensions = checks.dimensions(tuple(message.dimensions)) if message.dimensions else ()
    m = len(dimensions)
    if len(message.costs) != m or len(message.joined) > JOINED_LIMIT:
        raise InvalidMessage("shape", f"{len(message.costs)} costs and {len(message.joined)} new nodes, {m} dimensions")
    return ReplicaModel(
        replica=checks.name(message.replica),
        start_id=message.start_id,
        sequence=message.sequence,
        dimensions=dimensions,
        gram=_gram(message, m),
        gram_weight=np.array(checks.amounts("weight", message.gram_weight, m * m, NODES_LIMIT)).reshape(m, m),
        nodes=int(checks.number("nodes", message.nodes, most=NODES_LIMIT)),
        weight=checks.number("weight", message.weight, most=NODES_LIMIT),
        mean_pods=checks.number("mean_pods", message.mean_pods, most=checks.PODS_LIMIT),
        costs=tuple(_points(points) for points in message.costs),
        joined=frozenset(message.joined),
        class_costs=class_cost.of_cluster(message.class_costs, dimensions, CLASSES_LIMIT),
    )


def _gram(message: pb.ReplicaModel, m: int) -> Matrix:
    gram = checks.vector("gram", message.gram, m * m, most=GRAM_LIMIT).reshape(m, m)
    if not np.allclose(gram, gram.T, rtol=1e-9, atol=0.0) or (gram.diagonal() < 0).any():
        raise InvalidMessage("subspace", "the Gram matrix is not symmetric, or has a negative diagonal")
    return gram


def _points(message: pb.CostPoints) -> CostPoints:
    count = len(message.cost)
    if count > POINTS_LIMIT:
        raise InvalidMessage("shape", f"{count} points of cost; {POINTS_LIMIT} are possible")
    return CostPoints(
        cost=np.array(checks.amounts("cost", message.cost, count)),
        variance=np.array(checks.amounts("variance of the cost", message.variance, count)),
        weight=np.array(checks.amounts("weight", message.weight, count, NODES_LIMIT)),
    )
