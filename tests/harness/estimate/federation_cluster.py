"""A simulated cluster: each node has the real pipeline, sending rule and messages, and all share one model.

Usage is base + cost·pods + noise 0.02, with +0.3 cpu for 300 ms at every start and stop. The aggregator is its real
state with its real checks, without network connections.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from carico.agent.report_builder import ReportBuilder
from carico.aggregator.state import AggregatorState
from carico.estimate.pipeline import Pipeline
from carico.settings import AggregatorSettings, EstimateSettings
from carico.types import Estimate, NodeSize, PodCount, Sample
from carico.wire.codec import cluster, local
from carico.wire.exchange_policy import ExchangePolicy

GIB = 2.0**30
DIMENSIONS = ("cpu", "memory")
NOISE, SPIKE = 0.02, 0.3
BASE = (0.05, 0.12)
CHURN_TICKS, SPIKE_TICKS, SETTLE_TICKS = 3, 3, 20


@dataclasses.dataclass(frozen=True)
class Load:
    """What runs on a node in one second."""

    pods: int
    cores: float  # per pod
    memory: float  # bytes per pod


Plan = Callable[[int], Load]  # second → load


class SimulatedNode:
    def __init__(
        self, name: str, size: NodeSize, plan: Plan, *, base: tuple[float, float] = BASE, seed: int = 0
    ) -> None:
        self.size, self._plan, self._base = size, plan, base
        self._node = ReportBuilder(name, 1, DIMENSIONS, lambda: size)
        self.pipeline = Pipeline(EstimateSettings(), DIMENSIONS)
        self._send_rule = ExchangePolicy(10.0, 0.1)
        self._rng = np.random.default_rng([seed, *name.encode()])
        self._pods, self._changed, self._started = 0, -(10**6), []  # type: int, int, list[int]
        self._sequence = 0
        self.estimates: list[Estimate] = []

    def second(self, second: int) -> None:
        """Ten samples; pods start and stop one by one, on random ticks."""
        load = self._plan(second)
        change_at = int(self._rng.integers(10))
        for tick in range(second * 10, second * 10 + 10):
            if tick % 10 == change_at and load.pods != self._pods:
                self._change(1 if load.pods > self._pods else -1, tick)
            estimate = self.pipeline.update(self._sample(load, tick), self._count(tick))
            if estimate is not None:
                self.estimates.append(estimate)

    def _change(self, step: int, tick: int) -> None:
        self._pods += step
        self._changed = tick
        if step > 0:
            self._started.append(tick)

    def _sample(self, load: Load, tick: int) -> Sample:
        usage = np.array(self._base) + self._pods * np.array((load.cores, load.memory)) / self.size.vector(DIMENSIONS)
        usage += NOISE * self._rng.standard_normal(2)
        if tick - self._changed < SPIKE_TICKS:
            usage[0] += SPIKE
        return Sample((tick + 1) / 10, tuple(np.clip(usage, 0.0, 1.0).tolist()))

    def _count(self, tick: int) -> PodCount:
        self._started = [at for at in self._started if tick - at < SETTLE_TICKS]
        return PodCount(self._pods, tick - self._changed < CHURN_TICKS, min(len(self._started), self._pods))

    def question(self, now: float, *, has_answer: bool) -> bytes | None:
        """The message to the aggregator at this second, if one is due."""
        evidence = self.pipeline.evidence()
        if evidence is None:
            return None
        model = self._node.model(evidence, self._pods)
        if self._send_rule.wait(model, now, has_answer=has_answer) > 0:
            return None
        self._send_rule.sent(model, now)
        self._sequence += 1
        return local.encode(dataclasses.replace(model, sequence=self._sequence))

    def adopt(self, answer: bytes) -> None:
        model = cluster.decode(answer)
        assert not isinstance(model, cluster.RejectedMessage), model
        if model is not None:
            self._node.adopt(model, self.pipeline)


class SimulatedCluster:
    """Nodes with one aggregator's state. With `federated` off, no node receives the cluster's model."""

    def __init__(self, nodes: list[SimulatedNode], *, federated: bool = True) -> None:
        self.nodes = nodes
        self._federated = federated
        self.state = AggregatorState(AggregatorSettings(), "r1", 1)
        self._streams = [self.state.open_stream() for _ in nodes]

    def run(self, seconds: int, since: int = 0) -> None:
        for second in range(since, since + seconds):
            for node, stream in zip(self.nodes, self._streams, strict=True):
                node.second(second)
                if self._federated:
                    self._exchange(node, stream, float(second))
            self.state.refresh(float(second))

    def add(self, node: SimulatedNode) -> None:
        self.nodes.append(node)
        self._streams.append(self.state.open_stream())

    def _exchange(self, node: SimulatedNode, stream: int, now: float) -> None:
        question = node.question(now, has_answer=self.state.model is not None)
        if question is not None:
            self.state.accept(local.decode(local.parse(question)), stream, now)
            node.adopt(cluster.NONE_YET if self.state.model is None else cluster.encode(self.state.model))


def steady(pods: int, cores: float, memory: float) -> Plan:
    return lambda _: Load(pods, cores, memory)


def walk(most: int, cores: float, memory: float, seed: int, hold: int = 8) -> Plan:
    """A pod count that goes up and down between 0 and `most`, by one pod every few seconds."""
    phase = np.random.default_rng(seed).uniform(0, 2 * math.pi)

    def plan(second: int) -> Load:
        turn = (second // hold) * hold / (2.0 * hold * max(most, 4))
        return Load(round(most * (0.5 - 0.5 * math.cos(2 * math.pi * turn + phase))), cores, memory)

    return plan


def then(before: Plan, at: int, after: Plan) -> Plan:
    return lambda second: before(second) if second < at else after(second)
