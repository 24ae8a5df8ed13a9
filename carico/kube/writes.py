"""A write to the API server, and the state of its attempts."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from enum import Enum, IntEnum, auto

import msgspec

from carico.kube.client import Fence


class Urgency(IntEnum):
    """Smaller values go first."""

    EVICTION = 0
    NOMINATION = 1
    SCHEDULED_EVENT = 2
    CONDITION = 3
    ANNOTATION = 4
    EVENT = 5
    NODE_CAPACITY = 6


def always() -> bool:
    return True


def nothing(_: Exception | None) -> None:
    """Ignores how the write ended."""


class Write(msgspec.Struct, frozen=True, eq=False):
    """One change to be made in the API server.

    A newer write with the same key replaces one that waits; it never overtakes one that is in flight.
    """

    key: Hashable
    urgency: Urgency
    send: Callable[[Fence], Awaitable[object]]  # one attempt; every request in it is given the fence
    wanted: Callable[[], bool] = always  # called before every attempt; False drops the write, without `on_end`
    on_end: Callable[[Exception | None], object] = nothing  # None: it was written; otherwise the error that ended it
    patience: float = 300.0  # s of failed attempts after which the last error is final
    fenced: bool = True  # False: replicas that do not hold the Lease may write it too


class WriteState(Enum):
    READY = auto()
    RESTING = auto()  # until its next attempt is due
    IN_FLIGHT = auto()
    ENDED = auto()


class WriteEntry(msgspec.Struct, eq=False):
    """The newest write of a key, and the state of its attempts."""

    write: Write
    successor: Write | None = None  # put while `write` was in flight
    stage: WriteState = WriteState.READY
    tries: int = 0  # failed attempts in a row, those of replaced writes included
    failing_since: float = math.inf  # s, monotonic
    ready_since: float = 0.0  # s, monotonic
