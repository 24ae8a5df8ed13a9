"""Helpers for the tests of Carico, and for tests of plugins. Not in the wheel of container images."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from carico.beat import Step, chain
from carico.clock import Clock, SystemClock
from carico.embedded.apiserver.server import ApiServer
from carico.kube import credentials
from carico.kube.client import Client
from carico.kube.credentials import fixed
from carico.kube.objects import Node, Pod


class ManualClock:
    """A clock that only moves when the test calls `turn` or `advance`.

    >>> clock = ManualClock(now=100.0)
    >>> async def nap() -> float:
    ...     await clock.sleep(5)
    ...     return clock.monotonic()
    >>> async def both() -> float:
    ...     sleeper = asyncio.create_task(nap())
    ...     await clock.turn(5)
    ...     return await sleeper
    >>> asyncio.run(both())
    105.0
    """

    def __init__(self, now: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._now = now
        self._wall_offset = wall - now
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_offset

    def step_wall(self, seconds: float) -> None:
        """Steps the wall clock, as an administrator or NTP does; monotonic time does not change."""
        self._wall_offset += seconds

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        call_off = self.call_at(self._now + seconds, woken.set)
        try:
            await woken.wait()
        finally:
            call_off()

    def call_at(self, when: float, callback: Callable[[], None]) -> Callable[[], object]:
        entry = (when, next(self._order), callback)
        heapq.heappush(self._due, entry)

        def call_off() -> None:
            if entry in self._due:
                self._due.remove(entry)
                heapq.heapify(self._due)

        return call_off

    def beat(self, first: float, step: Step) -> Callable[[], object]:
        return chain(self.call_at, first, step)

    def advance(self, seconds: float) -> None:
        """Advances time without running callbacks: a stall. Sleepers wake up at the next `turn`."""
        self._now += seconds

    async def turn(self, seconds: float) -> None:
        """Advances time and runs every callback at its time, in order."""
        await _settle()
        end = self._now + seconds
        while self._due and self._due[0][0] <= end:
            due, _, callback = heapq.heappop(self._due)
            self._now = max(self._now, due)
            callback()
            await _settle()
        self._now = max(self._now, end)
        await _settle()


async def _settle() -> None:
    """Runs 20 iterations of the event loop, so that all ready tasks reach their next wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def a_node(name: str, *, labels: dict[str, str] | None = None, spec: Any = None, **allocatable: str) -> Node:
    """A node with room for 110 pods, 8 cores and 16 GiB unless `allocatable` overrides it.

    >>> a_node("n", cpu="2").status.allocatable["cpu"]
    '2'
    """
    room = {"cpu": "8", "memory": "16Gi", "pods": "110"} | {key.replace("_", "-"): v for key, v in allocatable.items()}
    plain = {
        "metadata": {"name": name, "uid": f"node {name}", "labels": {"kubernetes.io/hostname": name} | (labels or {})},
        "spec": spec or {},
        "status": {"allocatable": room},
    }
    return msgspec.convert(plain, Node)


def a_pod(
    name: str,
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    node: str = "",
    priority: int = 0,
    spec: Any = None,
    status: Any = None,
    **metadata: Any,
) -> Pod:
    """A pod of one container; `spec`, `status` and `metadata` add fields, with names as in YAML.

    >>> a_pod("p", requests={"cpu": "1"}, spec={"nodeSelector": {"disk": "ssd"}}).spec.node_selector
    {'disk': 'ssd'}
    """
    container = {"name": "main", "image": "example.com/work:1", "resources": {"requests": requests or {}}}
    plain = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "labels": labels or {}}
        | metadata,
        "spec": {"containers": [container], "nodeName": node, "priority": priority} | (spec or {}),
        "status": {"phase": "Running" if node else "Pending"} | (status or {}),
    }
    return msgspec.convert(plain, Pod)


@asynccontextmanager
async def embedded_api_server(
    folder: Path, clock: Clock | None = None, *, tls: bool = False, history: int = 10_000
) -> AsyncIterator[tuple[ApiServer, Client]]:
    """A new API server for a test, and a client of it; writes the file `kubeconfig` in `folder`.

    >>> import tempfile
    >>> async def nodes() -> bytes:
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         async with embedded_api_server(Path(folder)) as (_, client):
    ...             return await client.call("GET", "/api/v1/nodes")
    >>> msgspec.json.decode(asyncio.run(nodes()))["items"]
    []
    """
    async with ApiServer(clock or SystemClock(), tls=tls, history=history) as server:
        server.kubeconfig(folder / "kubeconfig")
        # A kubeconfig's token is not sent without TLS.
        known = credentials.from_kubeconfig(folder / "kubeconfig") if tls else fixed(server.address, server.token)
        client = Client(known)
        try:
            yield server, client
        finally:
            await client.close()
