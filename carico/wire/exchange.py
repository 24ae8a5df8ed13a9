"""The node's side of Aggregation.Exchange: it sends its own model and receives the cluster's."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import random
from collections.abc import Callable

from carico.clock import Clock
from carico.errors import InvalidMessage
from carico.settings import AgentSettings
from carico.types import ClusterModel, LocalModel
from carico.wire.channel import Dialer
from carico.wire.class_news import ClassNews
from carico.wire.client import StreamClient, any_address
from carico.wire.codec import class_cost, cluster, local
from carico.wire.exchange_policy import ExchangePolicy
from carico.wire.rejection_log import RejectionLog

log = logging.getLogger(__name__)

METHOD = "/carico.wire.v1.Aggregation/Exchange"
PATIENCE = 5.0  # s for a response: then another replica is tried
STREAM_AGE = 1800.0  # s on average, then a replica is chosen again: one that was unavailable gets its nodes back
LATER = 1.2  # times the wait that the aggregator requests, at most, so that delayed nodes do not return in one wave


class ExchangeStreamPolicy:
    """What a node sends to the aggregator, and when. Holds the newest model of either side, nothing older."""

    def __init__(
        self, send_rule: ExchangePolicy, on_model: Callable[[ClusterModel], None], refusals: RejectionLog
    ) -> None:
        self._send_rule = send_rule
        self._on_model = on_model
        self._refusals = refusals
        self._newest: LocalModel | None = None
        self._sequence = itertools.count(1)
        self._first_of_stream = True
        self._has_answer = False
        self._not_before = -math.inf  # s, monotonic: the aggregator is busy
        self._news = ClassNews()

    def offer(self, model: LocalModel) -> None:
        """The node's newest model, with all its class costs; its sequence is set when it is sent."""
        self._newest = model

    def on_open(self, now: float) -> None:  # noqa: ARG002
        self._first_of_stream = True
        self._news.reset()

    def delay(self, now: float) -> float:
        if self._newest is None:
            return math.inf
        if self._first_of_stream:
            return 0.0
        moved = self._news.has_any(self._newest.class_costs, self._newest.dimensions, now)
        due = self._send_rule.wait(self._newest, now, has_answer=self._has_answer, has_news=moved)
        return max(due, self._not_before - now)

    def next_message(self, now: float) -> bytes:
        assert self._newest is not None, "next_message() is for when delay() is 0"
        self._first_of_stream = False
        newest = self._newest
        self._send_rule.sent(newest, now)
        limits = class_cost.limits_of(newest.size, newest.dimensions)
        costs = self._news.take(newest.class_costs, limits, now)
        return local.encode(dataclasses.replace(newest, sequence=next(self._sequence), class_costs=costs))

    def on_message(self, message: bytes, now: float) -> None:
        answer = cluster.decode(message)
        self._not_before = now + cluster.decode_next_ask(message) * random.uniform(1.0, LATER)
        if isinstance(answer, cluster.RejectedMessage):
            self._refusals.note(InvalidMessage(answer.reason, answer.detail), now)
            return
        self._has_answer = answer is not None
        if answer is not None:
            self._on_model(answer)


class ExchangeClient:
    """Keeps a stream to one replica of the aggregator; another one is taken when that breaks or stops responding."""

    def __init__(
        self,
        settings: AgentSettings,
        clock: Clock,
        on_model: Callable[[ClusterModel], None],
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        send_rule = ExchangePolicy(settings.ask_every, settings.ask_when_moved)
        self._policy = ExchangeStreamPolicy(send_rule, on_model, RejectionLog(log, on_refused))
        dialer = Dialer(settings.aggregator, settings, "the aggregator")
        self._client = StreamClient(
            dialer,
            METHOD,
            self._policy,
            clock,
            choose=any_address(dialer),
            patience=PATIENCE,
            longest=STREAM_AGE,
        )

    @property
    def connected(self) -> bool:
        return self._client.address is not None

    def offer(self, model: LocalModel) -> None:
        """The node's newest model: sent according to the rule in exchange_policy.py."""
        self._policy.offer(model)
        self._client.wake()

    async def run(self) -> None:
        await self._client.run()
