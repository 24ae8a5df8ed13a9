"""An API server whose responses a test sets, and a writer that sends to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from carico.errors import ApiError
from carico.kube.writer import ApiWriter
from carico.testing import ManualClock
from harness.kube.network import Asked, client_of


class Sent(NamedTuple):
    method: str
    path: str
    body: Any
    at: float  # s


Answer = Callable[[Sent], Awaitable[bytes]]


async def good(_: Sent) -> bytes:
    return b"{}"


def says(status: int, retry_after: float = 0.0) -> ApiError:
    return ApiError(status, "", "made up by a test", retry_after)


def bad(status: int, retry_after: float = 0.0) -> Answer:
    async def answer(_: Sent) -> bytes:
        raise says(status, retry_after)

    return answer


def one_after_the_other(*answers: Answer) -> Answer:
    """In this order; the last one is repeated."""
    left = list(answers)

    async def answer(sent: Sent) -> bytes:
        return await (left.pop(0) if len(left) > 1 else left[0])(sent)

    return answer


class ScriptedApi:
    """Answers every request with `answer`; `client` sends to it."""

    def __init__(self, clock: ManualClock, answer: Answer = good) -> None:
        self._clock, self.answer = clock, answer
        self.client = client_of(self._exchange, clock=clock)
        self.sent: list[Sent] = []
        self.in_flight = self.most_in_flight = 0

    async def _exchange(self, asked: Asked) -> bytes:
        sent = Sent(*asked, self._clock.monotonic())
        self.sent.append(sent)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self.answer(sent)
        finally:
            self.in_flight -= 1

    def count(self, method: str) -> int:
        return sum(sent.method == method for sent in self.sent)


class Desk:
    """Clock, client and writer of a test."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.api = ScriptedApi(self.clock)
        self.client = self.api.client
        self.leads = True
        options = {"jitter": lambda: 1.0} | options
        self.writer = ApiWriter(self.client, self.clock, lambda: self.leads, **options)

    @asynccontextmanager
    async def at_work(self, *others: Awaitable[None]) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(one) for one in (self.writer.run(), *others)]
        try:
            yield
            assert not any(task.done() for task in tasks), "nothing ends it"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, fact: Callable[[], bool], within: float = 0.0, step: float = 1.0) -> None:
        """Run the event loop, and advance the clock by up to `within` s, until it holds."""
        end = self.clock.monotonic() + within
        while True:
            for _ in range(2000):
                if fact():
                    return
                await asyncio.sleep(0)
            assert self.clock.monotonic() < end, "the condition was not met"
            await self.clock.turn(step)
