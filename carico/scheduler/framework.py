"""The contract between the scheduler and its plugins.

A plugin is any object with a `name` and one or more of the methods below; each method is one extension point, named as
in Kubernetes. The order in which a pod meets them is written once, in cycle.py:

    pre_enqueue ─ sort_key ─ pre_filter ─ filter ─(no node)─ post_filter
                                            └ pre_score ─ score ─ reserve ─ permit ─ │ pre_bind ─ bind ─ post_bind
                                                                                     └ outside the cycle, may await

Plugins answer for many nodes at once: `rows` are row numbers (rows.py), and a filter's `Verdict` or a score's vector
has one entry for each of them. Nothing here awaits before `pre_bind`: between `pre_filter` and `permit` the world
stands still. A verdict is a value with reasons that end in `kubectl describe pod`, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from carico.scheduler.changes import Interest
from carico.scheduler.rows import Mask, RowArray
from carico.scheduler.supply import Needs
from carico.scheduler.template import PodInfo
from carico.types import Vector

if TYPE_CHECKING:
    from carico.scheduler.feasible import Feasibility
    from carico.scheduler.plugin_times import PluginTimes
    from carico.scheduler.snapshot import Snapshot

MAX_SCORE = 100.0


class Code(IntEnum):
    SUCCESS = 0
    SKIP = 1  # nothing to say about this pod: the plugin's next points are not called
    UNSCHEDULABLE = 2  # not now; evicting other pods might help
    UNRESOLVABLE = 3  # not now, and evicting pods would not help
    ERROR = 4  # something broke: try again after a back-off, whatever happens in the cluster


@dataclass(frozen=True, slots=True)
class Status:
    """The answer of a plugin about the pod as a whole."""

    code: Code
    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)


OK = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


def unschedulable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    return Status(Code.UNRESOLVABLE, reasons)


def error(*reasons: str) -> Status:
    return Status(Code.ERROR, reasons)


class Reason(NamedTuple):
    """Why a node was refused, as people read it: "0/19 nodes are available: 12 Insufficient cpu, …"."""

    text: str
    unresolvable: bool = False  # evicting pods from the node would not help


Bits = NDArray[np.unsignedinteger[Any]]


@dataclass(slots=True)
class Verdict:
    """A filter's answer, one entry per row asked for: 0 is yes, else bit i stands for reasons[i].

    Several bits may be set. The unsigned type must hold all reasons (uint8 for up to eight).
    """

    bits: Bits
    reasons: tuple[Reason, ...]

    @classmethod
    def refuse(cls, refused: Mask, text: str, *, unresolvable: bool = False) -> Verdict:
        """The common case: one reason, for the rows where `refused` is True."""
        return cls(refused.view(np.uint8), (Reason(text, unresolvable),))

    def at(self, index: int) -> list[Reason]:
        """Why the row at this index of the answer was refused; empty when it was not."""
        bits = int(self.bits[index])
        return [reason for i, reason in enumerate(self.reasons) if bits >> i & 1]


class Reuse(Enum):
    """How long a filter's answer for a row holds for other pods of the same template."""

    NODE = "node"  # until the Node object changes
    ROW = "row"  # until the Node object or the pods on it change
    NEVER = "never"  # it depends on more: labels of the pod, other nodes, volumes, reports


@dataclass(slots=True)
class Cycle:
    """One attempt to place one pod. Plugins keep what they computed in `state`, under their own name."""

    pod: PodInfo
    snapshot: Snapshot
    state: dict[str, Any] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)  # plugins whose pre_filter said SKIP
    times: PluginTimes | None = None  # where it is noted how long each plugin takes, if this cycle is measured


class Plugin(Protocol):
    """What all plugins have. `interests` lists the changes that could turn a refusal of this plugin."""

    @property
    def name(self) -> str: ...
    @property
    def interests(self) -> tuple[Interest, ...]: ...


@runtime_checkable
class PreEnqueue(Protocol):
    """Asked before a pod enters the active queue; refused, it stays out until its `interests` say otherwise."""

    name: str

    def pre_enqueue(self, pod: PodInfo) -> Status: ...


@runtime_checkable
class QueueSort(Protocol):
    """The order of the active queue; exactly one plugin of a profile has it."""

    name: str

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """Pods with smaller keys go first. `queued_at` is when the pod was first seen, in s."""
        ...


@runtime_checkable
class PreFilter(Protocol):
    """Called once per cycle, before the filters: compute what does not depend on the node."""

    name: str

    def pre_filter(self, cycle: Cycle) -> Status:
        """SKIP: this plugin's `filter` is not called. Anything but OK or SKIP ends the cycle."""
        ...


@runtime_checkable
class PreFilterExtensions(Protocol):
    """For a filter that looks beyond the row: tell it of pods that are only thought away, or thought there.

    The snapshot's row has been changed already. Every call is undone by its opposite before the cycle ends.
    """

    name: str

    def add_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None: ...
    def remove_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None: ...


@runtime_checkable
class Filter(Protocol):
    """Which nodes can take the pod at all. Must not change anything."""

    name: str
    reuse: Reuse

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        """An answer for each of `rows`; None means every row of the snapshot, 0 … len − 1."""
        ...


@runtime_checkable
class Supply(Protocol):
    """A filter that refuses a row exactly when the row has less of something than the pod needs.

    Pods that it refused are woken by amounts instead of hints (supply.py): whenever a row changes, those that the row
    can hold. `filter` and `available` must agree, or the pod waits for the next change that a hint recognises.
    """

    name: str
    supply: str  # what the amounts are called in Need.supply; the same for plugins that answer alike

    def needs(self, cycle: Cycle) -> Needs:
        """What the pod of this cycle needs; the pre-filter has run."""
        ...

    def available(self, resource: str, row: int) -> float:
        """What the row has; −inf where the filter would refuse the row whatever the pod needs."""
        ...


@dataclass(frozen=True, slots=True)
class Nomination:
    """Make room: evict `victims` and keep the node for the pod."""

    node: str
    victims: tuple[PodInfo, ...]


class Wait:
    """Nothing new has to be done: victims of an earlier nomination are still leaving. The nomination stays."""


WAIT = Wait()


@runtime_checkable
class PostFilter(Protocol):
    """Asked when no node was feasible: what could be done about it?

    A `Nomination` makes room, WAIT keeps the nomination that the pod has, None clears it.
    """

    name: str

    def post_filter(self, cycle: Cycle, feasibility: Feasibility) -> Nomination | Wait | None: ...


@runtime_checkable
class PreScore(Protocol):
    """Called once, when the feasible rows are known. SKIP: this plugin's `score` is not called."""

    name: str

    def pre_score(self, cycle: Cycle, rows: RowArray) -> Status: ...


@runtime_checkable
class Score(Protocol):
    """How good each feasible node is."""

    name: str

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        """One finite figure in [0, MAX_SCORE] per row, higher is better; the profile multiplies it with a weight."""
        ...


@runtime_checkable
class Reserve(Protocol):
    """Keep what the pod will need on the chosen node, and give it back if a later step fails.

    `unreserve` is called for every plugin if any `reserve` failed, so it must be idempotent and harmless.
    """

    name: str

    def reserve(self, cycle: Cycle, node: str) -> Status: ...
    def unreserve(self, cycle: Cycle, node: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PermitWait:
    """The pod keeps its node and waits until the plugin allows or rejects it (waiting.py), or the time has passed.

    That time is a rejection too.
    """

    seconds: float


@runtime_checkable
class Permit(Protocol):
    """The last word before binding. Refused, the pod waits for the plugin's `interests`; ERROR is tried again."""

    name: str

    def permit(self, cycle: Cycle, node: str) -> Status | PermitWait: ...


@runtime_checkable
class PreBind(Protocol):
    """What must be true in the cluster before the pod is bound, such as its volumes.

    Who waits here does so by `InFlightPod.news` (waiting.py): the wait is in vain once `ended` is set there.
    """

    name: str

    async def pre_bind(self, cycle: Cycle, node: str) -> Status: ...


@runtime_checkable
class Bind(Protocol):
    """Bind the pod; SKIP passes it to the next binder. The first that answers anything else decides."""

    name: str

    async def bind(self, cycle: Cycle, node: str) -> Status: ...


@runtime_checkable
class PostBind(Protocol):
    """Told that the pod is bound."""

    name: str

    def post_bind(self, cycle: Cycle, node: str) -> None: ...
