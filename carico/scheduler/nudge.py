"""Tells a kube-scheduler that a node can take more than before.

kube-scheduler tries a pod that an extender refused again when anything happens in the cluster, or after five minutes. A
report that rose is nothing that happens in the API server. So while refused pods wait, the node whose free capacity
rose to what one of them needs gets a new annotation, and that is an event which kube-scheduler looks at.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

import msgspec

from carico.clock import Clock
from carico.errors import CaricoError
from carico.kube.binding import now_text
from carico.kube.client import MERGE_PATCH, Client

log = logging.getLogger(__name__)

ANNOTATION = "carico.dev/capacity-rose"
EVERY = 1.0  # s between two rounds of annotations
MOST = 10  # nodes per round; the rest has its turn in the next one
FORGET = 600.0  # s after which kube-scheduler would have asked again, twice, if the pod still waited


class Nudge:
    def __init__(self, client: Client | None, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._refused: OrderedDict[str, tuple[float, float]] = OrderedDict()  # UID to what it needs and when it asked
        self._rose: dict[str, tuple[float, float]] = {}  # node to free capacity before and after
        self._news = asyncio.Event()

    def refused(self, uid: str, need: float) -> None:
        """No node had `need` pods of free capacity for this pod."""
        self._refused.pop(uid, None)
        self._refused[uid] = (need, self._clock.monotonic())

    def placed(self, uid: str) -> None:
        self._refused.pop(uid, None)

    def rose(self, node: str, free: float) -> None:
        if self._refused:
            self._rose[node] = (float("-inf"), free)
            self._news.set()

    async def run(self) -> None:
        while True:
            self._news.clear()
            await self._news.wait()
            await self.round()
            await self._clock.sleep(EVERY)

    async def round(self) -> None:
        """Annotates the nodes that rose to what a refused pod needs."""
        oldest = self._clock.monotonic() - FORGET
        while self._refused and next(iter(self._refused.values()))[1] < oldest:
            self._refused.popitem(last=False)
        needs = {need for need, _ in self._refused.values()}
        nodes = [node for node, (low, high) in self._rose.items() if any(low < need <= high for need in needs)]
        self._rose = {node: self._rose[node] for node in nodes[MOST:]}
        if self._rose:
            self._news.set()
        await asyncio.gather(*(self._annotate(node) for node in nodes[:MOST]))

    async def _annotate(self, node: str) -> None:
        if self._client is None:
            return
        meta = {"metadata": {"annotations": {ANNOTATION: now_text(self._clock.wall())}}}
        try:
            await self._client.call("PATCH", f"/api/v1/nodes/{node}", msgspec.json.encode(meta), MERGE_PATCH)
        except (CaricoError, OSError) as error:
            log.warning("kube-scheduler cannot be told that %s has free capacity: %s", node, error)
