"""Light and heavy pods in one cluster, over a real `carico aggregator` process and real streams.

Nodes are real pipelines of the real agent's settings, fed with made-up telemetry faster than real time; what they say
and receive goes over TLS as an agent's does.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from carico.agent.report_builder import ReportBuilder
from carico.clock import SystemClock
from carico.estimate.pipeline import Pipeline
from carico.settings import AgentSettings
from carico.types import ClassCost, ClassKey, Estimate, MeasuredPod, NodeSize, PodCount, Sample
from carico.wire.certificates import Authority, Pair
from carico.wire.classes_client import ClassesClient
from carico.wire.exchange import ExchangeClient
from harness.cluster.ports import free_port
from harness.running import Process

pytestmark = pytest.mark.slow

DIMENSIONS = ("cpu", "memory")
SIZE = NodeSize(8, 2.0**35)
HOLDS = (16.0, 2.0**35)  # cores of demand, bytes
BASELINE = (0.05, 0.1)
LIGHT, HEAVY = ClassKey("a", "a/light", "r1"), ClassKey("a", "a/heavy", "r1")
COST = {LIGHT: (0.3, 0.5 * 2.0**30), HEAVY: (3.2, 6.0 * 2.0**30)}
MOST = {LIGHT: 20, HEAVY: 3}
FULL = 0.99


class Certified(NamedTuple):
    authority: Authority
    server: Pair


@pytest.fixture
def authority(tmp_path: Path) -> Certified:
    found = Authority(tmp_path)
    return Certified(found, found.issue("carico:aggregator", "127.0.0.1", "localhost"))


class Simulated:
    """One node; a second of its life takes a hundredth of a second."""

    def __init__(
        self,
        name: str,
        key: ClassKey | None,
        files: Callable[[str], dict[str, Any]],
        target: str,
        estimator: str = "class",
    ) -> None:
        self.name, self.key, self._dice = name, key, random.Random(name)
        self.settings = AgentSettings(aggregator=target, ask_every=0.2, estimator=estimator, **files(name))
        self.pipeline = Pipeline(self.settings, DIMENSIONS, 10.0, SIZE)
        self.node = ReportBuilder(name, 1, DIMENSIONS, lambda: SIZE)
        clock = SystemClock()
        self.exchange = ExchangeClient(self.settings, clock, lambda model: self.node.adopt(model, self.pipeline))
        self.classes = ClassesClient(self.settings, clock, self._hear, 256)
        self.costs: Mapping[ClassKey, ClassCost] = {}
        self.errors: list[float] = []
        self.seconds, self.pods, self.lie = 0, 1, 1.0
        self._started = {0: 0}  # pod to the second of its start
        self._numbers = 1

    def _hear(self, costs: Mapping[ClassKey, ClassCost], resources: tuple[str, ...]) -> None:
        self.costs = costs
        self.node.adopt_classes(costs, resources, self.pipeline)

    async def run(self) -> None:
        tasks = [asyncio.create_task(self.exchange.run()), asyncio.create_task(self.classes.run())]
        try:
            while True:
                self._second()
                await asyncio.sleep(0.01)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _second(self) -> None:
        if self.key is not None and self.seconds % 6 == 5:
            self._change_pods(self.key)
        running = len(self._started) if self.key is not None else 0
        estimate = None
        for tick in range(10):
            at = self.seconds + (tick + 1) / 10
            estimate = self.pipeline.update(
                Sample(at, self._usage(running)), PodCount(running, False, 0), self._measured() if tick == 9 else None
            )
        self.seconds += 1
        self._judge(estimate, running)
        costs = tuple(self._lied(cost) for cost in self.pipeline.class_costs())
        evidence = self.pipeline.evidence()
        assert evidence is not None
        self.exchange.offer(self.node.model(evidence, running, costs))

    def _change_pods(self, key: ClassKey) -> None:
        if len(self._started) < MOST[key] and self._dice.random() < 0.5:
            self._started[self._numbers] = self.seconds
            self._numbers += 1
        elif len(self._started) > 1:
            self._started.pop(next(iter(self._started)))

    def _usage(self, running: int) -> tuple[float, ...]:
        cost = COST[self.key] if self.key is not None else (0.0, 0.0)
        shares = [b + running * c / whole for b, c, whole in zip(BASELINE, cost, HOLDS, strict=True)]
        return tuple(min(1.0, max(0.0, share + self._dice.gauss(0, 0.005))) for share in shares)

    def _measured(self) -> tuple[MeasuredPod, ...]:
        key = self.key
        if self.settings.estimator != "class" or key is None:
            return ()
        return tuple(
            MeasuredPod(str(pod), key, self.seconds - since, True, *(self._reading(key),) * 2, True, True)
            for pod, since in self._started.items()
        )

    def _reading(self, key: ClassKey) -> tuple[float, ...]:
        return tuple(amount * self._dice.gauss(1.0, 0.05) for amount in COST[key])

    def _lied(self, cost: ClassCost) -> ClassCost:
        if self.lie == 1.0:
            return cost
        return dataclasses.replace(
            cost,
            mean=tuple(value * self.lie for value in cost.mean),
            high=tuple(value * self.lie for value in cost.high),
            weight=1e6,
        )

    def _judge(self, estimate: Estimate | None, running: int) -> None:
        """The error of Pod-Capacity, once the node has seen a few pods come and go."""
        if estimate is None or self.key is None or self.seconds < 90:
            return
        cost = COST[self.key]
        loads = [FULL - b - running * c / whole for b, c, whole in zip(BASELINE, cost, HOLDS, strict=True)]
        truth = min(max(0.0, room) * whole / c for room, c, whole in zip(loads, cost, HOLDS, strict=True))
        self.errors.append((estimate.pod_capacity - truth) / max(1.0, 0.15 * truth))


class Cluster:
    """A real aggregator, and nodes that talk to it."""

    def __init__(self, authority: Certified, port: int | None = None, peers: str = "", name: str = "r1") -> None:
        self._authority, pair = authority
        self.port = port or free_port()
        self._flags = ["--listen", "127.0.0.1:0", "--grpc-listen", f"127.0.0.1:{self.port}", "--hold", "0.2"]
        ca = str(self._authority.cert)
        self._flags += ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--client-ca", ca]
        self._flags += ["--replica-name", name]
        if peers:
            self._flags += ["--peers", peers, "--tls-ca", ca]
        self.target = f"127.0.0.1:{self.port}"
        self.process = self.start()

    def start(self) -> Process:
        process = Process("aggregator", *self._flags)
        process.wait_for(r"gRPC on port \d+")
        return process

    def files(self, name: str) -> dict[str, Any]:
        pair = self._authority.issue_node(name)
        return {"tls_ca": self._authority.cert, "tls_cert": pair.cert, "tls_key": pair.key}

    def nodes(self, key: ClassKey, count: int, target: str | None = None, **more: Any) -> list[Simulated]:
        first = random.randrange(10**6)
        target = target or self.target
        return [Simulated(f"n-{key.family[2:]}-{first + i}", key, self.files, target, **more) for i in range(count)]


@contextlib.asynccontextmanager
async def at_work(nodes: Sequence[Simulated]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(node.run()) for node in nodes]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], object], seconds: float = 90.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (what is waited for is in another process)
            await asyncio.sleep(0.05)


def mean_of(costs: Mapping[ClassKey, ClassCost], key: ClassKey) -> tuple[float, ...]:
    return costs[key].mean if key in costs else (0.0, 0.0)


def close(found: tuple[float, ...], key: ClassKey, within: float) -> bool:
    return all(abs(value / true - 1) <= within for value, true in zip(found, COST[key], strict=True))


@pytest.mark.parametrize("estimator", ["class", "resource-joint"])
@pytest.mark.parametrize(("light", "heavy"), [(9, 1), (5, 5), (1, 9)])
def test_heavy_nodes_know_what_their_pods_cost_whatever_the_others_run(
    authority: Certified, light: int, heavy: int, estimator: str
) -> None:
    """Once the node with heavy pods among nine with light ones advertised 21 places where 2.75 were."""

    async def play() -> None:
        cluster = Cluster(authority)
        lights, heavies = (cluster.nodes(key, n, estimator=estimator) for key, n in ((LIGHT, light), (HEAVY, heavy)))
        try:
            async with at_work([*lights, *heavies]):
                await until(lambda: all(len(node.errors) > 120 for node in [*lights, *heavies]))
                assert all(node.exchange.connected for node in [*lights, *heavies])
        finally:
            cluster.process.stop(signal.SIGKILL)
        for node in heavies:
            within = sum(abs(error) <= 1 for error in node.errors) / len(node.errors)
            assert within >= 0.99, (node.name, within, max(node.errors))
            assert max(node.errors) <= 1.5, "never far too high"

    asyncio.run(asyncio.wait_for(play(), 240))


def test_a_new_node_knows_a_class_before_its_first_pod_of_it(authority: Certified) -> None:
    """And after kill -9 of the only aggregator it keeps what it knew, and receives changes again."""

    async def play() -> None:
        cluster = Cluster(authority)
        old = [*cluster.nodes(LIGHT, 3), *cluster.nodes(HEAVY, 2)]
        new = Simulated("new", None, cluster.files, cluster.target)
        try:
            async with at_work(old):
                await until(lambda: all(node.pipeline.class_costs() for node in old))
                async with at_work([new]):
                    await until(lambda: all(close(mean_of(new.costs, key), key, 0.2) for key in (LIGHT, HEAVY)))
                    cluster.process.stop(signal.SIGKILL)
                    await until(lambda: not new.classes.connected)
                    assert close(mean_of(new.costs, HEAVY), HEAVY, 0.2), "it keeps the last costs"
                    cluster.process = cluster.start()
                    for node in old:
                        node.lie = 2.0  # all pods became twice as dear
                    doubled = [2.0 * amount for amount in COST[HEAVY]]
                    await until(lambda: mean_of(new.costs, HEAVY)[0] > 0.9 * doubled[0])
        finally:
            cluster.process.stop(signal.SIGKILL)

    asyncio.run(asyncio.wait_for(play(), 240))


@pytest.mark.parametrize("lie", [100.0, 0.01])
def test_one_node_that_forges_a_hundred_times_the_cost_is_overruled(authority: Certified, lie: float) -> None:
    """With four honest nodes within 10 % the mean moves by less than a fifth, and `high` is at most doubled."""

    async def play() -> None:
        cluster = Cluster(authority)
        honest, (liar,) = cluster.nodes(LIGHT, 4), cluster.nodes(LIGHT, 1)
        liar.lie = lie
        try:
            async with at_work([*honest, liar]):
                await until(lambda: LIGHT in honest[0].costs and honest[0].costs[LIGHT].nodes == 5)
                await until(lambda: honest[0].seconds > 150)
                found = honest[0].costs[LIGHT]
        finally:
            cluster.process.stop(signal.SIGKILL)
        assert close(found.mean, LIGHT, 0.2)
        assert all(high <= 2.0 * 1.3 * true for high, true in zip(found.high, COST[LIGHT], strict=True))

    asyncio.run(asyncio.wait_for(play(), 240))


def test_replicas_agree_on_class_costs(authority: Certified) -> None:
    """Two replicas, nodes of a class at each; both send all of them, and go on when one is killed."""

    async def play() -> None:
        ports = [free_port(), free_port()]
        peers = ",".join(f"127.0.0.1:{port}" for port in ports)
        clusters = [Cluster(authority, port, peers, f"r{i}") for i, port in enumerate(ports)]
        nodes = [*clusters[0].nodes(LIGHT, 2), *clusters[1].nodes(LIGHT, 3), *clusters[1].nodes(HEAVY, 1)]
        try:
            async with at_work(nodes):
                ends = (nodes[0], nodes[-1])
                await until(lambda: all(LIGHT in n.costs and n.costs[LIGHT].nodes == 5 for n in ends))
                await until(lambda: all(HEAVY in node.costs for node in ends))
                for key in (LIGHT, HEAVY):
                    first, second = (mean_of(node.costs, key) for node in ends)
                    assert first == pytest.approx(second, rel=0.1)
                    assert close(first, key, 0.2)
                clusters[1].process.stop(signal.SIGKILL)
                await until(lambda: nodes[0].costs[HEAVY].nodes == 0)
                assert close(mean_of(nodes[0].costs, HEAVY), HEAVY, 0.2), "its nodes are away, what they knew is not"
        finally:
            for cluster in clusters:
                cluster.process.stop(signal.SIGKILL)

    asyncio.run(asyncio.wait_for(play(), 240))
