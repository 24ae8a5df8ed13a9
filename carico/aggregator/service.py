"""Bytes in, bytes out: the sessions of the methods, and the responses to invalid messages.

The response to a valid message is always the model of the last refresh, serialised once; so an exchange costs its
decoding, its checks and one row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from carico.aggregator.pace import Pace
from carico.aggregator.state import AggregatorState, SentToPeer
from carico.aggregator.subscribers import Subscriber, Subscribers
from carico.clock import Clock
from carico.errors import InvalidMessage, UndecodableMessage
from carico.wire.codec import classes, cluster, local, replica
from carico.wire.identity import Caller
from carico.wire.rejection_log import RejectionLog
from carico.wire.server import Outlet, StreamMethod, UnaryMethod

log = logging.getLogger(__name__)

SERVICE = "/carico.wire.v1.Aggregation"
LOCAL_LIMIT = 64 * 1024  # bytes of one LocalSubspace; six dimensions take half a kilobyte, a class about 200 bytes
QUERY_LIMIT = 512 * 1024  # bytes of one ClassQuery


class AggregationService:
    """`has_peers`: whether this replica has others. Without them no caller may report for many nodes at once."""

    def __init__(
        self,
        state: AggregatorState,
        clock: Clock,
        on_exchange: Callable[[], None],
        on_refused: Callable[[str], None],
        *,
        has_peers: bool,
    ) -> None:
        self.state = state
        self.clock = clock
        self.on_exchange = on_exchange
        self.refusals = RejectionLog(log, on_refused)
        self.pace = Pace()
        self.subscribers = Subscribers(state.classes)
        self._model = cluster.NONE_YET
        self.answer = self._model
        self.exchange = StreamMethod(lambda caller: _Exchange(self, caller), self.refuse, Caller.is_node)
        self.peer = StreamMethod(lambda caller: _PeerStream(self, caller), self.refuse, Caller.may_replicate)
        self.methods: dict[str, StreamMethod | UnaryMethod] = {
            f"{SERVICE}/Exchange": self.exchange,
            f"{SERVICE}/Once": UnaryMethod(lambda caller: _Exchange(self, caller), self.refuse, Caller.is_node),
            f"{SERVICE}/Classes": StreamMethod(lambda _: _ClassesStream(self), self.refuse, Caller.may_subscribe),
        }
        if has_peers:
            self.methods[f"{SERVICE}/Peer"] = self.peer

    def refresh(self, late: float = 0.0) -> None:
        """Recomputes the model and the bytes that all nodes get until the next refresh; `late` in seconds."""
        now = self.clock.monotonic()
        self.pace.refreshed(late)
        if self.state.refresh(now):
            self._model = cluster.NONE_YET if self.state.model is None else cluster.encode(self.state.model)
        self.answer = self._model + cluster.next_ask(self.pace.next_ask)
        self.state.classes.refresh(now)
        self.subscribers.push(now)

    def refuse(self, error: InvalidMessage) -> None:
        self.refusals.note(error, self.clock.monotonic())

    def undecodable(self, error: UndecodableMessage) -> None:
        self.refuse(InvalidMessage("undecodable", str(error)))


class _Exchange:
    def __init__(self, service: AggregationService, caller: Caller) -> None:
        self._service = service
        self._caller = caller
        self._stream = service.state.open_stream()
        self._node: str | None = None  # whose messages this stream carries

    def greeting(self) -> bytes | None:
        return None

    def answer(self, message: bytes) -> bytes | None:
        service = self._service
        service.on_exchange()
        try:
            if len(message) > LOCAL_LIMIT:
                raise UndecodableMessage(f"a message of {len(message)} bytes; {LOCAL_LIMIT} are possible")
            parsed = local.parse(message)
        except UndecodableMessage as error:
            service.undecodable(error)
            raise
        try:
            model = local.decode(parsed)
            self._caller.authorize_node(model.node)
            if self._node not in (None, model.node):
                raise InvalidMessage("identity", f"a stream of {self._node} carries a model of {model.node}")
            service.state.accept(model, self._stream, service.clock.monotonic())
        except InvalidMessage as error:
            service.refuse(error)
            return cluster.encode_refusal(parsed, error)
        self._node = model.node
        return service.answer

    def on_close(self) -> None:
        self._service.state.close_stream(self._stream)


class _ClassesStream:
    """Nodes and schedulers receive class costs."""

    def __init__(self, service: AggregationService) -> None:
        self._service = service
        self._outlet: Outlet | None = None
        self._subscriber: Subscriber | None = None

    def attach(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def greeting(self) -> bytes | None:
        return None

    def answer(self, message: bytes) -> bytes | None:
        """An invalid query ends the stream: it cannot be rejected on the stream, and no client sends one twice."""
        service = self._service
        assert self._outlet is not None
        try:
            if len(message) > QUERY_LIMIT:
                raise UndecodableMessage(f"a message of {len(message)} bytes; {QUERY_LIMIT} are possible")
            query = classes.decode_query(message)
        except UndecodableMessage as error:
            service.undecodable(error)
            raise
        except InvalidMessage as error:
            service.refuse(error)
            raise UndecodableMessage(str(error)) from error
        if self._subscriber is None:
            self._subscriber = service.subscribers.add(self._outlet, query, service.clock.monotonic())
        else:
            service.subscribers.want(self._subscriber, query.wanted)
        return None

    def on_close(self) -> None:
        if self._subscriber is not None:
            self._service.subscribers.remove(self._subscriber)


class _PeerStream:
    def __init__(self, service: AggregationService, caller: Caller) -> None:
        self._service = service
        self._caller = caller
        self._stream = service.state.open_stream()
        self._sent = SentToPeer()

    def greeting(self) -> bytes | None:
        return None

    def answer(self, message: bytes) -> bytes | None:
        service, state = self._service, self._service.state
        try:
            parsed = replica.parse(message)
        except UndecodableMessage as error:
            service.undecodable(error)
            raise
        if (parsed.replica, parsed.start_id) == (state.replica, state.start_id):
            return replica.YOURSELF
        try:
            self._caller.authorize_replica()
            state.receive_peer(replica.decode(parsed), self._stream, service.clock.monotonic())
        except InvalidMessage as error:
            service.refuse(error)
            return replica.encode_refusal(parsed, error)
        return replica.encode_reply(state.own_model(service.clock.monotonic(), self._sent))

    def on_close(self) -> None:
        """A peer that ends its stream fades like one that stops sending."""
