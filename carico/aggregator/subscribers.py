"""Who hears of class costs, and when.

A scheduler asks for all classes and hears of every change within EVERY seconds. A node hears at first of the classes
with most pods, and then of the ones that it named, which are those of its own pods: at once when it names them, and
within EVERY_WANTED seconds when they change. Other changes are told to nodes in turn, a bounded number of nodes each
second: thousands of nodes must not be told of every new job of the cluster.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from carico.aggregator.class_rows import RESOURCES
from carico.aggregator.classes import Classes, Published
from carico.aggregator.journal import Change
from carico.wire.codec import classes as codec
from carico.wire.codec.classes import ClassName, Query
from carico.wire.server import Outlet

EVERY = 0.5  # s between two messages to a scheduler
EVERY_WANTED = 1.0  # s between two messages to a node about classes that it named
IN_TURN = 100.0  # nodes per second that are told of other changes
NODE_LIMIT = 1024  # classes that a node may ask for at first
TOP_EVERY = 5.0  # s between two looks at which classes have most pods
PARTS_PENDING = 4  # messages that a stream has not taken yet: it is told nothing more before


class Subscriber:
    """One stream. `cursor` is the version that it has, once everything before was taken."""

    def __init__(self, outlet: Outlet, query: Query) -> None:
        self.outlet = outlet
        self.limit = min(_rounded(query.limit), NODE_LIMIT)
        self.wanted = query.wanted
        self.cursor = query.version
        self.told_at = -math.inf

    def is_due(self, now: float, every: float) -> bool:
        return now - self.told_at >= every and self.outlet.pending < PARTS_PENDING


class Subscribers:
    """`now` is monotonic time in seconds."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._schedulers: dict[Subscriber, None] = {}
        self._nodes: dict[Subscriber, None] = {}  # the one that is told next first
        self._wanted_by: defaultdict[ClassName, set[Subscriber]] = defaultdict(set)
        self._urgent: set[Subscriber] = set()  # nodes that named a class which has changed
        self._seen = classes.published.version
        self._turns = 0.0  # nodes that may be told out of their turn's account
        self._pushed_at = -math.inf
        self._top: dict[int, frozenset[ClassName]] = {}
        self._top_at = -math.inf
        self._parts: dict[tuple[int, int], list[bytes]] = {}  # by cursor (−1: whole) and limit
        self._parts_of = -1  # the version that they bring a client to

    def __len__(self) -> int:
        return len(self._schedulers) + len(self._nodes)

    def add(self, outlet: Outlet, query: Query, now: float) -> Subscriber:
        """Tells it at once what it lacks."""
        subscriber = Subscriber(outlet, query)
        (self._nodes if subscriber.limit else self._schedulers)[subscriber] = None
        for name in subscriber.wanted:
            self._wanted_by[name].add(subscriber)
        self._tell(subscriber, now)
        return subscriber

    def want(self, subscriber: Subscriber, wanted: frozenset[ClassName]) -> None:
        """It names other classes; those that are new are told at once."""
        new = wanted - subscriber.wanted
        for name in subscriber.wanted - wanted:
            self._unwant(name, subscriber)
        for name in new:
            self._wanted_by[name].add(subscriber)
        subscriber.wanted = wanted
        known = [found.chunk for name in sorted(new) if (found := self._classes.published.get(name)) is not None]
        if known:
            self._send(subscriber, codec.encode(subscriber.cursor, RESOURCES, known, whole=False))

    def remove(self, subscriber: Subscriber) -> None:
        self._schedulers.pop(subscriber, None)
        self._nodes.pop(subscriber, None)
        self._urgent.discard(subscriber)
        for name in subscriber.wanted:
            self._unwant(name, subscriber)

    def _unwant(self, name: ClassName, subscriber: Subscriber) -> None:
        self._wanted_by[name].discard(subscriber)
        if not self._wanted_by[name]:
            del self._wanted_by[name]

    def push(self, now: float) -> None:
        """Tells whoever is due; called after every refresh."""
        published = self._classes.published
        if published.version != self._seen:
            for change in published.since(self._seen):
                self._urgent |= self._wanted_by.get(change.name, set())
            self._seen = published.version
        for subscriber in [one for one in self._schedulers if one.is_due(now, EVERY)]:
            self._tell(subscriber, now)
        for subscriber in [one for one in self._urgent if one.is_due(now, EVERY_WANTED)]:
            self._tell(subscriber, now)
            self._urgent.discard(subscriber)
        for subscriber in self._in_turn(now):
            self._tell(subscriber, now)

    def _in_turn(self, now: float) -> Iterator[Subscriber]:
        """The nodes that were not told for longest, as many as the time since the last call allows."""
        self._turns = min(self._turns + (now - max(self._pushed_at, now - 1.0)) * IN_TURN, IN_TURN)
        self._pushed_at = now
        for subscriber in list(self._nodes)[: int(self._turns)]:
            self._turns -= 1.0
            del self._nodes[subscriber]
            self._nodes[subscriber] = None
            if subscriber.is_due(now, EVERY):
                yield subscriber

    def _tell(self, subscriber: Subscriber, now: float) -> None:
        published = self._classes.published
        if subscriber.cursor == published.version:
            return
        parts = self._lacking(subscriber, now)
        subscriber.cursor, subscriber.told_at = published.version, now
        self._send(subscriber, parts)

    def _send(self, subscriber: Subscriber, parts: Iterable[bytes]) -> None:
        for part in parts:
            subscriber.outlet.announce(part)

    def _lacking(self, subscriber: Subscriber, now: float) -> list[bytes]:
        published = self._classes.published
        if not published.knows(subscriber.cursor):
            return self._whole(subscriber, now)
        if subscriber.limit:
            top = self._most_used(subscriber.limit, now) | subscriber.wanted
            changes = [one for one in published.since(subscriber.cursor) if one.value is None or one.name in top]
            return self._delta(changes) if changes else []
        return self._kept(subscriber.cursor, 0, lambda: self._delta(published.since(subscriber.cursor)))

    def _delta(self, changes: list[Change[ClassName, Published]]) -> list[bytes]:
        chunks = [change.value.chunk for change in changes if change.value is not None]
        gone = [change.name for change in changes if change.value is None]
        return codec.encode(self._classes.published.version, RESOURCES, chunks, gone, whole=False)

    def _whole(self, subscriber: Subscriber, now: float) -> list[bytes]:
        published = self._classes.published
        if not subscriber.limit:
            return self._kept(-1, 0, lambda: self._all(value.chunk for value in published.values().values()))
        top = self._most_used(subscriber.limit, now)
        if subscriber.wanted - top:
            return self._all(self._chunks(top | subscriber.wanted))
        return self._kept(-1, subscriber.limit, lambda: self._all(self._chunks(top)))

    def _all(self, chunks: Iterable[bytes]) -> list[bytes]:
        return codec.encode(self._classes.published.version, RESOURCES, list(chunks), whole=True)

    def _chunks(self, names: Iterable[ClassName]) -> Iterator[bytes]:
        for name in names:
            found = self._classes.published.get(name)
            if found is not None:
                yield found.chunk

    def _kept(self, cursor: int, limit: int, made: Callable[[], list[bytes]]) -> list[bytes]:
        """Made once for all that lack the same."""
        if self._parts_of != self._classes.published.version:
            self._parts.clear()
            self._parts_of = self._classes.published.version
        if (cursor, limit) not in self._parts:
            self._parts[cursor, limit] = made()
        return self._parts[cursor, limit]

    def _most_used(self, limit: int, now: float) -> frozenset[ClassName]:
        if len(self._classes.published) <= limit:
            return frozenset(self._classes.published.values())
        if now - self._top_at > TOP_EVERY:
            self._top.clear()
            self._top_at = now
        if limit not in self._top:
            costs = self._classes.published.values().items()
            names = heapq.nlargest(limit, costs, key=lambda item: (item[1].cost.pods, item[1].cost.weight))
            self._top[limit] = frozenset(name for name, _ in names)
        return self._top[limit]


def _rounded(limit: int) -> int:
    """Up to a power of two, so that many nodes share few answers.

    >>> [_rounded(limit) for limit in (0, 1, 200, 256)]
    [0, 1, 256, 256]
    """
    return 1 << (limit - 1).bit_length() if limit else 0
