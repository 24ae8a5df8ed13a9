"""ClassCost: what pods of one class need, in whatever message it travels.

A node can claim at most its own size: a pod that wants more than the whole node fills it, and a greater claim says
nothing that this node can know. The sender cuts its figures off there (`claim`), and beyond it a message is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from carico.errors import RefusedMessage
from carico.settings import DIMENSIONS
from carico.types import ClassCost, ClassKey, NodeSize
from carico.wire.codec import checks
from carico.wire.v1 import common_pb2 as common

NAMESPACE_LIMIT = 63  # characters of a Kubernetes namespace
FAMILY_LIMIT = 320  # characters
REVISION_LIMIT = 128  # characters
CLASSES_PER_NODE_MESSAGE = 64
WEIGHT_LIMIT = 1e6  # pods
RAMP_LIMIT = 86_400.0  # s
DEMAND_PER_CORE = 2.0  # cores of demand that a core holds at most
CLUSTER_PODS_LIMIT = 10_000_000
CLUSTER_NODES_LIMIT = 1_000_000
CLUSTER_WEIGHT_LIMIT = 1e10  # pods
ROUNDING = 1e-9  # share of a limit


def limits_of(size: NodeSize, resources: tuple[str, ...]) -> tuple[float, ...]:
    """What one pod can demand of a node of this size, absolute.

    >>> limits_of(NodeSize(cores=4, memory_bytes=100.0), ("cpu", "memory", "io_pressure"))
    (8.0, 100.0, 1.0)
    """
    return tuple([_limit(size, name) for name in resources])


def _limit(size: NodeSize, resource: str) -> float:
    if resource not in DIMENSIONS:  # of one that is not known here the size is not known either
        return math.inf
    return size.of(resource) * (DEMAND_PER_CORE if resource == "cpu" else 1.0)


def limits_of_any_node(resources: tuple[str, ...]) -> tuple[float, ...]:
    return limits_of(NodeSize(checks.CORES_LIMIT, checks.BYTES_LIMIT), resources)


def claim(cost: ClassCost, limits: Sequence[float]) -> ClassCost | None:
    """What a node with these limits may say of a class; None for one whose name would be refused."""
    try:
        key(cost.key.namespace, cost.key.family, cost.key.revision)
    except RefusedMessage:
        return None
    return dataclasses.replace(
        cost,
        pods=min(cost.pods, checks.PODS_LIMIT),
        weight=min(cost.weight, WEIGHT_LIMIT),
        mean=_cut(cost.mean, limits),
        variance=_cut(cost.variance, [limit**2 for limit in limits]),
        high=_cut(cost.high, limits),
        use_high=_cut(cost.use_high, limits),
        ramp=min(cost.ramp, RAMP_LIMIT),
    )


def _cut(values: tuple[float, ...], limits: Sequence[float]) -> tuple[float, ...]:
    return tuple([min(value, limit) for value, limit in zip(values, limits, strict=True)])


def message_of(cost: ClassCost) -> common.ClassCost:
    return common.ClassCost(
        namespace=cost.key.namespace,
        family=cost.key.family,
        revision=cost.key.revision,
        pods=cost.pods,
        weight=cost.weight,
        mean=cost.mean,
        variance=cost.variance,
        high=cost.high,
        use_high=cost.use_high,
        ramp_seconds=cost.ramp,
        nodes=cost.nodes,
    )


def messages_of(costs: Iterable[ClassCost]) -> list[common.ClassCost]:
    return [message_of(cost) for cost in costs]


def of_node(messages: Sequence[common.ClassCost], limits: tuple[float, ...]) -> tuple[ClassCost, ...]:
    """What a node says of its own pods; `limits` per resource of the message around it."""
    if len(messages) > CLASSES_PER_NODE_MESSAGE:
        raise RefusedMessage("shape", f"{len(messages)} classes; {CLASSES_PER_NODE_MESSAGE} are possible at once")
    costs = tuple([_decoded(message, limits, checks.PODS_LIMIT, WEIGHT_LIMIT, nodes=1) for message in messages])
    return _different(costs)


def of_cluster(messages: Sequence[common.ClassCost], resources: tuple[str, ...], most: int) -> tuple[ClassCost, ...]:
    """What an aggregator says of many nodes, at most so many classes."""
    if len(messages) > most:
        raise RefusedMessage("shape", f"{len(messages)} classes; {most} are possible at once")
    limits = limits_of_any_node(resources)
    return _different(
        tuple(
            [
                _decoded(
                    message,
                    limits,
                    CLUSTER_PODS_LIMIT,
                    CLUSTER_WEIGHT_LIMIT,
                    nodes=int(checks.number("nodes of a class", message.nodes, most=CLUSTER_NODES_LIMIT)),
                )
                for message in messages
            ]
        )
    )


def _different(costs: tuple[ClassCost, ...]) -> tuple[ClassCost, ...]:
    if len({(cost.key.family, cost.key.revision) for cost in costs}) != len(costs):
        raise RefusedMessage("shape", "a class stands in the message twice")
    return costs


def _decoded(
    message: common.ClassCost, limits: tuple[float, ...], pods: float, weight: float, *, nodes: int
) -> ClassCost:
    return ClassCost(
        key=key(message.namespace, message.family, message.revision),
        pods=int(checks.number("pods of a class", message.pods, most=pods)),
        weight=checks.number("weight of a class", message.weight, most=weight),
        mean=_within("mean of a class", message.mean, limits),
        variance=_within("variance of a class", message.variance, tuple([limit**2 for limit in limits])),
        high=_within("high of a class", message.high, limits),
        use_high=_within("use_high of a class", message.use_high, limits),
        ramp=checks.number("ramp of a class", message.ramp_seconds, most=RAMP_LIMIT),
        nodes=nodes,
    )


def _within(what: str, values: Sequence[float], limits: tuple[float, ...]) -> tuple[float, ...]:
    if len(values) != len(limits):
        raise RefusedMessage("shape", f"{what} has {len(values)} values instead of {len(limits)}")
    return tuple(
        [checks.number(what, value, most=limit * (1 + ROUNDING)) for value, limit in zip(values, limits, strict=True)]
    )


def key(namespace: str, family: str, revision: str) -> ClassKey:
    """The class of this name, or RefusedMessage."""
    if not _is_name(family, 1, FAMILY_LIMIT) or not _is_name(revision, 0, REVISION_LIMIT):
        raise RefusedMessage("name", f"{family[:60]!r} {revision[:20]!r} is no name of a class")
    if not _is_name(namespace, 0, NAMESPACE_LIMIT):
        raise RefusedMessage("name", f"{namespace[:60]!r} is no namespace")
    return ClassKey(namespace, family, revision)


def _is_name(text: str, least: int, most: int) -> bool:
    """Shown to people, so nothing that a terminal would obey."""
    return least <= len(text) <= most and text.isprintable()
