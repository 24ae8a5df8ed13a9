"""How often nodes may send while this replica cannot keep up.

The model is recomputed at fixed times; the delay of that shows how long messages wait. While it is late, nodes are
requested to wait longer and longer before their next message, and less again afterwards. Without that an overloaded
replica responds to no node in time, and nodes that time out reconnect, which costs more than the message did.
"""

from __future__ import annotations

LATE = 0.1  # s
IN_TIME = 0.02  # s
FIRST = 1.0  # s between two messages of a node, as soon as it is late
LONGEST = 60.0  # s
GROWTH, DECAY = 1.5, 0.9  # per refresh


class Pace:
    """
    >>> pace = Pace()
    >>> [pace.refreshed(0.5) or pace.next_ask for _ in range(3)]
    [1.0, 1.5, 2.25]
    >>> pace.refreshed(0.05); pace.next_ask
    2.25
    >>> for _ in range(20): pace.refreshed(0.0)
    >>> pace.next_ask
    0.0
    """

    def __init__(self) -> None:
        self.next_ask = 0.0  # s; 0: the nodes' own rule

    def refreshed(self, late: float) -> None:
        """`late` in seconds."""
        if late > LATE:
            self.next_ask = min(max(FIRST, self.next_ask * GROWTH), LONGEST)
        elif late < IN_TIME:
            self.next_ask = self.next_ask * DECAY if self.next_ask * DECAY >= FIRST / 2 else 0.0
