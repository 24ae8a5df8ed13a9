"""The agent of a simulated node: it follows the real agents' report rule, over a separate stream.

A node of `room` pods that counts n of them reports Pod-Capacity room − n, and a matching usage. `counts` sets which
pods it counts; its usage varies a little at random, as real usage does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import random
import secrets

from grpc import aio

from carico import __version__
from carico.clock import Clock
from carico.types import Estimate, Mode, NodeReport, NodeSize
from carico.wire.codec import report as codec
from carico.wire.report_client import METHOD
from carico.wire.report_policy import ReportPolicy

log = logging.getLogger(__name__)

DIMENSIONS = ("cpu", "memory")
FINISHED_FOR = 60.0  # s for which an ended pod is reported
RETRY = 1.0  # s until a broken stream is opened again, on average
WANDER = 0.01  # change of usage from one report to the next


class SimulatedAgent:
    def __init__(self, node: str, room: float, size: NodeSize, clock: Clock, baseline: float = 0.06) -> None:
        self.node, self._room, self._size, self._clock = node, room, size, clock
        self._rule = ReportPolicy()
        self._start_id = secrets.randbits(48)
        self._sequence = itertools.count(1)
        self._counted: set[str] = set()
        self._finished: dict[str, float] = {}  # UID to when, monotonic
        self._baseline = (baseline, baseline * 1.5)
        self._shift = 0.0
        self._news = asyncio.Event()
        self.reported = asyncio.Event()  # a report of this node was sent

    @property
    def counted(self) -> frozenset[str]:
        return frozenset(self._counted)

    def counts(self, uid: str, running: bool) -> None:
        """A pod has started here, or has ended."""
        if running is (uid in self._counted):
            return
        if running:
            self._counted.add(uid)
        else:
            self._counted.discard(uid)
            self._finished[uid] = self._clock.monotonic()
        self._offer()

    async def talk(self, channel: aio.Channel) -> None:
        """Report indefinitely; a broken stream is opened again."""
        while True:
            with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):
                await self._one_stream(channel)
            await self._clock.sleep(RETRY * (0.5 + random.random()))

    async def _one_stream(self, channel: aio.Channel) -> None:
        call: aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(METHOD)()  # type: ignore[call-arg]
        listening = asyncio.create_task(self._listen(call))
        self._rule.reset()
        self._offer()
        try:
            while not listening.done():
                await self._send_when_due(call)
        finally:
            call.cancel()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _send_when_due(self, call: aio.StreamStreamCall[bytes, bytes]) -> None:
        wait = self._rule.wait(self._clock.monotonic())
        if wait <= 0:
            report = self._rule.take(next(self._sequence), self._clock.monotonic())
            await call.write(codec.encode(report, self._rule.known))
            self.reported.set()
            return
        self._news.clear()
        try:
            async with asyncio.timeout(None if math.isinf(wait) else wait):
                await self._news.wait()
        except TimeoutError:
            self._offer()  # a heartbeat contains a new sample

    async def _listen(self, call: aio.StreamStreamCall[bytes, bytes]) -> None:
        async for message in call:
            ack = codec.decode_ack(message)
            self._rule.acknowledged(
                ack.heartbeat,
                refused=ack.refused is not None,
                least_gap=ack.least_gap,
                takes_changes=ack.takes_changes,
            )
        self._news.set()

    def _offer(self) -> None:
        now = self._clock.monotonic()
        for uid in [uid for uid, at in self._finished.items() if now - at > FINISHED_FOR]:
            del self._finished[uid]
        self._rule.offer(self._report(now))
        self._news.set()

    def _report(self, now: float) -> NodeReport:
        self._shift = 0.8 * self._shift + random.gauss(0.0, WANDER)
        pods, free = len(self._counted), max(0.0, self._room - len(self._counted))
        cost = tuple((0.95 - base) / self._room for base in self._baseline)
        usage = tuple(
            min(1.0, max(0.0, base + pods * one + self._shift)) for base, one in zip(self._baseline, cost, strict=True)
        )
        estimate = Estimate(
            at=now,
            usage=usage,
            signal_k=free / max(1.0, self._room),
            baseline_ratio=self._baseline,
            cost_ratio=cost,
            baseline_scalar=self._room,
            cost_scalar=cost[0],
            pods=pods,
            pod_capacity=free,
            mode=Mode.SETTLED,
            rejecting=False,
        )
        return NodeReport(
            node=self.node,
            start_id=self._start_id,
            sequence=0,
            sampled_at=self._clock.wall(),
            age=0.0,
            dimensions=DIMENSIONS,
            estimate=estimate,
            churn=False,
            cost_absolute=tuple(share * self._size.of(name) for share, name in zip(cost, DIMENSIONS, strict=True)),
            counted=frozenset(self._counted),
            finished=frozenset(self._finished),
            agent_version=f"{__version__} simulated",
        )
