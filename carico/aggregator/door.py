"""Bytes in, bytes out: the sessions of the three methods, and what is said to messages that are wrong.

The answer to a good message is always the model of the last refresh, serialised once; so an exchange costs its
decoding, its checks and one row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from carico.aggregator.state import State
from carico.clock import Clock
from carico.errors import RefusedMessage
from carico.wire.codec import cluster, local, replica
from carico.wire.codec.checks import Undecodable
from carico.wire.identity import Caller
from carico.wire.refusals import Refusals
from carico.wire.server import StreamMethod, UnaryMethod

log = logging.getLogger(__name__)

SERVICE = "/carico.wire.v1.Aggregation"
LOCAL_LIMIT = 16 * 1024  # bytes of one LocalSubspace; six dimensions take half a kilobyte


class Door:
    def __init__(self, state: State, clock: Clock, on_exchange: Callable[[], None], on_refused: Callable[[str], None]):
        self.state = state
        self.clock = clock
        self.on_exchange = on_exchange
        self.refusals = Refusals(log, on_refused)
        self.answer = cluster.NONE_YET
        self.exchange = StreamMethod(lambda caller: _Exchange(self, caller), self.refuse)
        self.peer = StreamMethod(lambda caller: _PeerStream(self, caller), self.refuse)
        self.methods: dict[str, StreamMethod | UnaryMethod] = {
            f"{SERVICE}/Exchange": self.exchange,
            f"{SERVICE}/Once": UnaryMethod(lambda caller: _Exchange(self, caller), self.refuse),
            f"{SERVICE}/Peer": self.peer,
        }

    def refresh(self) -> None:
        """Makes the model anew and the bytes that all nodes get until the next time."""
        if self.state.refresh(self.clock.monotonic()):
            self.answer = cluster.NONE_YET if self.state.model is None else cluster.encode(self.state.model)

    def refuse(self, error: RefusedMessage) -> None:
        self.refusals.note(error, self.clock.monotonic())

    def undecodable(self, error: Undecodable) -> None:
        self.refuse(RefusedMessage("undecodable", str(error)))


class _Exchange:
    def __init__(self, door: Door, caller: Caller) -> None:
        self._door = door
        self._caller = caller
        self._stream = door.state.open_stream()

    def greeting(self) -> bytes | None:
        return None

    def answer(self, message: bytes) -> bytes | None:
        door = self._door
        door.on_exchange()
        try:
            if len(message) > LOCAL_LIMIT:
                raise Undecodable(f"a message of {len(message)} bytes; {LOCAL_LIMIT} are possible")
            parsed = local.parse(message)
        except Undecodable as error:
            door.undecodable(error)
            raise
        try:
            model = local.decode(parsed)
            self._caller.speaks_for(model.node)
            door.state.accept(model, self._stream, door.clock.monotonic())
        except RefusedMessage as error:
            door.refuse(error)
            return cluster.encode_refusal(parsed, error)
        return door.answer

    def closed(self) -> None:
        self._door.state.close_stream(self._stream)


class _PeerStream:
    def __init__(self, door: Door, caller: Caller) -> None:
        self._door = door
        self._caller = caller
        self._stream = door.state.open_stream()

    def greeting(self) -> bytes | None:
        return None

    def answer(self, message: bytes) -> bytes | None:
        door, state = self._door, self._door.state
        try:
            parsed = replica.parse(message)
        except Undecodable as error:
            door.undecodable(error)
            raise
        if (parsed.replica, parsed.start_id) == (state.replica, state.start_id):
            return replica.YOURSELF
        try:
            self._caller.speaks_for_replicas()
            state.heard_peer(replica.decode(parsed), self._stream, door.clock.monotonic())
        except RefusedMessage as error:
            door.refuse(error)
            return replica.encode_refusal(parsed, error)
        return replica.encode_reply(state.own_model(door.clock.monotonic()))

    def closed(self) -> None:
        """A peer that ends its stream fades like one that falls silent."""
