"""Tells a kube-scheduler that a node can take more than before.

kube-scheduler tries a pod that an extender refused again when anything happens in the cluster, or after five minutes. A
report that rose is nothing that happens in the API server. So while refused pods wait, the node whose free capacity
rose to what one of them needs gets a new annotation, and that is an event which kube-scheduler looks at.

A node is annotated once for what it has: again only when it has fallen below a need and risen to it since, or risen to
a greater one. A pod that is refused for other reasons is not tried again and again for the same free capacity.
"""

from __future__ import annotations

import asyncio
import logging
import math
from bisect import bisect_right
from collections import OrderedDict

import msgspec

from carico.clock import Clock
from carico.kube.binding import now_text
from carico.kube.client import MERGE_PATCH, Client, Fence
from carico.kube.paths import segment
from carico.kube.writer import Writer
from carico.kube.writes import Urgency, Write

log = logging.getLogger(__name__)

ANNOTATION = "carico.dev/capacity-rose"
EVERY = 1.0  # s between two rounds of annotations
MOST = 10  # nodes per round; the rest has its turn in the next one
FORGET = 600.0  # s after which kube-scheduler would have asked again, twice, if the pod still waited


class Nudge:
    def __init__(self, client: Client | None, writer: Writer | None, clock: Clock) -> None:
        self._client, self._writer, self._clock = client, writer, clock
        self._refused: OrderedDict[str, tuple[float, float]] = OrderedDict()  # UID to what it needs and when it asked
        self._free: dict[str, float] = {}  # node to its pods of free capacity
        self._low: dict[str, float] = {}  # node that changed to its least since then, or since it was annotated
        self._news = asyncio.Event()

    def refused(self, uid: str, need: float) -> None:
        """No node had `need` pods of free capacity for this pod."""
        if not self._refused:
            self._low.clear()  # this pod was refused with what the nodes have now
        self._refused.pop(uid, None)
        self._refused[uid] = (need, self._clock.monotonic())

    def placed(self, uid: str) -> None:
        self._refused.pop(uid, None)

    def free_changed(self, node: str, free: float) -> None:
        """The node has so many pods of free capacity now, more or less than before; -inf if unknown, or it is gone."""
        before = self._free.pop(node, -math.inf)
        if free == -math.inf:
            self._low.pop(node, None)
            return
        self._free[node] = free
        if self._refused:
            self._low[node] = min(self._low.get(node, before), free)
            if free > self._low[node]:
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
        while self._refused and next(iter(self._refused.values()))[1] < oldest:
            self._refused.popitem(last=False)
        needs = sorted({need for need, _ in self._refused.values()})
        risen = [node for node in self._low if self._rose_to(node, needs)]
        for node in risen[:MOST]:
            self._low[node] = self._free[node]
            self._annotate(node)
        if len(risen) > MOST:
            self._news.set()

    def _rose_to(self, node: str, needs: list[float]) -> bool:
        """Whether one of the needs lies above its least and not above what it has."""
        return bisect_right(needs, self._low[node]) < bisect_right(needs, self._free[node])

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
                log.warning("kube-scheduler cannot be told that %s has free capacity: %s", node, error)

        self._writer.put(
            Write(("annotation", node), Urgency.ANNOTATION, send, lambda: bool(self._refused), ended, fenced=False)
        )
