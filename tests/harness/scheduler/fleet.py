"""Agents of simulated nodes: they report, by the agents' own rules, what the API server's pods would cost.

A node of capacity C on which n pods have run for longer than `lag` reports Pod-Capacity C − n and counts those n. The
truth is known too: `worst` is the largest number of pods that were ever bound to a node beyond its capacity.

With `costs` pods are of classes, by their label `app`: a pod of a class takes its cores and bytes of the node's FULL.
All agents but those of `older` report their remaining room, and the measured costs of the classes on the node once a
pod of the class has run for `lag`. `worst_share` is then the largest share of a resource that was ever taken by bound
pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from carico.clock import SystemClock
from carico.kube import calls
from carico.kube.client import Client
from carico.kube.objects import Pod
from carico.kube.watch import Reflector, WatchedResource
from carico.settings import AgentSettings
from carico.testing import make_cost, make_report
from carico.wire.report_client import ReportClient
from harness.running import Process

TICK = 0.2  # s between two updates of an agent
FULL = (10.0, 10e9)  # cores of demand and bytes that a node holds


class Fleet:
    def __init__(
        self,
        client: Client,
        capacity: dict[str, float],
        schedulers: list[str],
        namespace: str,
        lag: float = 5.0,
        *,
        costs: Mapping[str, tuple[float, float]] | None = None,
        older: Collection[str] = (),
    ) -> None:
        self._costs, self._older = costs or {}, older
        self._class: dict[str, str] = {}  # UID to the `app` label of its pod
        self.worst_share = 0.0
        self.capacity, self.lag, self._namespace = capacity, lag, namespace
        settings = AgentSettings(schedulers=tuple(schedulers), plaintext=True)
        self._talking: dict[str, asyncio.Task[None]] = {}
        self._clients = {node: ReportClient(settings, SystemClock()) for node in capacity}
        self._pods = Reflector(client, WatchedResource(calls.FOLLOW_PODS, Pod), self._changed)
        self._since: defaultdict[str, dict[str, float]] = defaultdict(dict)  # node to UID to when it was bound
        self._ended: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._ours: set[str] = set()  # UIDs of pods in the test's namespace
        self.bound_to: dict[str, set[str]] = defaultdict(set)  # UID to every node that it was ever bound to
        self.worst = float("-inf")
        self.clock_error = 0.0  # s by which the nodes' wall clocks are wrong

    @property
    def bound(self) -> int:
        """Pods of the test's namespace that are bound now; others may still be terminating."""
        return sum(len(pods.keys() & self._ours) for pods in self._since.values())

    def on(self, node: str) -> set[str]:
        return set(self._since[node])

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[Fleet]:
        tasks = [asyncio.create_task(self._pods.run()), asyncio.create_task(self._speak())]
        self._talking = {node: asyncio.create_task(client.run()) for node, client in self._clients.items()}
        try:
            await self._pods.synced.wait()
            yield self
        finally:
            tasks += self._talking.values()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def silence(self, node: str, *, broken: bool) -> None:
        """The node's agent is killed and its streams break, or it hangs and they stay open."""
        if broken:
            self._talking[node].cancel()
        else:
            del self._clients[node]

    async def until(self, bound: int, seconds: float = 90.0, *, full: Collection[str] = ()) -> None:
        """Waits until so many pods are bound and these nodes have taken as many as they can."""

        def reached() -> bool:
            return self.bound >= bound and all(len(self.on(node)) >= self.capacity[node] for node in full)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not reached():  # noqa: ASYNC110 - what is waited for is in other processes
                    await asyncio.sleep(0.05)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        node = pod.spec.node_name
        if node not in self.capacity:
            return
        if new is None or new.terminal:
            if self._since[node].pop(pod.uid, None) is not None:
                self._ended[node][pod.uid] = time.monotonic()
            return
        if pod.namespace == self._namespace:
            self._ours.add(pod.uid)
        self.bound_to[pod.uid].add(node)
        self._class[pod.uid] = pod.metadata.labels.get("app", "")
        self._since[node].setdefault(pod.uid, time.monotonic())
        if not self._costs or node in self._older:
            self.worst = max(self.worst, len(self._since[node]) - self.capacity[node])
        else:
            taken = self._taken(self._since[node])
            self.worst_share = max(self.worst_share, *(t / full for t, full in zip(taken, FULL, strict=True)))

    @property
    def share(self) -> float:
        """The share of all cpu of the nodes that report room that bound pods take now."""
        nodes = [node for node in self.capacity if node not in self._older]
        return sum(self._taken(self._since[node])[0] for node in nodes) / (FULL[0] * len(nodes))

    def _taken(self, uids: Iterable[str]) -> tuple[float, float]:
        costs = [self._costs.get(self._class[uid], (0.0, 0.0)) for uid in uids]
        return sum(cpu for cpu, _ in costs), sum(memory for _, memory in costs)

    async def _speak(self) -> None:
        while True:
            for node, client in list(self._clients.items()):
                self._offer(node, client)
            await asyncio.sleep(TICK)

    def _offer(self, node: str, client: ReportClient) -> None:
        now = time.monotonic()
        counted = [uid for uid, since in self._since[node].items() if now - since >= self.lag]
        finished = [uid for uid, at in self._ended[node].items() if now - at < 60]
        free = max(0.0, self.capacity[node] - len(counted))
        more = self._room(counted) if self._costs and node not in self._older else {}
        at = {"at": now, "sampled_at": time.time() + self.clock_error}
        client.offer(make_report(node, more.pop("capacity", free), counted, finished, **at, **more))

    def _room(self, counted: list[str]) -> dict[str, Any]:
        """The report of an agent that has measured these pods for long enough."""
        room = tuple(max(0.0, full - t) for full, t in zip(FULL, self._taken(counted), strict=True))
        here = Counter(self._class[uid] for uid in counted if self._class[uid] in self._costs)
        measured = [
            make_cost(f"{self._namespace}/{app}", *self._costs[app], pods=pods, weight=float(pods))
            for app, pods in here.items()
        ]
        return {"room": room, "full": FULL, "capacity": min(room[0], 1e3), "class_costs": tuple(measured)}


class SchedulerProcess(Process):
    """A real `carico scheduler` on fixed ports, so that agents find its successor."""

    def __init__(self, kubeconfig: Path, grpc_port: int, *flags: str) -> None:
        addresses = (
            "--grpc-listen",
            f"127.0.0.1:{grpc_port}",
            "--listen",
            "127.0.0.1:0",
            "--debug-listen",
            "127.0.0.1:0",
        )
        super().__init__("scheduler", "--kubeconfig", str(kubeconfig), "--plaintext", *addresses, *flags)
        self.page_port = int(self.wait_for(r"debug_listen on port (\d+)", 60)[1])
        self.identity = self.wait_for(r"scheduler \S+, (\S+): gRPC")[1]
