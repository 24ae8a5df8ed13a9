"""The client of Aggregation.Classes, for nodes and schedulers: the cluster's class costs, kept up to date.

Received costs stay while the aggregator is unreachable: the caller decides by the table's age (`received_at`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, cast

from carico.clock import Clock
from carico.errors import InvalidMessage
from carico.settings import TlsFiles
from carico.types import ClassCost, ClassKey
from carico.wire.channel import Dialer
from carico.wire.client import StreamClient, any_address
from carico.wire.codec import classes
from carico.wire.codec.classes import ClassName, Costs, Query

log = logging.getLogger(__name__)

METHOD = "/carico.wire.v1.Aggregation/Classes"
STREAM_AGE = 1800.0  # s on average, then a replica is chosen again
LEAST_GAP = 1.0  # s between two messages that name classes
KEPT = 20_000  # classes

OnCosts = Callable[[Mapping[ClassKey, ClassCost], tuple[str, ...]], None]


class CallsAggregator(Protocol):
    """The settings of an agent or a scheduler: TlsFiles, and the aggregator's address."""

    @property
    def aggregator(self) -> str: ...


class ClassesPolicy:
    """Holds the table; free of I/O."""

    def __init__(self, on_costs: OnCosts, limit: int) -> None:
        self._on_costs = on_costs
        self._limit = limit
        self._wanted: frozenset[ClassName] = frozenset()
        self._sent_wanted: frozenset[ClassName] | None = None  # what was sent on this stream; None: nothing yet
        self._sent_at = -math.inf
        self._table: dict[ClassName, ClassCost] = {}
        self._coming: dict[ClassName, ClassCost] | None = None  # the first parts of a whole table
        self._incomplete = False  # a part of this table was rejected
        self._version = 0
        self.received_at = -math.inf  # s, monotonic: when the last message came

    def want(self, keys: Iterable[ClassKey]) -> bool:
        """Names the classes whose changes are to be sent immediately; returns whether these differ from before."""
        wanted = frozenset(map(classes.name_of, keys))
        changed = wanted != self._wanted
        self._wanted = wanted
        return changed

    def on_open(self, now: float) -> None:  # noqa: ARG002
        self._sent_wanted, self._sent_at, self._coming, self._incomplete = None, -math.inf, None, False

    def delay(self, now: float) -> float:
        if self._sent_wanted == self._wanted:
            return math.inf
        return max(0.0, self._sent_at + LEAST_GAP - now)

    def next_message(self, now: float) -> bytes:
        self._sent_wanted, self._sent_at = self._wanted, now
        return classes.encode_query(Query(self._version, self._limit, self._wanted))

    def on_message(self, message: bytes, now: float) -> None:
        try:
            part = classes.decode(message)
        except InvalidMessage:
            self._incomplete = True
            raise
        self.received_at = now
        if part.whole:
            self._coming = {}
        table = self._table if self._coming is None else self._coming
        self._put(table, part)
        if not part.version:
            return  # more follows
        if self._incomplete:  # what was left out is requested again on the next stream, and what is known stays
            table = self._table | table
        else:
            self._version = part.version
        self._table, self._coming, self._incomplete = table, None, False
        self._on_costs({cost.key: cost for cost in table.values()}, part.resources)

    def _put(self, table: dict[ClassName, ClassCost], part: Costs) -> None:
        for name in part.gone:
            table.pop(name, None)
        for cost in part.costs:
            name = classes.name_of(cost.key)
            table.pop(name, None)
            table[name] = cost  # the last received one is last
        while len(table) > KEPT:
            del table[next(iter(table))]


class ClassesClient:
    """Keeps a stream to one replica of the aggregator, and calls `on_costs` with the whole table at every change.

    `limit` is for nodes: at first at most this number of classes, those with most pods; 0 for all.
    """

    def __init__(self, settings: CallsAggregator, clock: Clock, on_costs: OnCosts, limit: int = 0) -> None:
        self._policy = ClassesPolicy(on_costs, limit)
        dialer = Dialer(settings.aggregator, cast(TlsFiles, settings), "the aggregator")
        self._client = StreamClient(
            dialer, METHOD, self._policy, clock, choose=any_address(dialer), patience=None, longest=STREAM_AGE
        )

    @property
    def connected(self) -> bool:
        return self._client.address is not None

    @property
    def received_at(self) -> float:
        """s, monotonic: when the last message came; −∞ before the first."""
        return self._policy.received_at

    def want(self, keys: Iterable[ClassKey]) -> None:
        """Names the classes of a node's own pods: changes of these are sent immediately."""
        if self._policy.want(keys):
            self._client.wake()

    async def run(self) -> None:
        await self._client.run()
