"""What a policy sees of the simulation: the figures of its metrics source, and for an oracle the true ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from carico import config
from carico.errors import UsageError
from carico.sim.scheduler import PolicyPlugins
from carico.sim.timeline import Timeline
from carico.sim.workload import SimPod

A = TypeVar("A")


class PolicyView(Protocol):
    timeline: Timeline

    def usage(self, node: str, seconds: float, until: float) -> tuple[float, float] | None:
        """Mean cpu and memory usage in the time before `until`, as ratios; None: there is none yet."""

    def rejecting(self, node: str) -> bool:
        """Pronto's signal, by the node's last report."""

    def sim_pod(self, uid: str) -> SimPod: ...

    def true_need(self, node: str) -> tuple[float, float]:
        """Threads and bytes that the node's pods may still demand, those that start included, and the system's."""

    def true_size(self, node: str) -> tuple[float, float]:
        """Cores and bytes."""


MakePolicy = Callable[[PolicyView, Mapping[str, Any]], PolicyPlugins]

# What every policy but the default profile of Carico uses; the order is kube-scheduler's.
FILTERS = ("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit")
TOPOLOGY = ("PodTopologySpread", "InterPodAffinity")


def profile(*plugins: str, weights: Mapping[str, float] | None = None) -> dict[str, Any]:
    names = ["PrioritySort", "SchedulingGates", *FILTERS, *TOPOLOGY, *plugins, "DefaultPreemption"]
    return {"plugins": names, "weights": dict(weights or {})}


def arguments(kind: type[A], given: Mapping[str, Any]) -> A:
    """The policy's arguments: a dataclass whose fields are numbers."""
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name, value in given.items():
        if name not in known:
            raise UsageError(f"args: no argument is called {name!r}{config.nearest(name, known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise UsageError(f"args: {name} is {value!r}; it must be a number of 0 or more")
    return kind(**{name: float(value) for name, value in given.items()})
