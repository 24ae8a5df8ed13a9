"""When a node sends to the aggregator: when its model or a class cost moved, at the latest after `ask_every` seconds.

Moved means that the dominant direction σ₁u₁, or the cost of a pod, is more than the share `ask_when_moved` away from
what was sent last. Small values are measured against a floor, so that an idle node's noise sends nothing.
"""

from __future__ import annotations

import math

from carico.types import LocalModel

DIRECTION_FLOOR = 0.1  # usage; below it a change counts as if the usage were this
COST_FLOOR = 0.01  # of the node, per pod
LEAST_GAP = 1.0  # s; the model itself changes once a second
WITHOUT_MODEL = 1.0  # s between messages while the aggregator has no model yet


class ExchangePolicy:
    """The rule for one node; `now` is monotonic time in seconds."""

    def __init__(self, ask_every: float, ask_when_moved: float) -> None:
        self._every = ask_every
        self._share = ask_when_moved
        self._sent_at = -math.inf
        self._last: LocalModel | None = None

    def wait(self, model: LocalModel, now: float, *, has_answer: bool, has_news: bool = False) -> float:
        """Seconds until the next message is due if `model` stays unchanged; `has_news`: a class cost moved."""
        gap = self._every if has_answer else min(WITHOUT_MODEL, self._every)
        if has_news or self._moved(model):
            gap = min(LEAST_GAP, self._every)
        return max(0.0, self._sent_at + gap - now)

    def sent(self, model: LocalModel, now: float) -> None:
        self._sent_at, self._last = now, model

    def _moved(self, model: LocalModel) -> bool:
        last = self._last
        if last is None or last.dimensions != model.dimensions:
            return True
        return self._direction_moved(model, last) or self._cost_moved(model, last)

    def _direction_moved(self, new: LocalModel, old: LocalModel) -> bool:
        before, now = old.basis[:, 0].tolist(), new.basis[:, 0].tolist()
        return math.dist(now, before) > self._share * max(math.hypot(*before), DIRECTION_FLOOR)

    def _cost_moved(self, new: LocalModel, old: LocalModel) -> bool:
        if new.cost is None or old.cost is None:
            return (new.cost is None) != (old.cost is None)
        for dimension, now, before in zip(new.dimensions, new.cost.mean, old.cost.mean, strict=True):
            if abs(now - before) > self._share * max(before, COST_FLOOR * new.size.of(dimension)):
                return True
        return False
