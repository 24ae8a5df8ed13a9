"""The streams to the other replicas: one to every address behind the headless Service, this replica's own among them.

Each side sends the aggregate of its own nodes once per `peer_every`. A peer's aggregate is never forwarded, so nothing
is counted twice and the order of messages does not matter: after one exchange with every peer a replica is complete.
"""

from __future__ import annotations

import asyncio
import logging
import math

from carico.aggregator.service import SERVICE, AggregationService
from carico.aggregator.state import SentToPeer
from carico.clock import Clock
from carico.errors import InvalidMessage
from carico.settings import AggregatorSettings
from carico.types import ReplicaModel
from carico.wire.channel import Dialer
from carico.wire.client import Choose, StreamClient, every_address
from carico.wire.codec import replica
from carico.wire.codec.cluster import RejectedMessage

log = logging.getLogger(__name__)

PATIENCE = 3.0  # s for a response
SOON = 0.1  # s between two messages while a peer lacks classes


class PeerStreamPolicy:
    """What this replica sends to one address."""

    def __init__(self, service: AggregationService, every: float) -> None:
        self._service = service
        self._every = every
        self._stream = 0
        self._sent_at = -math.inf
        self._is_this_replica = False
        self._sent = SentToPeer()

    def on_open(self, now: float) -> None:  # noqa: ARG002
        self._stream = self._service.state.open_stream()
        self._sent_at, self._is_this_replica, self._sent = -math.inf, False, SentToPeer()

    def delay(self, now: float) -> float:
        if self._is_this_replica:
            return math.inf
        every = min(self._every, SOON) if self._service.state.lacks_classes(self._sent) else self._every
        return max(0.0, self._sent_at + every - now)

    def next_message(self, now: float) -> bytes:
        self._sent_at = now
        return replica.encode(self._service.state.own_model(now, self._sent))

    def on_message(self, message: bytes, now: float) -> None:
        answer = replica.decode_reply(message)
        if answer is None:
            self._is_this_replica = True
        elif isinstance(answer, RejectedMessage):
            log.warning("a peer refused this replica's model, %s: %s", answer.reason, answer.detail)
        else:
            self._take(answer, now)

    def _take(self, model: ReplicaModel, now: float) -> None:
        try:
            self._service.state.receive_peer(model, self._stream, now)
        except InvalidMessage as error:
            self._service.refuse(error)


async def follow(settings: AggregatorSettings, service: AggregationService, clock: Clock) -> None:
    """Never returns."""
    dialers = [Dialer(target, settings, "the other replicas") for target in settings.peers]
    await asyncio.gather(*(_follow(dialer, settings.peer_every, service, clock) for dialer in dialers))


async def _follow(dialer: Dialer, every: float, service: AggregationService, clock: Clock) -> None:
    def start(_: str, choose: Choose) -> StreamClient:
        policy = PeerStreamPolicy(service, every)
        return StreamClient(dialer, f"{SERVICE}/Peer", policy, clock, choose=choose, patience=PATIENCE)

    def changed(addresses: list[str]) -> None:
        log.info("replicas behind %s: %s", dialer.target, ", ".join(addresses))

    await every_address(dialer, clock, start, changed)
