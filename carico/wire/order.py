"""Which of two messages from one sender is the newer one, without looking at anybody's clock.

A sender counts its messages (sequence) and draws a new number at every start (start id). Start ids cannot be compared
with each other, but streams can: the receiver numbers them as they open. So a new start id on a newer stream is a
restart; a foreign start id on an older stream is a ghost of the process before.
"""

from __future__ import annotations

from typing import NamedTuple

from carico.errors import RefusedMessage


class _Last(NamedTuple):
    stream: int
    start_id: int
    sequence: int


class ReportOrder:
    """The newest message of every sender.

    >>> order = ReportOrder()
    >>> order.check("n1", stream=1, start_id=77, sequence=5)
    >>> order.check("n1", stream=1, start_id=77, sequence=5)
    Traceback (most recent call last):
    carico.errors.RefusedMessage: order: sequence 5 of n1 comes after 5
    >>> order.check("n1", stream=2, start_id=78, sequence=1)
    >>> order.check("n1", stream=1, start_id=77, sequence=6)
    Traceback (most recent call last):
    carico.errors.RefusedMessage: order: n1 has started anew since
    """

    def __init__(self) -> None:
        self._last: dict[str, _Last] = {}

    def check(self, sender: str, *, stream: int, start_id: int, sequence: int) -> None:
        """Takes the message as the newest one, or raises RefusedMessage."""
        last = self._last.get(sender)
        if last is not None:
            if start_id == last.start_id and sequence <= last.sequence:
                raise RefusedMessage("order", f"sequence {sequence} of {sender} comes after {last.sequence}")
            if start_id != last.start_id and stream <= last.stream:
                raise RefusedMessage("order", f"{sender} has started anew since")
            stream = max(stream, last.stream)
        self._last[sender] = _Last(stream, start_id, sequence)

    def stream_of(self, sender: str) -> int | None:
        """The newest stream that this sender has spoken on."""
        last = self._last.get(sender)
        return None if last is None else last.stream

    def forget(self, sender: str) -> None:
        self._last.pop(sender, None)
