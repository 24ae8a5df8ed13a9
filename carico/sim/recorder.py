"""What a simulation records: every second of every node, and every pod."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from carico.types import Vector


@dataclass
class PodRecord:
    """Times in simulated seconds; nan: did not happen."""

    uid: str
    workload: str
    ideal: float  # s that it runs if nothing slows it down
    ends: bool  # by itself
    created: float
    bound: float = math.nan
    running: float = math.nan
    ended: float = math.nan
    node: str = ""
    outcome: str = ""


class NodeSecond(NamedTuple):
    """One node in one second."""

    usage: float  # share of the cores that are busy
    threads: float  # demanded busy threads per core, the system's included
    memory: float  # demanded memory as a ratio of the node's
    pods: int  # whose container runs
    room: float  # reported room of cpu as a ratio of the node; nan: not reported
    true_room: float


@dataclass
class Recorder:
    nodes: list[str]
    pods: dict[str, PodRecord] = field(default_factory=dict)
    _seconds: list[list[NodeSecond]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def second(self, now: float, nodes: list[NodeSecond]) -> None:
        self.times.append(now)
        self._seconds.append(nodes)

    def column(self, name: str) -> Vector:
        """Second by node."""
        index = NodeSecond._fields.index(name)
        shape = (len(self._seconds), len(self.nodes))
        return np.array([[one[index] for one in row] for row in self._seconds], dtype=np.float64).reshape(shape)

    def usage_before(self, node: int, seconds: float, until: float) -> tuple[float, float] | None:
        """Means of usage and memory in that time before `until`."""
        last = int(np.searchsorted(self.times, until, side="right"))
        first = int(np.searchsorted(self.times, until - seconds, side="left"))
        rows = self._seconds[first:last]
        if not rows:
            return None
        return (
            sum(row[node].usage for row in rows) / len(rows),
            sum(min(1.0, row[node].memory) for row in rows) / len(rows),
        )

    def seconds(self) -> Iterator[tuple[float, list[NodeSecond]]]:
        return zip(self.times, self._seconds, strict=True)
