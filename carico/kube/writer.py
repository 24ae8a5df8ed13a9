"""Sends evictions, nominations, conditions, annotations, Events and NodeCapacity objects.

    put ──► ready, by urgency ──► in flight, a number of them at once ──► on_end
                ▲                      │
                └── resting ◄── 429, 5xx, no response: back-off, or the Retry-After of the response

A resting write takes no slot of a ready one. Nothing fenced is sent once the Lease is lost. A limited number of writes
of each urgency may wait; beyond it the one that has waited longest is dropped, and its `on_end` gets a QueueFullError.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping

from carico.backoff import doubled, spread
from carico.clock import Clock
from carico.errors import ApiError, CaricoError, FencedError, QueueFullError
from carico.kube.client import Client, Fence
from carico.kube.lanes import EventLane, Lane
from carico.kube.writes import Urgency, Write, WriteEntry, WriteState, always

log = logging.getLogger(__name__)

FIRST_WAIT, LAST_WAIT = 0.1, 10.0  # s before a write is retried: doubled each time, at most
LONGEST_RETRY_AFTER = 60.0  # s that a response can make a write wait
CAPACITY_WORKERS = 4  # NodeCapacity objects written at once, at most
MOST_WAITING = 50_000  # writes of one urgency
TRIED_AGAIN = (401, 408, 429)  # of the statuses below 500; a token may be replaced meanwhile


def is_final(error: Exception) -> bool:
    """Whether no later attempt can have another outcome."""
    if isinstance(error, ApiError):
        return 400 <= error.status < 500 and error.status not in TRIED_AGAIN
    return isinstance(error, FencedError) or not isinstance(error, CaricoError | OSError)


class ApiWriter:
    """`put` queues writes; `run` sends them.

    `workers` requests at once for evictions and nominations, as many for conditions and annotations, `event_workers`
    for Events; these wait while `busy` returns that bindings are in flight. `most` overrides how many writes of an
    urgency may wait. `on_result` is called for every attempt, and for dropped writes, with a label for metrics.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        fence: Fence,
        *,
        workers: int = 16,
        event_workers: int = 16,
        most: Mapping[Urgency, int] | None = None,
        busy: Callable[[], bool] = lambda: False,
        on_result: Callable[[Urgency, str], object] = lambda _urgency, _result: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._client, self._clock, self._fence = client, clock, fence
        self._on_result, self._jitter = on_result, jitter
        self._most = dict.fromkeys(Urgency, MOST_WAITING) | dict(most or {})
        self._events = EventLane(
            (Urgency.SCHEDULED_EVENT, Urgency.EVENT), event_workers, self._most[Urgency.EVENT], busy
        )
        urgent = Lane((Urgency.EVICTION, Urgency.NOMINATION), workers)
        others = Lane((Urgency.CONDITION, Urgency.ANNOTATION), workers)
        last = Lane((Urgency.NODE_CAPACITY,), min(workers, CAPACITY_WORKERS))
        lanes: list[Lane] = [urgent, others, self._events, last]
        self._lanes = {
            urgency: lane for urgency in Urgency for lane in lanes if urgency in lane.ready
        }  # in their order
        self._entries: dict[Hashable, WriteEntry] = {}
        # All that are not in flight, ready or resting, in order of arrival.
        self._waiting: dict[Urgency, OrderedDict[Hashable, WriteEntry]] = {
            urgency: OrderedDict() for urgency in Urgency
        }
        self._resting: list[tuple[float, int, WriteEntry]] = []  # a heap by the time of the next attempt
        self._serial = itertools.count()
        self._counts: Counter[Urgency] = Counter()
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    def __len__(self) -> int:
        return self._counts.total()

    def counts(self) -> dict[Urgency, int]:
        """Writes that have not ended."""
        return {urgency: self._counts[urgency] for urgency in Urgency}

    def put(self, write: Write) -> None:
        self._counts[write.urgency] += 1
        entry = self._entries.get(write.key)
        if entry is None:
            entry = self._entries[write.key] = WriteEntry(write)
            self._make_ready(entry)
        elif entry.stage is WriteState.IN_FLIGHT:
            if entry.successor is not None:
                self._counts[entry.successor.urgency] -= 1
            entry.successor = write
        else:
            self._replace(entry, write)
        self._drop_beyond(write.urgency)
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                if self._next() is None:
                    await self._wait_for_work()
                    continue
                await self._client.throttle()  # and only then the most urgent one is chosen
                entry = self._take()
                if entry is not None:
                    group.create_task(self._try(entry))
                else:
                    await asyncio.sleep(0)  # thousands may have become unwanted at once

    async def drain(self, urgencies: Iterable[Urgency] = Urgency) -> None:
        """Waits until all writes of these urgencies have ended; Events no longer wait for bindings."""
        urgencies = list(urgencies)
        self._events.busy = lambda: False
        self._changed.set()
        while any(self._counts[urgency] for urgency in urgencies):
            self._ended.clear()
            await self._ended.wait()

    # --- what waits ---

    def _make_ready(self, entry: WriteEntry) -> None:
        write = entry.write
        entry.stage, entry.ready_since = WriteState.READY, self._clock.monotonic()
        self._waiting[write.urgency].setdefault(write.key, entry)
        self._lanes[write.urgency].ready[write.urgency][write.key] = entry

    def _replace(self, entry: WriteEntry, write: Write) -> None:
        """The new write replaces the waiting one and keeps its position and back-off."""
        old, entry.write = entry.write, write
        self._counts[old.urgency] -= 1
        entry.failing_since = math.inf
        if old.urgency is write.urgency:
            return
        self._forget_waiting(entry, old.urgency)
        self._waiting[write.urgency][write.key] = entry
        if entry.stage is WriteState.READY:
            self._lanes[write.urgency].ready[write.urgency][write.key] = entry

    def _forget_waiting(self, entry: WriteEntry, urgency: Urgency) -> None:
        key = entry.write.key
        del self._waiting[urgency][key]
        if entry.stage is WriteState.READY:
            del self._lanes[urgency].ready[urgency][key]

    def _drop_beyond(self, urgency: Urgency) -> None:
        waiting = self._waiting[urgency]
        while len(waiting) > self._most[urgency]:
            entry = next(iter(waiting.values()))
            self._forget_waiting(entry, urgency)
            self._end(entry, QueueFullError())

    def _wake(self, now: float) -> None:
        """Makes those ready whose next attempt is due."""
        while self._resting and self._resting[0][0] <= now:
            _, _, entry = heapq.heappop(self._resting)
            if entry.stage is WriteState.RESTING:  # otherwise it was dropped
                self._make_ready(entry)

    # --- what is sent ---

    def _next(self) -> WriteEntry | None:
        """The most urgent write that may start."""
        now = self._clock.monotonic()
        self._wake(now)
        for urgency, lane in self._lanes.items():
            if lane.ready[urgency] and lane.opens_at(now) <= now:
                return next(iter(lane.ready[urgency].values()))
        return None

    async def _wait_for_work(self) -> None:
        """Waits for a new write or the end of one, or until the next resting write, or the next lane, is due."""
        now = self._clock.monotonic()
        when = min(lane.opens_at(now) if lane.ready[urgency] else math.inf for urgency, lane in self._lanes.items())
        if self._resting:
            when = min(when, self._resting[0][0])
        self._changed.clear()
        call_off = self._clock.call_at(when, self._changed.set) if when < math.inf else None
        try:
            await self._changed.wait()
        finally:
            if call_off is not None:
                call_off()

    def _take(self) -> WriteEntry | None:
        """The next write, removed from the waiting ones, if it is still wanted."""
        entry = self._next()
        if entry is None:
            return None
        self._forget_waiting(entry, entry.write.urgency)
        entry.stage = WriteState.IN_FLIGHT
        lane = self._lanes[entry.write.urgency]
        if not self._may_go(entry):
            return None
        lane.in_flight += 1
        return entry

    def _may_go(self, entry: WriteEntry) -> bool:
        write = entry.write
        try:
            if not write.wanted():
                self._end(entry, None, known=False)
                return False
        except Exception as error:
            log.exception("whether %s is still to be written could not be determined", write.key)
            self._end(entry, error)
            return False
        if write.fenced and not self._fence():
            self._end(entry, FencedError())
            return False
        return True

    async def _try(self, entry: WriteEntry) -> None:
        write = entry.write
        error: Exception | None = None
        try:
            await write.send(self._fence if write.fenced else always)
        except Exception as caught:
            error = caught
            if not isinstance(error, CaricoError | OSError):
                log.exception("writing %s broke", write.key)
        now = self._clock.monotonic()
        final = error is None or is_final(error)
        lane = self._lanes[write.urgency]
        lane.in_flight -= 1
        if lane is self._events:
            self._events.answered(final, now)
        if error is None or final:
            self._end(entry, error)
        else:
            self._rest(entry, error, now)
        self._changed.set()

    def _rest(self, entry: WriteEntry, error: Exception, now: float) -> None:
        """Rests until the next attempt; a write put meanwhile is sent then instead."""
        entry.tries += 1
        entry.failing_since = min(entry.failing_since, now)
        if entry.successor is not None:
            self._counts[entry.write.urgency] -= 1
            entry.write, entry.successor, entry.failing_since = entry.successor, None, math.inf
        elif now - entry.failing_since >= entry.write.patience:
            self._end(entry, error)
            return
        self._on_result(entry.write.urgency, "retried")
        wait = spread(doubled(FIRST_WAIT, LAST_WAIT, entry.tries), self._jitter())
        asked = error.retry_after if isinstance(error, ApiError) else 0.0
        due = now + max(wait, min(asked, LONGEST_RETRY_AFTER))
        entry.stage = WriteState.RESTING
        waiting = self._waiting[entry.write.urgency]
        waiting[entry.write.key] = entry
        waiting.move_to_end(entry.write.key, last=False)  # it has waited longest
        heapq.heappush(self._resting, (due, next(self._serial), entry))
        self._drop_beyond(entry.write.urgency)

    def _end(self, entry: WriteEntry, error: Exception | None, *, known: bool = True) -> None:
        """Ends the write; its successor is next, if there is one."""
        write = entry.write
        self._counts[write.urgency] -= 1
        if entry.successor is not None:
            entry.write, entry.successor = entry.successor, None
            entry.tries, entry.failing_since = 0, math.inf
            self._make_ready(entry)
        else:
            entry.stage = WriteState.ENDED
            del self._entries[write.key]
        self._on_result(write.urgency, _word(error) if known else "unwanted")
        self._ended.set()
        if known:
            try:
                write.on_end(error)
            except Exception:
                log.exception("what follows the end of %s broke", write.key)


def _word(error: Exception | None) -> str:
    if error is None:
        return "written"
    if isinstance(error, FencedError):
        return "fenced"
    return "dropped" if isinstance(error, QueueFullError) else "refused"
