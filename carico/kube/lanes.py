"""The writes that are ready to be sent, by urgency, and how many of them may be in flight at once.

Each lane has its own workers: Events that hang take none from evictions. The lane of Events also yields: it waits while
bindings are in flight, because both cost the API server the same and a pod that waits for its binding matters more; and
while every attempt fails, it sends one Event at a time with pauses between them.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable

from carico.kube.writes import Urgency, WriteEntry

LATEST = 5.0  # s that Events wait for bindings, at most
LOOK_EVERY = 0.05  # s between two checks whether bindings are still in flight
FIRST_PAUSE, LAST_PAUSE = 0.1, 5.0  # s between two Events while all of them fail
MOST_FAILURES = 64  # that are counted: beyond, neither the number at once nor the pause changes


class Lane:
    def __init__(self, urgencies: Iterable[Urgency], workers: int) -> None:
        self.ready: dict[Urgency, OrderedDict[Hashable, WriteEntry]] = {urgency: OrderedDict() for urgency in urgencies}
        self.workers = workers
        self.in_flight = 0

    def opens_at(self, now: float) -> float:
        """When the next write may start, s of the monotonic clock; inf: not before one in flight has ended."""
        return now if self.in_flight < self.workers else math.inf


class EventLane(Lane):
    def __init__(self, urgencies: Iterable[Urgency], workers: int, most: int, busy: Callable[[], bool]) -> None:
        super().__init__(urgencies, workers)
        self.busy = busy  # whether bindings are in flight
        self._most = most  # Events that may wait
        self._failures = 0  # in a row
        self._closed_until = -math.inf

    def opens_at(self, now: float) -> float:
        if self.in_flight >= max(1, self.workers >> self._failures):
            return math.inf
        if now < self._closed_until:
            return self._closed_until
        return now + LOOK_EVERY if self._lazy(now) else now

    def answered(self, well: bool, now: float) -> None:
        """An attempt has ended; `well`: with a response that is no reason to retry."""
        self._failures = 0 if well else min(MOST_FAILURES, self._failures + 1)
        pause = FIRST_PAUSE * 2**self._failures / self.workers  # counted from where only one is sent at a time
        self._closed_until = now + min(LAST_PAUSE, pause) if pause > FIRST_PAUSE else now

    def _lazy(self, now: float) -> bool:
        if not self.busy() or sum(map(len, self.ready.values())) >= self._most // 2:
            return False
        oldest = min(next(iter(queue.values())).ready_since for queue in self.ready.values() if queue)
        return now - oldest < LATEST
