"""ClassQuery and ClassCosts: the costs of classes that a scheduler or a node receives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from carico.errors import InvalidMessage
from carico.types import ClassCost, ClassKey
from carico.wire.codec import checks, class_cost
from carico.wire.v1 import aggregation_pb2 as pb

PART = 1000  # classes per message, so that the longest names stay below the largest message
WANTED_LIMIT = 1000  # classes


class ClassName(NamedTuple):
    """What distinguishes one class from all others: a family is unique in the cluster."""

    family: str
    revision: str


class Query(NamedTuple):
    version: int  # newest that the client has; 0: none
    limit: int  # classes at first; 0: all
    wanted: frozenset[ClassName]  # whose changes are sent immediately


class Costs(NamedTuple):
    version: int  # 0: more follows
    whole: bool  # it replaces all that was sent before
    resources: tuple[str, ...]
    costs: tuple[ClassCost, ...]
    gone: tuple[ClassName, ...]


@lru_cache(maxsize=class_cost.KEYS_KEPT)
def name_of(key: ClassKey) -> ClassName:
    """The same object for every caller."""
    return ClassName(key.family, key.revision)


def encode_query(query: Query) -> bytes:
    wanted = [pb.ClassName(**name._asdict()) for name in sorted(query.wanted)[:WANTED_LIMIT]]
    data: bytes = pb.ClassQuery(version=query.version, limit=query.limit, wanted=wanted).SerializeToString()
    return data


def decode_query(data: bytes) -> Query:
    message = checks.parsed(pb.ClassQuery, data)
    return Query(message.version, message.limit, frozenset(_names(message.wanted, WANTED_LIMIT)))


def chunk(cost: ClassCost) -> bytes:
    """One class as a piece of a ClassCosts message: protobuf messages can be concatenated."""
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
    """One part, or InvalidMessage."""
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
        raise InvalidMessage("shape", f"{len(messages)} names of classes; {most} are possible at once")
    return [name_of(class_cost.key("", message.family, message.revision)) for message in messages]
