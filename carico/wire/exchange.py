"""The node's side of Aggregation.Exchange: it tells its own model and hears the cluster's."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections.abc import Callable

from carico.clock import Clock
from carico.errors import RefusedMessage
from carico.settings import AgentSettings
from carico.types import ClusterModel, LocalModel
from carico.wire.asking import Asking
from carico.wire.channel import Dialer
from carico.wire.client import StreamClient, any_address
from carico.wire.codec import cluster, local
from carico.wire.refusals import Refusals

log = logging.getLogger(__name__)

METHOD = "/carico.wire.v1.Aggregation/Exchange"
PATIENCE = 5.0  # s for an answer: then another replica is tried


class ExchangeTalker:
    """What a node says to the aggregator, and when. Holds the newest model of either side, nothing older."""

    def __init__(self, asking: Asking, on_model: Callable[[ClusterModel], None], refusals: Refusals) -> None:
        self._asking = asking
        self._on_model = on_model
        self._refusals = refusals
        self._newest: LocalModel | None = None
        self._sequence = itertools.count(1)
        self._first_of_stream = True
        self._has_answer = False

    def offer(self, model: LocalModel) -> None:
        """The node's newest model; its sequence is given when it is sent."""
        self._newest = model

    def opened(self, now: float) -> None:  # noqa: ARG002
        self._first_of_stream = True

    def wait(self, now: float) -> float:
        if self._newest is None:
            return math.inf
        return 0.0 if self._first_of_stream else self._asking.wait(self._newest, now, has_answer=self._has_answer)

    def next(self, now: float) -> bytes:
        assert self._newest is not None, "next() is for when wait() is 0"
        self._first_of_stream = False
        self._asking.asked(self._newest, now)
        return local.encode(dataclasses.replace(self._newest, sequence=next(self._sequence)))

    def heard(self, message: bytes, now: float) -> None:
        answer = cluster.decode(message)
        if isinstance(answer, cluster.Refused):
            self._refusals.note(RefusedMessage(answer.reason, answer.detail), now)
            return
        self._has_answer = answer is not None
        if answer is not None:
            self._on_model(answer)


class ExchangeClient:
    """Keeps a stream to one replica of the aggregator; another one is taken when that breaks or falls silent."""

    def __init__(
        self,
        settings: AgentSettings,
        clock: Clock,
        on_model: Callable[[ClusterModel], None],
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        asking = Asking(settings.ask_every, settings.ask_when_moved)
        self._talker = ExchangeTalker(asking, on_model, Refusals(log, on_refused))
        dialer = Dialer(settings.aggregator, settings, "the aggregator")
        self._client = StreamClient(dialer, METHOD, self._talker, clock, choose=any_address(dialer), patience=PATIENCE)

    @property
    def connected(self) -> bool:
        return self._client.address is not None

    def offer(self, model: LocalModel) -> None:
        """The node's newest model: sent when the asking rule says so."""
        self._talker.offer(model)
        self._client.wake()

    async def run(self) -> None:
        await self._client.run()
