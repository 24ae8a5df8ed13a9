"""The cluster's model: the real aggregator's state between the simulated nodes, with the delay of its messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from carico.aggregator.classes import for_resources
from carico.aggregator.state import AggregatorState
from carico.settings import AggregatorSettings
from carico.sim.agent import SimAgent
from carico.sim.timeline import Timeline
from carico.sim.workload import RESOURCES
from carico.types import ClassCost, ClassKey, ClusterModel, LocalModel


class TakesClassCosts(Protocol):
    def class_costs(self, costs: Mapping[ClassKey, ClassCost]) -> None:
        """The cluster's class costs."""


class Federation:
    """`delay`: s from a node's message until the others and the scheduler receive the result.

    Each node sends a message every `every` seconds.
    """

    def __init__(
        self,
        timeline: Timeline,
        agents: Iterable[SimAgent],
        admission: TakesClassCosts,
        delay: float,
        every: int = 1,
        merge: str = "latest",
    ) -> None:
        self._timeline, self._admission, self._delay, self._every = timeline, admission, delay, every
        self._state = AggregatorState(AggregatorSettings(merge=merge), replica="aggregator", start_id=1)
        self._agents = list(agents)
        self._seconds = 0
        self._streams: dict[tuple[str, int], int] = {}  # of each start of an agent
        self._sent = 0  # version of the class costs

    def exchange(self) -> None:
        """Call it once a second."""
        now = self._timeline.monotonic()
        self._seconds += 1
        turn = self._agents[self._seconds % self._every :: self._every]
        for agent in turn:
            model = agent.model()
            if model is not None:
                self._state.accept(model, self._stream(model), now)
        self._state.refresh(now)
        self._state.classes.refresh(now)
        merged, known = self._state.model, self._news()
        self._timeline.at(now + self._delay, lambda: self._send(turn, merged, known))

    def _stream(self, model: LocalModel) -> int:
        start = (model.node, model.start_id)
        if start not in self._streams:
            self._streams[start] = self._state.open_stream()
        return self._streams[start]

    def _news(self) -> dict[ClassKey, ClassCost] | None:
        """All class costs, if any of them changed."""
        published = self._state.classes.published
        if published.version == self._sent:
            return None
        self._sent = published.version
        found = [for_resources(one.cost, RESOURCES) for one in published.values().values()]
        return {cost.key: cost for cost in found}

    def _send(self, turn: list[SimAgent], model: ClusterModel | None, known: dict[ClassKey, ClassCost] | None) -> None:
        if model is not None:
            for agent in turn:
                agent.adopt(model)
        if known is not None:
            for agent in self._agents:
                agent.adopt_classes(known)
        if known is not None:
            self._admission.class_costs(known)
