"""Which clients receive class costs, and when.

A scheduler subscribes to all classes and receives every change within EVERY seconds. A node first receives the classes
with most pods, and then the ones that it named, which are those of its own pods: immediately when it names them, and
within EVERY_WANTED seconds when they change by so much that it matters to a node, which has measured these pods itself
or will in seconds. Other changes are sent to nodes in turn, a bounded number of nodes each second: thousands of nodes
must not be sent every new job of the cluster, nor every few per cent by which a class that runs on a hundred of them
moves.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from carico.aggregator.class_rows import RESOURCES
from carico.aggregator.classes import Classes, Published, figures_moved
from carico.aggregator.journal import JournalEntry
from carico.types import ClassCost
from carico.wire.codec import classes as codec
from carico.wire.codec.classes import ClassName, Query
from carico.wire.server import Outlet

EVERY = 0.5  # s between two messages to a scheduler
EVERY_WANTED = 1.0  # s between two messages to a node about classes that it named
MATTERS = 0.1  # share by which such a class must move since it was last sent immediately: a node's own threshold
WANTED_AT_ONCE = 500  # nodes that are sent such changes in one call; the others follow in the next ones
IN_TURN = 100.0  # nodes per second that are sent other changes
NODE_LIMIT = 1024  # classes that a node may request at first
TOP_EVERY = 5.0  # s between two rankings of the classes by pods
PARTS_PENDING = 4  # waiting messages of a stream at which nothing more is sent on it


class Subscriber:
    """One stream. `cursor` is the version that it has, once everything sent was received."""

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
        self._nodes: dict[Subscriber, None] = {}  # the one that is next in turn first
        self._wanted_by: defaultdict[ClassName, set[Subscriber]] = defaultdict(set)
        # Nodes that named a class which has changed, those that wait for longest first.
        self._urgent: dict[Subscriber, None] = {}
        self._noted: dict[ClassName, ClassCost] = {}  # classes that nodes named, as they were when they last mattered
        self._seen = classes.published.version
        self._turns = 0.0  # nodes that may be sent other changes now
        self._pushed_at = -math.inf
        self._top: dict[int, frozenset[ClassName]] = {}
        self._top_at = -math.inf
        self._parts: dict[tuple[int, int], list[bytes]] = {}  # by cursor (−1: whole) and limit
        self._parts_of = -1  # the version that they bring a client to

    def __len__(self) -> int:
        return len(self._schedulers) + len(self._nodes)

    def add(self, outlet: Outlet, query: Query, now: float) -> Subscriber:
        """Immediately sends what it lacks."""
        subscriber = Subscriber(outlet, query)
        (self._nodes if subscriber.limit else self._schedulers)[subscriber] = None
        for name in subscriber.wanted:
            self._add_wanted(name, subscriber)
        self._send_changes(subscriber, now)
        return subscriber

    def want(self, subscriber: Subscriber, wanted: frozenset[ClassName]) -> None:
        """It names other classes; those that are new are sent immediately."""
        new = wanted - subscriber.wanted
        for name in subscriber.wanted - wanted:
            self._unwant(name, subscriber)
        for name in new:
            self._add_wanted(name, subscriber)
        subscriber.wanted = wanted
        known = [found.chunk for name in sorted(new) if (found := self._classes.published.get(name)) is not None]
        if known:
            self._send(subscriber, codec.encode(subscriber.cursor, RESOURCES, known, whole=False))

    def remove(self, subscriber: Subscriber) -> None:
        self._schedulers.pop(subscriber, None)
        self._nodes.pop(subscriber, None)
        self._urgent.pop(subscriber, None)
        for name in subscriber.wanted:
            self._unwant(name, subscriber)

    def _add_wanted(self, name: ClassName, subscriber: Subscriber) -> None:
        self._wanted_by[name].add(subscriber)
        known = self._classes.published.get(name)
        if known is not None:
            self._noted.setdefault(name, known.cost)

    def _unwant(self, name: ClassName, subscriber: Subscriber) -> None:
        self._wanted_by[name].discard(subscriber)
        if not self._wanted_by[name]:
            del self._wanted_by[name]
            self._noted.pop(name, None)

    def push(self, now: float) -> None:
        """Sends to every client that is due; called after every refresh."""
        published = self._classes.published
        if published.version != self._seen:
            for change in published.since(self._seen):
                if change.name in self._wanted_by and self._matters(change):
                    self._urgent |= dict.fromkeys(self._wanted_by[change.name])
            self._seen = published.version
        for subscriber in [one for one in self._schedulers if one.is_due(now, EVERY)]:
            self._send_changes(subscriber, now)
        due = (one for one in self._urgent if one.is_due(now, EVERY_WANTED))
        for subscriber in list(itertools.islice(due, WANTED_AT_ONCE)):
            self._send_changes(subscriber, now)
            del self._urgent[subscriber]
        for subscriber in self._in_turn(now):
            self._send_changes(subscriber, now)

    def _matters(self, change: JournalEntry[ClassName, Published]) -> bool:
        """Whether nodes that named a class need this change immediately: it is new, or moved since this was last so."""
        noted = self._noted.get(change.name)
        if change.value is None:
            self._noted.pop(change.name, None)
            return noted is not None
        if noted is not None and not figures_moved(noted, change.value.cost, MATTERS):
            return False
        self._noted[change.name] = change.value.cost
        return True

    def _in_turn(self, now: float) -> Iterator[Subscriber]:
        """The nodes that were not sent to for longest, as many as the time since the last call allows."""
        self._turns = min(self._turns + (now - max(self._pushed_at, now - 1.0)) * IN_TURN, IN_TURN)
        self._pushed_at = now
        for subscriber in list(itertools.islice(self._nodes, int(self._turns))):
            self._turns -= 1.0
            del self._nodes[subscriber]
            self._nodes[subscriber] = None
            if subscriber.is_due(now, EVERY):
                yield subscriber

    def _send_changes(self, subscriber: Subscriber, now: float) -> None:
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
        if not published.reaches(subscriber.cursor):
            return self._whole(subscriber, now)
        if subscriber.limit:
            top, wanted = self._most_used(subscriber.limit, now), subscriber.wanted
            changes = [
                one
                for one in published.since(subscriber.cursor)
                if one.value is None or one.name in top or one.name in wanted
            ]
            return self._delta(changes) if changes else []
        return self._kept(subscriber.cursor, 0, lambda: self._delta(published.since(subscriber.cursor)))

    def _delta(self, changes: list[JournalEntry[ClassName, Published]]) -> list[bytes]:
        chunks = [change.value.chunk for change in changes if change.value is not None]
        gone = [change.name for change in changes if change.value is None]
        return codec.encode(self._classes.published.version, RESOURCES, chunks, gone, whole=False)

    def _whole(self, subscriber: Subscriber, now: float) -> list[bytes]:
        published = self._classes.published
        if not subscriber.limit:
            return self._kept(-1, 0, lambda: self._all(value.chunk for value in published.values().values()))
        top = self._most_used(subscriber.limit, now)
        first = self._kept(-1, subscriber.limit, lambda: self._all(self._chunks(top)))
        more = list(self._chunks(subscriber.wanted - top))
        if not more:
            return first
        if len(top) + len(more) > codec.PART:
            return self._all(self._chunks(top | subscriber.wanted))
        return [b"".join([*first, *more])]  # one message, most of which is shared

    def _all(self, chunks: Iterable[bytes]) -> list[bytes]:
        return codec.encode(self._classes.published.version, RESOURCES, list(chunks), whole=True)

    def _chunks(self, names: Iterable[ClassName]) -> Iterator[bytes]:
        for name in names:
            found = self._classes.published.get(name)
            if found is not None:
                yield found.chunk

    def _kept(self, cursor: int, limit: int, made: Callable[[], list[bytes]]) -> list[bytes]:
        """Made once for all clients that lack the same."""
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
    """Up to a power of two, so that many nodes share few messages.

    >>> [_rounded(limit) for limit in (0, 1, 200, 256)]
    [0, 1, 256, 256]
    """
    return 1 << (limit - 1).bit_length() if limit else 0
