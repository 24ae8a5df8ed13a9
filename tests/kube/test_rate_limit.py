"""The client's own rate limit, on a clock that can be turned."""

from __future__ import annotations

import asyncio

from carico.kube.client import RateLimit
from carico.testing import ManualClock


class Sleeper(ManualClock):
    """Records how long it should sleep, and returns at once."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.advance(seconds)


def take(limit: RateLimit, times: int) -> None:
    async def all_of_them() -> None:
        for _ in range(times):
            await limit.take()

    asyncio.run(all_of_them())


def test_a_burst_passes_and_the_rest_waits_its_turn() -> None:
    clock = Sleeper()
    limit = RateLimit(qps=10, burst=3, clock=clock)
    take(limit, 3)
    assert clock.slept == []
    take(limit, 2)
    assert clock.slept == [0.1, 0.1]
    clock.advance(60)  # the bucket holds no more than the burst
    take(limit, 4)
    assert clock.slept == [0.1, 0.1, 0.1]


def test_no_limit_is_no_limit() -> None:
    clock = Sleeper()
    take(RateLimit(qps=0, burst=1, clock=clock), 1000)
    assert clock.slept == []
