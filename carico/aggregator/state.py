"""The state of a replica of the aggregator, driven by messages and the time alone. No I/O, no clock, no task.

Messages only fill rows (`accept`, `receive_peer`); `refresh` makes the model, off the path of any call, and it is sent
until the next one.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from carico.aggregator import classes, merge
from carico.aggregator.incremental_merge import IncrementalMerge
from carico.aggregator.node_table import COLUMN, NodeTable
from carico.errors import InvalidMessage
from carico.settings import AggregatorSettings
from carico.types import ClassCost, ClusterModel, LocalModel, ReplicaModel, Vector
from carico.wire.sequence_guard import SequenceGuard

JOINED_FOR = 10.0  # s in which peers are sent that a node is here now
# In one message to a peer, which must stay below the size limit; the rest follows in the next ones.
JOINED_AT_ONCE = 5000  # names
CLASSES_AT_ONCE = 500
SEND_AGAIN = 300.0  # s after which a peer is sent all classes again: it may have dropped this replica
# The nodes of a replica that has failed connect to another one within seconds, so its aggregate must fade soon.
PEER_FADES_AFTER = 5.0  # missed exchanges
PEER_FADES_OVER = 10.0  # as many more until its weight is 0


class Peer(NamedTuple):
    model: ReplicaModel
    seen: float  # s, monotonic


@dataclass
class SentToPeer:
    """What has been sent to a peer on one stream."""

    classes: int = 0  # version
    since: float | None = None  # s, monotonic: when that began from 0
    joined: int = 0  # names sent, of those that are new now


class AggregatorState:
    """`now` is monotonic time in seconds throughout."""

    def __init__(self, settings: AggregatorSettings, replica: str, start_id: int) -> None:
        self._settings = settings
        self.replica = replica
        self.start_id = start_id
        self._sequence = itertools.count(1)
        self._rows = NodeTable()
        self._running = IncrementalMerge() if settings.merge == "running" else None
        self._order = SequenceGuard()
        self._streams = itertools.count(1)
        self._stream_of: dict[str, int] = {}  # nodes with an open stream
        self._node_of: dict[int, str] = {}  # the same, by stream
        self._joined: dict[str, float] = {}  # node → when it came to this replica
        self._peers: dict[str, Peer] = {}
        self._peer_order = SequenceGuard()
        self._first_message_at: float | None = None
        self._changed = False
        self._version = 0
        self.classes = classes.Classes(first_version=start_id)
        self.unknown_dimensions = 0  # times that a dimension was ignored
        self.own = merge.combine(())  # this replica's nodes
        self.model: ClusterModel | None = None

    # Messages

    def open_stream(self) -> int:
        return next(self._streams)

    def accept(self, model: LocalModel, stream: int, now: float) -> None:
        """Stores a node's message, or raises InvalidMessage."""
        unknown = sum(dimension not in COLUMN for dimension in model.dimensions)
        if unknown == len(model.dimensions):
            raise InvalidMessage("dimensions", f"none of {', '.join(model.dimensions)} is known here")
        self._order.check(model.node, stream=stream, start_id=model.start_id, sequence=model.sequence)
        self.unknown_dimensions += unknown
        if self._stream_of.get(model.node) != stream:
            self._assign_stream(model.node, stream, now)
        self._rows.put(model, now)
        self.classes.receive(model.node, model.class_costs, model.dimensions)
        self._changed = True
        if self._first_message_at is None:
            self._first_message_at = now
        if self._running is not None:
            row = self._rows.row(model.node)
            self._running.take(self._rows.gram[row], self._rows.has[row], len(self._rows))

    def _assign_stream(self, node: str, stream: int, now: float) -> None:
        self._let_go(node)
        self._let_go(self._node_of.get(stream))
        self._stream_of[node] = stream
        self._node_of[stream] = node
        self._joined[node] = now

    def _let_go(self, node: str | None) -> None:
        """Ends the association of a node with its stream, if it had one."""
        if node is not None and node in self._stream_of:
            del self._node_of[self._stream_of.pop(node)]

    def close_stream(self, stream: int) -> None:
        """The node may come back, or connect to another replica; until then it fades."""
        self._let_go(self._node_of.get(stream))

    def receive_peer(self, model: ReplicaModel, stream: int, now: float) -> None:
        """Another replica's aggregate. Two streams lead to each peer: one that is older than the last is no error."""
        if model.replica == self.replica:
            raise InvalidMessage("identity", f"a peer calls itself {model.replica}, as this replica does")
        try:
            self._peer_order.check(model.replica, stream=stream, start_id=model.start_id, sequence=model.sequence)
        except InvalidMessage:
            known = self._peers.get(model.replica)
            if known is not None and known.model.start_id == model.start_id:
                self._take_news(model, now)  # each stream carries all of it
            return
        before = self._peers.get(model.replica)
        if before is not None and before.model.start_id != model.start_id:
            self.classes.forget_peer(model.replica, now)
        self._peers[model.replica] = Peer(model, now)
        self._take_news(model, now)
        self._changed = True

    def _take_news(self, model: ReplicaModel, now: float) -> None:
        self.classes.receive_peer(model.replica, model.class_costs, model.dimensions, now)
        for node in model.joined:
            if node in self._rows and node not in self._stream_of:
                self._forget(node)

    # Time

    def refresh(self, now: float) -> bool:
        """Makes the model for this time; returns whether it changed."""
        weight = self._weights(now)
        for row in reversed(np.flatnonzero(weight <= 0).tolist()):
            self._forget(self._rows.names[row])
        self._drop_old(now)
        weight = self._weights(now)
        for row in np.flatnonzero(weight < 1).tolist():
            self.classes.fade(self._rows.names[row], float(weight[row]))
        fading = bool((weight < 1).any()) or any(self._peer_weight(peer, now) < 1 for peer in self._peers.values())
        if not (self._changed or fading):
            return False
        self._changed = False
        self.own = merge.of_rows(self._rows, weight)
        if self._running is not None:
            self.own = self._running.instead_of(self.own)
        self._merge(now)
        return True

    def _merge(self, now: float) -> None:
        parts = [merge.of_replica(peer.model, self._peer_weight(peer, now)) for peer in self._peers.values()]
        everybody = merge.combine([self.own, *parts])
        if not everybody.nodes:
            self.model = None
        elif not self._too_early(now):
            self._version += 1
            self.model = merge.cluster_model(everybody, self._version)

    def _too_early(self, now: float) -> bool:
        """The first node's model is not the cluster's: after a start, wait for the others, unless a peer has them."""
        if self.model is not None or any(peer.model.nodes for peer in self._peers.values()):
            return False
        if self._first_message_at is not None and now - self._first_message_at >= self._settings.warmup:
            return False
        self._changed = True  # check again at the next refresh
        return True

    def own_model(self, now: float, sent: SentToPeer | None = None) -> ReplicaModel:
        """What to send to a peer: this replica's nodes, never what another peer sent.

        `sent` is what was sent on this stream so far, and is updated; None: nothing was.
        """
        sent = SentToPeer() if sent is None else sent
        joined = [node for node, at in self._joined.items() if now - at <= JOINED_FOR]
        part = joined[sent.joined : sent.joined + JOINED_AT_ONCE]
        sent.joined = sent.joined + JOINED_AT_ONCE if sent.joined + JOINED_AT_ONCE < len(joined) else 0
        model = merge.replica_model(self.own, self.replica, self.start_id, next(self._sequence), frozenset(part))
        if sent.since is None or now - sent.since > SEND_AGAIN:
            sent.since, sent.classes = now, 0
        return dataclasses.replace(model, class_costs=self._class_news(model.dimensions, sent))

    def _class_news(self, resources: tuple[str, ...], sent: SentToPeer) -> tuple[ClassCost, ...]:
        """The next classes that a peer lacks, with zero values where this replica has none any more."""
        if not resources:
            return ()
        changes = self.classes.own.since(sent.classes)[:CLASSES_AT_ONCE]
        if changes:
            sent.classes = changes[-1].version
        costs = [change.value or classes.nothing_of(change.name) for change in changes]
        return tuple([classes.for_resources(cost, resources) for cost in costs])

    def lacks_classes(self, sent: SentToPeer) -> bool:
        """Whether a peer with this state lacks more."""
        return sent.classes < self.classes.own.version

    def node_weights(self, now: float) -> dict[str, tuple[float, float]]:
        """Age in seconds and weight of every node of this replica."""
        ages = now - self._rows.seen[: len(self._rows)]
        pairs = zip(ages.tolist(), self._weights(now).tolist(), strict=True)
        return dict(zip(self._rows.names, pairs, strict=True))

    def peer_weights(self, now: float) -> dict[str, tuple[float, float, int]]:
        """Age in seconds, weight and nodes of every peer."""
        peers = self._peers.items()
        return {name: (now - peer.seen, self._peer_weight(peer, now), peer.model.nodes) for name, peer in peers}

    def dimension_nodes(self) -> dict[str, float]:
        """How many of this replica's nodes watch each dimension."""
        return {dimension: float(self.own.gram_weight[i, i]) for dimension, i in COLUMN.items()}

    def _weights(self, now: float) -> Vector:
        silence = now - self._rows.seen[: len(self._rows)] - self._settings.fade_after
        return np.clip(1.0 - silence / self._settings.fade_over, 0.0, 1.0)

    def _peer_weight(self, peer: Peer, now: float) -> float:
        exchanges = (now - peer.seen) / self._settings.peer_every
        return min(1.0, max(0.0, 1.0 - (exchanges - PEER_FADES_AFTER) / PEER_FADES_OVER))

    def _forget(self, node: str) -> None:
        self._rows.drop(node)
        self._order.forget(node)
        self._let_go(node)
        self.classes.forget(node)
        self._joined.pop(node, None)
        self._changed = True

    def _drop_old(self, now: float) -> None:
        for name in [name for name, peer in self._peers.items() if self._peer_weight(peer, now) <= 0]:
            del self._peers[name]
            self._peer_order.forget(name)
            self.classes.forget_peer(name, now)
            self._changed = True
        for node in [node for node, at in self._joined.items() if now - at > JOINED_FOR]:
            del self._joined[node]
