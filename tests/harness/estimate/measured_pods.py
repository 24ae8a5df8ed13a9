"""Pods that are measured every second on a node of 8 cores."""

from __future__ import annotations

from carico.estimate.classes import NodeClassTable
from carico.estimate.pipeline import Pipeline
from carico.settings import EstimateSettings
from carico.types import ClassKey, Estimate, MeasuredPod, NodeSize, PodCount, Sample

GIB = 2.0**30
RESOURCES = ("cpu", "memory")
SIZE = NodeSize(cores=8, memory_bytes=64 * GIB)  # 16 busy threads
WEB, BATCH = ClassKey("a", "a/web"), ClassKey("a", "a/batch")
FIRST, MOST = (1.0, GIB), (64.0, 64 * GIB)


def pod(uid: str, demand: tuple[float, float] | None, age: float = 30.0, **more: object) -> MeasuredPod:
    plain = MeasuredPod(uid, WEB, age, True, demand, demand, True, demand is not None)
    return plain._replace(**more)  # type: ignore[arg-type]


def table() -> NodeClassTable:
    return NodeClassTable(RESOURCES, FIRST, MOST)


class Node:
    """A node of 8 cores whose pods are measured every second."""

    def __init__(self, base: tuple[float, float] = (0.05, 0.12), **choice: object) -> None:
        self.pipeline = Pipeline(EstimateSettings(**choice), RESOURCES, 10.0, SIZE)  # type: ignore[arg-type]
        self.base, self.at = base, 0.0

    def second(self, pods: list[MeasuredPod], extra: tuple[float, float] = (0.0, 0.0)) -> Estimate:
        used = [sum(p.demand[i] for p in pods if p.demand and p.running) for i in range(2)]
        usage = (self.base[0] + extra[0] + used[0] / 16, self.base[1] + extra[1] + used[1] / (64 * GIB))
        found = None
        for tick in range(10):
            self.at += 0.1
            sample = Sample(self.at, tuple(min(x, 1.0) for x in usage))
            found = self.pipeline.update(sample, PodCount(len(pods), False, 0), pods if tick == 9 else None)
        assert found is not None
        return found

    def seconds(self, many: int, pods: list[MeasuredPod]) -> Estimate:
        for i in range(many):
            found = self.second([p._replace(age=p.age + i) for p in pods])
        return found
