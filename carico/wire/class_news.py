"""Which class costs a node tells on a stream: those whose figures moved by 10 % since it told them there.

A stream's first messages tell all of them, and each is told again after some minutes even if it did not move: the other
side may have had to forget it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from carico.types import ClassCost, ClassKey
from carico.wire.codec import class_cost

AT_ONCE = 32  # classes in one message
BYTES_AT_ONCE = 12_000  # a message of more than 16 KiB ends the stream to an aggregator of the first version
FRAME_BYTES = 64  # of one class, beside its names and figures
MOVED = 0.1  # share
AGAIN = 600.0  # s


class _Told(NamedTuple):
    cost: ClassCost
    at: float  # s, monotonic


class ClassNews:
    """For one stream; `now` is monotonic time in seconds."""

    def __init__(self) -> None:
        self._told: dict[ClassKey, _Told] = {}
        self._looked_at: Sequence[ClassCost] | None = None  # the same costs have the same news
        self._due: list[ClassCost] = []

    def opened(self) -> None:
        """A new stream: the other side knows nothing yet."""
        self._told.clear()
        self._looked_at = None

    def has_any(self, costs: Sequence[ClassCost], now: float) -> bool:
        """Whether one of the node's costs moved since it was told."""
        return bool(self._news(costs, now))

    def take(self, costs: Sequence[ClassCost], limits: Sequence[float], now: float) -> tuple[ClassCost, ...]:
        """What to tell now; `limits` is what the node may claim, per resource. Old ones fill up what room is left."""
        due = list(self._news(costs, now))
        if len(due) < AT_ONCE:
            due += [cost for cost in costs if self._is_old(cost, now)][: AT_ONCE - len(due)]
        claims: list[ClassCost] = []
        used = 0
        for cost in due[:AT_ONCE]:
            used += _bytes(cost)
            if used > BYTES_AT_ONCE:
                break
            self._told[cost.key] = _Told(cost, now)
            claim = class_cost.claim(cost, limits)
            if claim is not None:
                claims.append(claim)
        self._forget(costs)
        self._looked_at = None
        return tuple(claims)

    def _news(self, costs: Sequence[ClassCost], now: float) -> list[ClassCost]:  # noqa: ARG002
        if costs is not self._looked_at:
            self._due = [cost for cost in costs if self._is_news(cost)]
            self._looked_at = costs
        return self._due

    def _is_news(self, cost: ClassCost) -> bool:
        told = self._told.get(cost.key)
        return cost.weight > 0 and (told is None or moved(told.cost, cost))

    def _is_old(self, cost: ClassCost, now: float) -> bool:
        told = self._told.get(cost.key)
        return told is not None and now - told.at > AGAIN

    def _forget(self, costs: Sequence[ClassCost]) -> None:
        """Classes that the node itself has forgotten."""
        if len(self._told) > 2 * len(costs) + AT_ONCE:
            keys = {cost.key for cost in costs}
            self._told = {key: told for key, told in self._told.items() if key in keys}


def moved(old: ClassCost, new: ClassCost) -> bool:
    """Whether one who knows `old` should be told `new`."""
    if (old.pods > 0) != (new.pods > 0) or new.weight > 2 * old.weight:
        return True
    figures = [*zip(old.mean, new.mean, strict=True), *zip(old.high, new.high, strict=True)]
    if any(abs(now - before) > MOVED * before for before, now in figures):
        return True
    spreads = zip(old.mean, old.variance, new.variance, strict=True)
    return any(abs(now**0.5 - before**0.5) > MOVED * mean for mean, before, now in spreads)


def _bytes(cost: ClassCost) -> int:
    names = sum(len(name.encode()) for name in cost.key)
    return FRAME_BYTES + names + 32 * len(cost.mean)
