"""How many tokens are sent to the API server for review: in all, and for each address that calls.

A token that was seen is answered from the cache; a budget is needed for those that were not. Callers that guess tokens
use up the budget of their own address only.
"""

from __future__ import annotations

from collections import OrderedDict

from carico.clock import Clock
from carico.errors import TryAgain

RATE, BURST = 400.0, 1000.0  # reviews/s, and at once, in all: 5,000 nodes come back to a new leader within 10 s
ADDRESS_RATE, ADDRESS_BURST = 10.0, 50.0  # the same for one address: a node, or what stands in front of several
PATIENCE = 3.0  # s that a caller waits for its turn
ADDRESSES = 10_000  # that are remembered


class _Bucket:
    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = burst, now

    def wait(self, now: float) -> float:
        """Seconds until one more may be taken."""
        self._tokens, self._at = min(self._burst, self._tokens + (now - self._at) * self._rate), now
        return max(0.0, (1.0 - self._tokens) / self._rate)

    def take(self) -> None:
        self._tokens -= 1.0


class ReviewBudget:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all = _Bucket(RATE, BURST, clock.monotonic())
        self._of: OrderedDict[str, _Bucket] = OrderedDict()

    async def take(self, address: str) -> None:
        """Waits for a turn; raises TryAgain when that would take too long."""
        now = self._clock.monotonic()
        own = self._of.get(address) or _Bucket(ADDRESS_RATE, ADDRESS_BURST, now)
        self._of[address] = own
        self._of.move_to_end(address)
        if len(self._of) > ADDRESSES:
            self._of.popitem(last=False)
        wait = max(own.wait(now), self._all.wait(now))
        if wait > PATIENCE:
            raise TryAgain("too many tokens wait for a review; try again")
        own.take()
        self._all.take()
        if wait > 0:
            await self._clock.sleep(wait)
