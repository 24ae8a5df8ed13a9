"""A limit on the messages of one stream: those beyond it are not read until their time comes.

Nothing is lost: HTTP/2 stops the sender meanwhile, and its other streams and other senders are not affected.
"""

from __future__ import annotations

MESSAGES_PER_SECOND = 50.0  # an agent sends two a second at most, a replica ten
MESSAGES_AT_ONCE = 250.0


class MessageRate:
    """`now` is monotonic time in seconds.

    >>> rate = MessageRate(now=0.0)
    >>> [rate.wait(now=1.0) for _ in range(251)][-2:]
    [0.0, 0.02]
    """

    def __init__(self, now: float) -> None:
        self._left, self._at = MESSAGES_AT_ONCE, now
        self.exceeded = False  # at least once

    def wait(self, now: float) -> float:
        """Seconds that the next message has to wait."""
        gained = (now - self._at) * MESSAGES_PER_SECOND
        self._left, self._at = min(MESSAGES_AT_ONCE, self._left + gained) - 1.0, now
        if self._left >= 0.0:
            return 0.0
        self.exceeded = True
        return -self._left / MESSAGES_PER_SECOND
