"""Tells a kube-scheduler that a node can take more than before.

kube-scheduler tries a pod that an extender refused again when anything happens in the cluster, or after five minutes. A
report that rose is nothing that happens in the API server. So while refused pods wait, the node whose amounts rose to
what one of them needs gets a new annotation, and that is an event which kube-scheduler looks at.

A node is annotated once for what it has: again only when it has fallen below a need and risen to it since, or risen to
a greater one, or when a class that waits costs something else. A pod that is refused for other reasons is not tried
again and again for the same amounts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec
import numpy as np

from carico.clock import Clock
from carico.kube.binding import now_text
from carico.kube.client import MERGE_PATCH, Client, Fence
from carico.kube.paths import segment
from carico.kube.writer import Writer
from carico.kube.writes import Urgency, Write
from carico.types import Vector

log = logging.getLogger(__name__)

ANNOTATION = "carico.dev/capacity-rose"
EVERY = 1.0  # s between two rounds of annotations
MOST = 10  # nodes per round; the rest has its turn in the next one
FORGET = 600.0  # s after which kube-scheduler would have asked again, twice, if the pod still waited


class Refused(NamedTuple):
    """A pod that found no node."""

    least: Callable[[], Vector]  # what a node must have for it, as things stand
    family: str  # of its class
    at: float  # s, monotonic


class Nudge:
    def __init__(self, client: Client | None, writer: Writer | None, clock: Clock) -> None:
        self._client, self._writer, self._clock = client, writer, clock
        self._refused: OrderedDict[str, Refused] = OrderedDict()  # by UID
        self._has: dict[str, Vector] = {}  # node to its amounts
        self._low: dict[str, Vector] = {}  # node that changed to its least since then, or since it was annotated
        self._news = asyncio.Event()

    def refused(self, uid: str, least: Callable[[], Vector], family: str = "") -> None:
        """No node had what this pod needs."""
        if not self._refused:
            self._low.clear()  # this pod was refused with what the nodes have now
        self._refused.pop(uid, None)
        self._refused[uid] = Refused(least, family, self._clock.monotonic())

    def placed(self, uid: str) -> None:
        self._refused.pop(uid, None)

    def changed(self, node: str, amounts: Vector | None) -> None:
        """The node has these amounts now, more or less than before; None if they are unknown, or it is gone."""
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
        """Pods of these families need something else: what nodes have had all along may be enough."""
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
        """Annotates the nodes that rose to what a refused pod needs."""
        oldest = self._clock.monotonic() - FORGET
        while self._refused and next(iter(self._refused.values())).at < oldest:
            self._refused.popitem(last=False)
        risen = self._risen()
        for node in risen[:MOST]:
            self._low[node] = self._has[node]
            self._annotate(node)
        if len(risen) > MOST:
            self._news.set()

    def _risen(self) -> list[str]:
        """Nodes that have what one of the pods needs, and did not always have it."""
        nodes = list(self._low)
        if not nodes or not self._refused:
            return []
        needs = {tuple(refused.least().tolist()) for refused in self._refused.values()}
        has, low = np.array([self._has[node] for node in nodes]), np.array([self._low[node] for node in nodes])
        risen = np.zeros(len(nodes), dtype=np.bool_)
        for need in needs:
            risen |= (has >= need).all(axis=1) & ~(low >= need).all(axis=1)
        return [nodes[i] for i in np.flatnonzero(risen)]

    def _annotate(self, node: str) -> None:
        """By any replica: kube-scheduler asks one of them, which need not hold the Lease."""
        if self._client is None or self._writer is None:
            return
        client, at = self._client, now_text(self._clock.wall())
        body = msgspec.json.encode({"metadata": {"annotations": {ANNOTATION: at}}})

        async def send(fence: Fence) -> None:
            await client.call("PATCH", f"/api/v1/nodes/{segment(node)}", body, MERGE_PATCH, urgent=True, fence=fence)

        def ended(error: Exception | None) -> None:
            if error is not None:
                log.warning("kube-scheduler cannot be told that %s has room: %s", node, error)

        self._writer.put(
            Write(("annotation", node), Urgency.ANNOTATION, send, lambda: bool(self._refused), ended, fenced=False)
        )
