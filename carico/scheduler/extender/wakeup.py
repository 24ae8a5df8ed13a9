"""Makes kube-scheduler requeue pods that the extender rejected, when a node has more left than before.

kube-scheduler retries a pod that an extender rejected after any event in the cluster, or after five minutes. A new
report is not an event in the API server. So while rejected pods wait, a node whose amounts rose to what one of them
needs gets a new annotation, which is an event that makes kube-scheduler retry.

A node is annotated once for its amounts: again only when they have fallen below a need and risen to it since, or risen
to a greater one, or when the cost of a waiting class changed. A pod that is rejected for other reasons is not retried
repeatedly for the same amounts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from carico.clock import Clock
from carico.kube import nodes
from carico.kube.binding import rfc3339
from carico.kube.client import Client, Fence
from carico.kube.writer import ApiWriter
from carico.kube.writes import Urgency, Write
from carico.types import Vector

log = logging.getLogger(__name__)

ANNOTATION = "carico.dev/capacity-rose"
EVERY = 1.0  # s between two rounds of annotations
MOST = 10  # nodes per round; the rest follows in the next one
FORGET = 600.0  # s: kube-scheduler retries every 300 s, so a pod not seen for twice as long no longer waits


class WaitingElsewhere(NamedTuple):
    """A pod that the extender rejected on every node."""

    least: Callable[[], Vector]  # what a node must have for it, at present costs
    family: str  # of its class
    at: float  # s, monotonic


class ExtenderWakeup:
    def __init__(self, client: Client | None, writer: ApiWriter | None, clock: Clock) -> None:
        self._client, self._writer, self._clock = client, writer, clock
        self._refused: OrderedDict[str, WaitingElsewhere] = OrderedDict()  # by UID
        self._has: dict[str, Vector] = {}  # node to its amounts
        self._low: dict[str, Vector] = {}  # changed node to its minimum since the change, or since it was annotated
        self._news = asyncio.Event()

    def refused(self, uid: str, least: Callable[[], Vector], family: str = "") -> None:
        """No node had what this pod needs."""
        self._forget()  # also here: as long as no node has more than before there is no round
        if not self._refused:
            self._low.clear()  # this pod was rejected with the present amounts
        self._refused.pop(uid, None)
        self._refused[uid] = WaitingElsewhere(least, family, self._clock.monotonic())

    def placed(self, uid: str) -> None:
        self._refused.pop(uid, None)

    def changed(self, node: str, amounts: Vector | None) -> None:
        """The node's new amounts, more or less than before; None if they are unknown, or it is gone."""
        before = self._has.pop(node, None)
        if amounts is None:
            self._low.pop(node, None)
            return
        self._has[node] = amounts
        if self._refused:
            low = self._low.get(node, np.full_like(amounts, -np.inf) if before is None else before)
            self._low[node] = np.minimum(low, amounts)
            if (amounts > self._low[node]).any():
                self._news.set()

    def repriced(self, families: Collection[str]) -> None:
        """The needs of these families changed: unchanged amounts of nodes may be enough now."""
        if any(refused.family in families for refused in self._refused.values()):
            self._low = {node: np.full_like(amounts, -np.inf) for node, amounts in self._has.items()}
            self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            self.round()
            await self._clock.sleep(EVERY)

    def round(self) -> None:
        """Annotates the nodes whose amounts rose to what a rejected pod needs."""
        self._forget()
        risen = self._risen()
        for node in risen[:MOST]:
            self._low[node] = self._has[node]
            self._annotate(node)
        if len(risen) > MOST:
            self._news.set()

    def _forget(self) -> None:
        """Drops pods that were not seen for so long that they no longer wait."""
        oldest = self._clock.monotonic() - FORGET
        while self._refused and next(iter(self._refused.values())).at < oldest:
            self._refused.popitem(last=False)

    def _risen(self) -> list[str]:
        """Nodes that have what one of the pods needs, and had less in the meantime."""
        names = list(self._low)
        if not names or not self._refused:
            return []
        needs = {tuple(refused.least().tolist()) for refused in self._refused.values()}
        has, low = np.array([self._has[node] for node in names]), np.array([self._low[node] for node in names])
        risen = np.zeros(len(names), dtype=np.bool_)
        for need in needs:
            risen |= (has >= need).all(axis=1) & ~(low >= need).all(axis=1)
        return [names[i] for i in np.flatnonzero(risen)]

    def _annotate(self, node: str) -> None:
        """Sent by any replica: kube-scheduler calls one of them, which need not hold the Lease."""
        if self._client is None or self._writer is None:
            return
        client, at = self._client, rfc3339(self._clock.wall())

        async def send(fence: Fence) -> None:
            await nodes.annotate(client, node, {ANNOTATION: at}, fence=fence)

        def ended(error: Exception | None) -> None:
            if error is not None:
                log.warning("kube-scheduler cannot be woken up for room on %s: %s", node, error)

        self._writer.put(
            Write(("annotation", node), Urgency.ANNOTATION, send, lambda: bool(self._refused), ended, fenced=False)
        )
