"""One small plugin of each sort that registers more than extension points. Examples to copy from, without a use."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import numpy as np

from carico.kube.calls import ApiResource, followed
from carico.kube.meta import KubeObject
from carico.kube.objects import Pod
from carico.kube.watch import WatchedResource
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, ClusterEvent, EventInterest
from carico.scheduler.framework.contract import (
    OK,
    WAIT,
    Cycle,
    Filter,
    GroupPods,
    HoldRoom,
    Nomination,
    PostFilter,
    PostFilterAction,
    Reuse,
    Status,
    Verdict,
    WakeUp,
    unschedulable,
)
from carico.scheduler.framework.filtering import FilterResult
from carico.scheduler.plugins.registry import Factory, PluginTools

GANG, SIZE, COLOR = "example.com/gang", "example.com/gang-size", "example.com/color"


class GangsOnNodes:
    """An index over the pods on nodes: how many of each gang there are."""

    name = "GangsOnNodes"

    def __init__(self) -> None:
        self.pods: Counter[str] = Counter()

    def add(self, pod: PodInfo, row: int) -> None:  # noqa: ARG002
        self._change(pod, 1)

    def remove(self, pod: PodInfo, row: int) -> None:  # noqa: ARG002
        self._change(pod, -1)

    def node_changed(self, row: int) -> None:
        """Where the pods are does not matter here."""

    def _change(self, pod: PodInfo, change: int) -> None:
        if gang := pod.pod.metadata.labels.get(GANG):
            self.pods[gang] += change
            if not self.pods[gang]:
                del self.pods[gang]


class Gang(GroupPods):
    """Pods with the same label are admitted together, when as many are there as the label of their size says."""

    name = "Gang"
    # A pod that joins the group opens its gate without an interest; one that another client binds does not.
    interests = (EventInterest("Pod", Action.ADD, lambda pod, _, new: _is_mate(pod, new)),)

    def __init__(self, tools: PluginTools) -> None:
        self.index = GangsOnNodes()
        tools.register.index(self.index)

    def group_of(self, pod: PodInfo) -> str:
        gang = pod.pod.metadata.labels.get(GANG, "")
        return f"{pod.pod.namespace}/{gang}" if gang else ""

    def group_ready(self, group: str, waiting: Sequence[PodInfo]) -> Status:  # noqa: ARG002
        gang = waiting[0].pod.metadata.labels[GANG]
        there, size = len(waiting) + self.index.pods[gang], max(_size(pod) for pod in waiting)
        return OK if there >= size else unschedulable(f"{there} of {size} pods are there")


def _is_mate(pod: PodInfo, other: Pod) -> bool:
    gang = pod.pod.metadata.labels.get(GANG)
    return gang is not None and other.metadata.labels.get(GANG) == gang


def _size(pod: PodInfo) -> int:
    text = pod.pod.metadata.labels.get(SIZE, "")
    return int(text) if text.isdigit() else 1


class NodeCapacity(KubeObject, frozen=True):
    """What this example reads of an object of the CRD."""


CAPACITIES = WatchedResource(
    followed(ApiResource("carico.dev", "v1alpha1", "nodecapacities", namespaced=False), "an example", optional=True),
    NodeCapacity,
)


class NeedsObject(Filter):
    """A node is feasible when an object of a CRD has its name."""

    name = "NeedsObject"
    reuse = Reuse.NEVER
    interests = (EventInterest("NodeCapacity", Action.ADD),)

    def __init__(self, tools: PluginTools) -> None:
        self._objects = tools.register.follow(CAPACITIES)

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        chosen = cycle.snapshot.all_rows() if rows is None else rows
        lacking = np.array([cycle.snapshot.name(int(row)) not in self._objects for row in chosen], dtype=np.bool_)
        return Verdict.refuse(lacking, "node(s) had no object")


class Colors(Filter):
    """A background task learns the colors that pods may have, and wakes the pods that wait for one."""

    name = "Colors"
    reuse = Reuse.NEVER
    interests: tuple[EventInterest, ...] = ()

    def __init__(self, tools: PluginTools) -> None:
        self.known: set[str] = set()
        self.learned: asyncio.Queue[str] = asyncio.Queue()
        self.state = "new"
        self.interests = (EventInterest("Color", Action.ADD, lambda pod, _, color: _color(pod) == color),)
        self._register = tools.register
        tools.register.background("Colors", self._learn)

    async def _learn(self) -> None:
        self.state = "running"
        try:
            while True:
                color = await self.learned.get()
                if not color:
                    raise ValueError("a color without a name")
                self.known.add(color)
                self._register.wake(ClusterEvent("Color", Action.ADD, None, color))
        except asyncio.CancelledError:
            self.state = "cancelled"
            raise

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        length = len(cycle.snapshot) if rows is None else len(rows)
        unknown = bool(_color(cycle.pod)) and _color(cycle.pod) not in self.known
        return Verdict.refuse(np.full(length, unknown, dtype=np.bool_), "node(s) had no such color")


def _color(pod: PodInfo) -> str:
    return pod.pod.metadata.labels.get(COLOR, "")


class KeepsRoom(PostFilter):
    """Instead of evicting pods: nominates the first node, holds room there for 30 s, and wakes another pod."""

    name = "KeepsRoom"
    interests: tuple[EventInterest, ...] = ()

    def __init__(self, wakes: tuple[str, ...] = ()) -> None:
        self.wakes = wakes

    def post_filter(self, cycle: Cycle, feasibility: FilterResult) -> Sequence[PostFilterAction]:
        rows = np.flatnonzero(feasibility.resolvable(ignoring=feasibility.filters.measured))
        if cycle.pod.uid in cycle.snapshot.nominated:
            return (WAIT,)
        if not len(rows):
            return ()
        node = cycle.snapshot.name(int(rows[0]))
        hold = HoldRoom(f"for {cycle.pod.pod.name}", node, cycle.pod, 30.0)
        return Nomination(node), hold, WakeUp(self.wakes)


EXAMPLES: dict[str, Factory] = {
    "Gang": Gang,
    "NeedsObject": NeedsObject,
    "Colors": Colors,
    "KeepsRoom": lambda _: KeepsRoom(),
}
