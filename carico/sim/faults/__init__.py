"""Faults of a scenario. One function each; REGISTRY names them for `kind:`.

agent-silent      the agents of nodes stop; they restart without learned state
node-gone         nodes are deleted with all their pods, and come back empty
aggregator-away   nothing is shared between nodes
scheduler-paused  the scheduler does nothing, as between two leaders
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from carico.sim.scenario import Fault
from carico.sim.timeline import Timeline


class ClusterForFaults(Protocol):
    timeline: Timeline

    def stop_agent(self, node: str) -> None: ...
    def start_agent(self, node: str) -> None: ...
    def remove_node(self, node: str) -> None: ...
    def restore_node(self, node: str) -> None: ...
    def share(self, *, on: bool) -> None:
        """Whether the aggregator answers."""

    def pause_scheduler(self, *, on: bool) -> None: ...


def agent_silent(cluster: ClusterForFaults, fault: Fault, nodes: list[str]) -> None:
    for node in nodes:
        cluster.stop_agent(node)
    for node in nodes:
        _after(cluster, fault, partial(cluster.start_agent, node))


def node_gone(cluster: ClusterForFaults, fault: Fault, nodes: list[str]) -> None:
    for node in nodes:
        cluster.remove_node(node)
    for node in nodes:
        _after(cluster, fault, partial(cluster.restore_node, node))


def aggregator_away(cluster: ClusterForFaults, fault: Fault, nodes: list[str]) -> None:  # noqa: ARG001
    cluster.share(on=False)
    _after(cluster, fault, lambda: cluster.share(on=True))


def scheduler_paused(cluster: ClusterForFaults, fault: Fault, nodes: list[str]) -> None:  # noqa: ARG001
    cluster.pause_scheduler(on=True)
    _after(cluster, fault, lambda: cluster.pause_scheduler(on=False))


def _after(cluster: ClusterForFaults, fault: Fault, call: Callable[[], object]) -> None:
    cluster.timeline.at(cluster.timeline.monotonic() + fault.lasts, call)


REGISTRY: dict[str, Callable[[ClusterForFaults, Fault, list[str]], None]] = {
    "agent-silent": agent_silent,
    "node-gone": node_gone,
    "aggregator-away": aggregator_away,
    "scheduler-paused": scheduler_paused,
}
