"""The checks that all messages share. Reasons are few, because each is a label of the metrics of rejected messages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from carico.errors import InvalidMessage, UndecodableMessage
from carico.types import Vector

REASONS = (
    *("undecodable", "identity", "name", "dimensions", "shape", "not-finite", "range", "subspace", "order"),
    *("streams", "not-reading", "rate"),  # of streams, not of single messages
)
OTHER_REASON = "other"  # a reason that this version does not know
DETAIL_LIMIT = 500  # characters of a rejection that are read

NAME_LIMIT = 253  # characters of a Kubernetes node name
DIMENSION_LIMIT = 32  # names per message; no node has more
PODS_LIMIT = 100_000
# Of one node. Far above any machine, so that a forged size cannot outweigh a whole cluster in the squares of the model.
CORES_LIMIT = 16_384.0
BYTES_LIMIT = 2.0**50

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?")
_DIMENSION = re.compile(r"[a-z][a-z0-9_]{0,39}")

M = TypeVar("M", bound=Message)


def parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise UndecodableMessage(f"{len(data)} bytes are no {kind.DESCRIPTOR.name}") from error


def name(value: str) -> str:
    if len(value) > NAME_LIMIT or not _NAME.fullmatch(value):
        raise InvalidMessage("name", f"{value[:60]!r} is not a valid name of a node or replica")
    return value


@lru_cache(maxsize=256)
def dimensions(names: tuple[str, ...]) -> tuple[str, ...]:
    """Valid names of dimensions. Cached, because nodes send the same ones all day."""
    if not 1 <= len(names) <= DIMENSION_LIMIT or len(set(names)) != len(names):
        raise InvalidMessage(
            "dimensions", f"{len(names)} dimensions; 1 to {DIMENSION_LIMIT} different ones are possible"
        )
    for dimension in names:
        if not _DIMENSION.fullmatch(dimension):
            raise InvalidMessage("dimensions", f"{dimension[:60]!r} is not a valid name of a dimension")
    return names


def vector(what: str, values: Sequence[float], length: int, most: float = math.inf) -> Vector:
    """Finite numbers in [-most, most], exactly `length` of them."""
    if len(values) != length:
        raise InvalidMessage("shape", f"{what} has {len(values)} values instead of {length}")
    array = np.array(values, dtype=np.float64)
    largest = float(np.abs(array).max(initial=0.0))  # NaN if one of them is
    if not math.isfinite(largest):
        raise InvalidMessage("not-finite", f"{what} holds {largest}")
    if largest > most:
        raise InvalidMessage("range", f"{what} holds {largest:g}, beyond {most:g}")
    return array


def amounts(what: str, values: Sequence[float], length: int, most: float = math.inf) -> tuple[float, ...]:
    """Finite numbers in [0, most], exactly `length` of them."""
    if len(values) != length:
        raise InvalidMessage("shape", f"{what} has {len(values)} values instead of {length}")
    return tuple([number(what, value, most=most) for value in values])


def number(what: str, value: float, *, least: float = 0.0, most: float = math.inf) -> float:
    if not math.isfinite(value):
        raise InvalidMessage("not-finite", f"{what} is {value}")
    if not least <= value <= most:
        raise InvalidMessage("range", f"{what} is {value:g}, outside {least:g} … {most:g}")
    return value


def refusal_of(message: Any, error: InvalidMessage) -> dict[str, Any]:
    """The fields of a Refusal that answers `message`."""
    return {"sequence": message.sequence, "reason": error.reason, "detail": error.detail}
