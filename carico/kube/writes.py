"""What a write to the API server is, and how its tries went."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from enum import Enum, IntEnum, auto

import msgspec

from carico.kube.client import Fence


class Urgency(IntEnum):
    """What is smaller goes first."""

    EVICTION = 0
    NOMINATION = 1
    SCHEDULED_EVENT = 2
    CONDITION = 3
    ANNOTATION = 4
    EVENT = 5


def always() -> bool:
    return True


def nothing(_: Exception | None) -> None:
    """Nobody wants to know how it ended."""


class Write(msgspec.Struct, frozen=True, eq=False):
    """One change to be made at the API server.

    A newer write with the same key replaces one that waits; one that is under way is never overtaken by it.
    """

    key: Hashable
    urgency: Urgency
    send: Callable[[Fence], Awaitable[object]]  # one try; every request in it is given the fence
    wanted: Callable[[], bool] = always  # asked before every try; False drops the write, and `on_end` is not called
    on_end: Callable[[Exception | None], object] = nothing  # None: it was written; otherwise the error that ended it
    patience: float = 300.0  # s of failed tries after which the last error is final
    fenced: bool = True  # False: replicas that do not hold the Lease may write it too


class Stage(Enum):
    READY = auto()
    RESTING = auto()  # until its next try is due
    IN_FLIGHT = auto()
    ENDED = auto()


class Entry(msgspec.Struct, eq=False):
    """The newest write of a key, and how its tries went."""

    write: Write
    successor: Write | None = None  # put while `write` was in flight
    stage: Stage = Stage.READY
    tries: int = 0  # that failed in a row, those of replaced writes included
    failing_since: float = math.inf  # s, monotonic
    ready_since: float = 0.0  # s, monotonic
