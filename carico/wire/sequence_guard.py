"""Which of two messages from one sender is newer, without using any clock.

A sender counts its messages (sequence) and draws a new number at every start (start id). Start ids cannot be compared
with each other, but streams can: the receiver numbers them as they open. So a new start id on a newer stream is a
restart; an unknown start id on an older stream belongs to the previous process.
"""

from __future__ import annotations

from typing import NamedTuple

from carico.errors import InvalidMessage


class _Last(NamedTuple):
    stream: int
    start_id: int
    sequence: int


class SequenceGuard:
    """The newest message of every sender.

    >>> order = SequenceGuard()
    >>> order.check("n1", stream=1, start_id=77, sequence=5)
    >>> order.check("n1", stream=1, start_id=77, sequence=5)
    Traceback (most recent call last):
    carico.errors.InvalidMessage: order: sequence 5 of n1 comes after 5
    >>> order.check("n1", stream=2, start_id=78, sequence=1)
    >>> order.check("n1", stream=1, start_id=77, sequence=6)
    Traceback (most recent call last):
    carico.errors.InvalidMessage: order: n1 has restarted since
    """

    def __init__(self) -> None:
        self._last: dict[str, _Last] = {}

    def check(self, sender: str, *, stream: int, start_id: int, sequence: int) -> None:
        """Records the message as the newest one, or raises InvalidMessage."""
        last = self._last.get(sender)
        if last is not None:
            if start_id == last.start_id and sequence <= last.sequence:
                raise InvalidMessage("order", f"sequence {sequence} of {sender} comes after {last.sequence}")
            if start_id != last.start_id and stream <= last.stream:
                raise InvalidMessage("order", f"{sender} has restarted since")
            stream = max(stream, last.stream)
        self._last[sender] = _Last(stream, start_id, sequence)

    def stream_of(self, sender: str) -> int | None:
        """The newest stream that this sender has sent on."""
        last = self._last.get(sender)
        return None if last is None else last.stream

    def forget(self, sender: str) -> None:
        self._last.pop(sender, None)

    def __len__(self) -> int:
        return len(self._last)


class OpenStreams:
    """Which streams are open, so that the order of a sender is forgotten once no older message of it can come.

    One can come on an open stream of that sender, or on one that was opened before the sender's newest and has not sent
    its first message yet. Senders come and go for months, so nothing else is kept.

    >>> order = SequenceGuard()
    >>> streams = OpenStreams(order)
    >>> streams.add(1); streams.add(2)
    >>> order.check("n1", stream=2, start_id=78, sequence=1); streams.assign(2, "n1")
    >>> streams.remove(2); len(order)
    1
    >>> streams.remove(1); len(order)
    0
    """

    def __init__(self, order: SequenceGuard) -> None:
        self._order = order
        self._unknown: dict[int, None] = {}  # open streams whose sender is not known yet, the oldest first
        self._sender: dict[int, str] = {}  # of the other open streams
        self._count: dict[str, int] = {}  # open streams of a sender
        self._left: dict[str, None] = {}  # senders without an open stream whose order is still needed

    def add(self, stream: int) -> None:
        """Streams are numbered in the order in which they open."""
        self._unknown[stream] = None

    def assign(self, stream: int, sender: str) -> None:
        """The first message of this stream was accepted."""
        self._sender[stream] = sender
        self._count[sender] = self._count.get(sender, 0) + 1
        self._left.pop(sender, None)
        self._known(stream)

    def remove(self, stream: int) -> None:
        sender = self._sender.pop(stream, None)
        if sender is None:
            self._known(stream)
            return
        self._count[sender] -= 1
        if not self._count[sender]:
            del self._count[sender]
            self._left[sender] = None
            self._forget([sender])

    def _known(self, stream: int) -> None:
        """This stream can no longer turn out to be another sender's."""
        was_oldest = next(iter(self._unknown), None) == stream
        self._unknown.pop(stream, None)
        if was_oldest:
            self._forget(list(self._left))

    def _forget(self, senders: list[str]) -> None:
        oldest = next(iter(self._unknown), None)
        for sender in senders:
            newest = self._order.stream_of(sender)
            if oldest is None or newest is None or oldest > newest:
                self._order.forget(sender)
                self._left.pop(sender, None)
