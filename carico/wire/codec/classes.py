"""ClassQuery and ClassCosts: what a scheduler or a node hears of the costs of classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from carico.errors import RefusedMessage
from carico.types import ClassCost, ClassKey
from carico.wire.codec import checks, class_cost
from carico.wire.v1 import aggregation_pb2 as pb

PART = 1000  # classes per message, so that the longest names stay below the largest message
WANTED_LIMIT = 1000  # classes


class ClassName(NamedTuple):
    """What tells one class from all others: a family is unique in the cluster."""

    family: str
    revision: str


class Query(NamedTuple):
    version: int  # newest that the client has; 0: none
    limit: int  # classes at first; 0: all
    wanted: frozenset[ClassName]  # whose changes are sent at once


class Costs(NamedTuple):
    version: int  # 0: more follows
    whole: bool  # nothing else is known
    resources: tuple[str, ...]
    costs: tuple[ClassCost, ...]
    gone: tuple[ClassName, ...]


def name_of(key: ClassKey) -> ClassName:
    return ClassName(key.family, key.revision)


def encode_query(query: Query) -> bytes:
    wanted = [pb.ClassName(**name._asdict()) for name in sorted(query.wanted)[:WANTED_LIMIT]]
    data: bytes = pb.ClassQuery(version=query.version, limit=query.limit, wanted=wanted).SerializeToString()
    return data


def decode_query(data: bytes) -> Query:
    message = checks.parsed(pb.ClassQuery, data)
    return Query(message.version, message.limit, frozenset(_names(message.wanted, WANTED_LIMIT)))


def chunk(cost: ClassCost) -> bytes:
    """One class as a piece of a ClassCosts message: pieces put together are one message, as protobuf has it."""
    data: bytes = pb.ClassCosts(costs=[class_cost.message_of(cost)]).SerializeToString()
    return data


def encode(
    version: int, resources: tuple[str, ...], chunks: Sequence[bytes], gone: Sequence[ClassName] = (), *, whole: bool
) -> list[bytes]:
    """In parts; the last one carries the version."""
    parts = max(1, -(-max(len(chunks), len(gone)) // PART))
    return [
        b"".join(
            [
                _frame(
                    version if part == parts - 1 else 0,
                    resources,
                    gone[part * PART : (part + 1) * PART],
                    whole=whole and part == 0,
                ),
                *chunks[part * PART : (part + 1) * PART],
            ]
        )
        for part in range(parts)
    ]


def _frame(version: int, resources: tuple[str, ...], gone: Sequence[ClassName], *, whole: bool) -> bytes:
    names = [pb.ClassName(**name._asdict()) for name in gone]
    data: bytes = pb.ClassCosts(version=version, whole=whole, resources=resources, gone=names).SerializeToString()
    return data


def decode(data: bytes) -> Costs:
    """One part, or RefusedMessage."""
    message = checks.parsed(pb.ClassCosts, data)
    resources = checks.dimensions(tuple(message.resources)) if message.resources else ()
    return Costs(
        version=message.version,
        whole=message.whole,
        resources=resources,
        costs=class_cost.of_cluster(message.costs, resources, PART),
        gone=tuple(_names(message.gone, PART)),
    )


def _names(messages: Sequence[pb.ClassName], most: int) -> Iterable[ClassName]:
    if len(messages) > most:
        raise RefusedMessage("shape", f"{len(messages)} names of classes; {most} are possible at once")
    return [name_of(class_cost.key("", message.family, message.revision)) for message in messages]
