"""ClassCost: what pods of one class need, in any message.

A node can claim at most its own size: a pod that needs more than the whole node fills it, so the
node cannot have measured more. The sender limits its values to that (`claim`), and a message beyond it is rejected.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from carico.errors import InvalidMessage
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
KEYS_KEPT = 32_768  # more than an aggregator has classes; thousands of nodes name the same ones


class ClaimBounds(NamedTuple):
    """Upper bounds of a value, per resource; finite, so that one comparison finds an infinity as well."""

    amount: tuple[float, ...]
    square: tuple[float, ...]


def limits_of(size: NodeSize, resources: tuple[str, ...]) -> tuple[float, ...]:
    """What one pod can demand of a node of this size, absolute.

    >>> limits_of(NodeSize(cores=4, memory_bytes=100.0), ("cpu", "memory", "io_pressure"))
    (8.0, 100.0, 1.0)
    """
    return tuple([_limit(size, name) for name in resources])


def _limit(size: NodeSize, resource: str) -> float:
    if resource not in DIMENSIONS:  # of a resource that is not known here the size is not known either
        return math.inf
    return size.of(resource) * (DEMAND_PER_CORE if resource == "cpu" else 1.0)


def limits_of_any_node(resources: tuple[str, ...]) -> tuple[float, ...]:
    return limits_of(NodeSize(checks.CORES_LIMIT, checks.BYTES_LIMIT), resources)


def claim(cost: ClassCost, limits: Sequence[float]) -> ClassCost | None:
    """What a node with these limits may send of a class; None for one whose name would be rejected."""
    try:
        key(cost.key.namespace, cost.key.family, cost.key.revision)
    except InvalidMessage:
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
    """What a node sends about its own pods; `limits` per resource of the message around it."""
    if len(messages) > CLASSES_PER_NODE_MESSAGE:
        raise InvalidMessage("shape", f"{len(messages)} classes; {CLASSES_PER_NODE_MESSAGE} are possible at once")
    if not messages:
        return ()
    bounds = _bounds(limits)
    costs = tuple([_decoded(message, bounds, checks.PODS_LIMIT, WEIGHT_LIMIT, nodes=1) for message in messages])
    return _different(costs)


def of_cluster(messages: Sequence[common.ClassCost], resources: tuple[str, ...], most: int) -> tuple[ClassCost, ...]:
    """What an aggregator sends about many nodes; at most `most` classes."""
    if len(messages) > most:
        raise InvalidMessage("shape", f"{len(messages)} classes; {most} are possible at once")
    bounds = _bounds(limits_of_any_node(resources))
    return _different(
        tuple(
            [
                _decoded(
                    message,
                    bounds,
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
        raise InvalidMessage("shape", "the message has a class twice")
    return costs


def _bounds(limits: tuple[float, ...]) -> ClaimBounds:
    return ClaimBounds(_finite(limits), _finite([limit**2 for limit in limits]))


def _finite(limits: Iterable[float]) -> tuple[float, ...]:
    return tuple([min(limit * (1 + ROUNDING), sys.float_info.max) for limit in limits])


def _decoded(message: common.ClassCost, bounds: ClaimBounds, pods: float, weight: float, *, nodes: int) -> ClassCost:
    return ClassCost(
        key=key(message.namespace, message.family, message.revision),
        pods=int(checks.number("pods of a class", message.pods, most=pods)),
        weight=checks.number("weight of a class", message.weight, most=weight),
        mean=_within("mean of a class", message.mean, bounds.amount),
        variance=_within("variance of a class", message.variance, bounds.square),
        high=_within("high of a class", message.high, bounds.amount),
        use_high=_within("use_high of a class", message.use_high, bounds.amount),
        ramp=checks.number("ramp of a class", message.ramp_seconds, most=RAMP_LIMIT),
        nodes=nodes,
    )


def _within(what: str, values: Sequence[float], most: tuple[float, ...]) -> tuple[float, ...]:
    found = tuple(values)
    if len(found) != len(most):
        raise InvalidMessage("shape", f"{what} has {len(found)} values instead of {len(most)}")
    for value, limit in zip(found, most, strict=True):
        if not 0.0 <= value <= limit:  # NaN as well; a call for each value costs more than all the rest
            checks.number(what, value, most=limit)
    return found


@lru_cache(maxsize=KEYS_KEPT)
def key(namespace: str, family: str, revision: str) -> ClassKey:
    """The class of this name, or InvalidMessage. The same object for every caller: an aggregator keeps many."""
    if not _is_name(family, 1, FAMILY_LIMIT) or not _is_name(revision, 0, REVISION_LIMIT):
        raise InvalidMessage("name", f"{family[:60]!r} {revision[:20]!r} is not a valid class name")
    if not _is_name(namespace, 0, NAMESPACE_LIMIT):
        raise InvalidMessage("name", f"{namespace[:60]!r} is not a valid namespace")
    return ClassKey(namespace, family, revision)


def _is_name(text: str, least: int, most: int) -> bool:
    """Shown to users, so no control characters that a terminal would interpret."""
    return least <= len(text) <= most and text.isprintable()
