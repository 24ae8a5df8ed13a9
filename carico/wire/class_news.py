"""Which class costs a node sends on a stream: those whose values moved by 10 % since they were last sent there.

Small values are measured against a floor: idle pods differ by more than 10 % from second to second, and no placement
depends on it.

A stream's first messages carry all of them, and each is sent again after some minutes even if it did not move: the
receiver may have had to forget it. A `high` that only falls is sent with the next message but triggers none: the value
that others have errs on the safe side, and in a class whose pods burst now and then it falls again and again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from carico.types import ClassCost, ClassKey
from carico.wire.codec import class_cost

AT_ONCE = 32  # classes in one message
BYTES_AT_ONCE = 12_000  # a message of more than 16 KiB ends the stream to an aggregator of the first version
FRAME_BYTES = 64  # of one class, in addition to its names and values
MOVED = 0.1  # share
FLOOR = {"cpu": 0.02, "memory": 2.0**23}  # absolute; below it a change counts as if the value were this
AGAIN = 600.0  # s


class _Sent(NamedTuple):
    cost: ClassCost
    at: float  # s, monotonic


class ClassNews:
    """For one stream; `now` is monotonic time in seconds."""

    def __init__(self) -> None:
        self._sent: dict[ClassKey, _Sent] = {}
        self._looked_at: Sequence[ClassCost] | None = None  # for the same object the result is the same
        self._due: list[ClassCost] = []
        self._presses = False  # whether one of these triggers a message
        self._floor: tuple[float, ...] = ()

    def reset(self) -> None:
        """A new stream: the receiver knows nothing yet."""
        self._sent.clear()
        self._looked_at = None

    def has_any(self, costs: Sequence[ClassCost], resources: Sequence[str], now: float) -> bool:
        """Whether one of the node's costs, which are of these resources, moved so that it should be sent now."""
        if len(self._floor) != len(resources):
            self._floor = tuple([FLOOR.get(name, 0.0) for name in resources])
        self._news(costs, now)
        return self._presses

    def take(self, costs: Sequence[ClassCost], limits: Sequence[float], now: float) -> tuple[ClassCost, ...]:
        """The costs to send now, within the node's `limits` per resource. Old ones fill up what room is left."""
        due = list(self._news(costs, now))
        if len(due) < AT_ONCE:
            keys = {cost.key for cost in due}  # a message that has a class twice is rejected
            due += [cost for cost in costs if cost.key not in keys and self._is_old(cost, now)][: AT_ONCE - len(due)]
        claims: list[ClassCost] = []
        used = 0
        for cost in due[:AT_ONCE]:
            used += _bytes(cost)
            if used > BYTES_AT_ONCE:
                break
            self._sent[cost.key] = _Sent(cost, now)
            claim = class_cost.claim(cost, limits)
            if claim is not None:
                claims.append(claim)
        self._forget(costs)
        self._looked_at = None
        return tuple(claims)

    def _news(self, costs: Sequence[ClassCost], now: float) -> list[ClassCost]:  # noqa: ARG002
        if costs is not self._looked_at:
            self._due = [cost for cost in costs if self._is_news(cost)]
            self._presses = any(map(self._is_pressing, self._due))
            self._looked_at = costs
        return self._due

    def _is_news(self, cost: ClassCost) -> bool:
        sent = self._sent.get(cost.key)
        return cost.weight > 0 and (sent is None or moved(sent.cost, cost, self._floor))

    def _is_pressing(self, cost: ClassCost) -> bool:
        sent = self._sent.get(cost.key)
        if sent is None:
            return True
        highs = tuple([max(pair) for pair in zip(sent.cost.high, cost.high, strict=True)])
        return moved(sent.cost, dataclasses.replace(cost, high=highs), self._floor)

    def _is_old(self, cost: ClassCost, now: float) -> bool:
        sent = self._sent.get(cost.key)
        return sent is not None and now - sent.at > AGAIN

    def _forget(self, costs: Sequence[ClassCost]) -> None:
        """Drops classes that the node itself has forgotten."""
        if len(self._sent) > 2 * len(costs) + AT_ONCE:
            keys = {cost.key for cost in costs}
            self._sent = {key: sent for key, sent in self._sent.items() if key in keys}


def moved(old: ClassCost, new: ClassCost, floor: Sequence[float] = ()) -> bool:
    """Whether a receiver that has `old` should be sent `new`."""
    if (old.pods > 0) != (new.pods > 0) or new.weight > 2 * old.weight:
        return True
    # A loop and no generators: every node does this for each of its classes and streams every second.
    for i, mean in enumerate(old.mean):
        least = floor[i] if floor else 0.0
        most = MOVED * (mean if mean > least else least)
        high = old.high[i]
        if abs(new.mean[i] - mean) > most or abs(new.high[i] - high) > MOVED * (high if high > least else least):
            return True
        before, now = old.variance[i], new.variance[i]
        if before != now and abs(now**0.5 - before**0.5) > most:
            return True
    return False


def _bytes(cost: ClassCost) -> int:
    names = sum(len(name.encode()) for name in cost.key)
    return FRAME_BYTES + names + 32 * len(cost.mean)
