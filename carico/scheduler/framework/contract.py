"""The contract between the scheduler and its plugins.

A plugin is an object with a `name`, its `interests` and one or more of the methods below; each method is one extension
point, named as in kube-scheduler. A plugin inherits the protocols that it implements, so that one without a method of
theirs, because its name is misspelt, is a type error and cannot be made. An object with the right methods that does not
inherit works too. They are called in this order (cycle/scheduling_cycle.py, cycle/binding_cycle.py):

    pre_enqueue ─ sort_key ─ pre_filter ─ filter ─(no node)─ post_filter
                                            └ pre_score ─ score ─ reserve ─ permit ─ │ pre_bind ─ bind ─ post_bind
                                                                                     └ binding cycle, may await

Plugins evaluate many nodes at once: `rows` are row numbers (cache/rows.py), and a filter's `Verdict` or a score's
vector has one entry for each of them. Nothing here awaits before `pre_bind`: snapshot and ledger do not change between
`pre_filter` and `permit`. A verdict is a value with reasons that appear in `kubectl describe pod`, never an exception.

https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/624-scheduling-framework
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.needs import Needs
from carico.types import Vector

if TYPE_CHECKING:
    from carico.scheduler.cache.snapshot import Snapshot
    from carico.scheduler.framework.filtering import FilterResult
    from carico.scheduler.framework.plugin_times import PluginTimes

__all__ = [
    "MAX_SCORE",
    "OK",
    "SKIP",
    "WAIT",
    "Bind",
    "Bits",
    "Code",
    "CostlyFilter",
    "Cycle",
    "DecisionFigures",
    "Explain",
    "ExplainRows",
    "Filter",
    "GroupPods",
    "HoldRoom",
    "MeasuredSupply",
    "Nomination",
    "Permit",
    "PermitWait",
    "Plugin",
    "PostBind",
    "PostFilter",
    "PostFilterAction",
    "PreBind",
    "PreEnqueue",
    "PreFilter",
    "PreFilterExtensions",
    "PreScore",
    "PricedSupply",
    "QueueSort",
    "Reason",
    "Reserve",
    "Reuse",
    "Score",
    "Status",
    "Supply",
    "Verdict",
    "Wait",
    "WakeUp",
    "error",
    "unresolvable",
    "unschedulable",
]

MAX_SCORE = 100.0


class Code(IntEnum):
    SUCCESS = 0
    SKIP = 1  # does not apply to this pod: the plugin's next extension points are not called
    UNSCHEDULABLE = 2  # not now; evicting other pods might help
    UNRESOLVABLE = 3  # not now, and evicting pods would not help
    ERROR = 4  # internal error: retried after a back-off, independent of events


@dataclass(frozen=True, slots=True)
class Status:
    """A plugin's result for the pod as a whole."""

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
    """Why a node was rejected, as in "0/19 nodes are available: 12 Insufficient cpu, …"."""

    text: str
    unresolvable: bool = False  # evicting pods from the node would not help
    transient: bool = False  # independent of the node's room, and ends without an eviction: nominations are kept


Bits = NDArray[np.unsignedinteger[Any]]


@dataclass(slots=True)
class Verdict:
    """A filter's result, one entry per row: 0 is feasible, else bit i means reasons[i].

    Several bits may be set. The unsigned type must hold all reasons (uint8 for up to eight).
    """

    bits: Bits
    reasons: tuple[Reason, ...]

    @classmethod
    def refuse(cls, refused: Mask, text: str, *, unresolvable: bool = False) -> Verdict:
        """The common case: one reason, for the rows where `refused` is True."""
        return cls(refused.view(np.uint8), (Reason(text, unresolvable),))

    def at(self, index: int) -> list[Reason]:
        """Why the row at this index of the result was rejected; empty when it was not."""
        bits = int(self.bits[index])
        return [reason for i, reason in enumerate(self.reasons) if bits >> i & 1]


class Reuse(Enum):
    """How long a filter's result for a row is valid for other pods of the same template."""

    NODE = "node"  # until the Node object changes
    ROW = "row"  # until the Node object or the pods on it change
    NEVER = "never"  # it depends on more: labels of the pod, other nodes, volumes, reports


@dataclass(slots=True)
class Cycle:
    """One attempt to schedule one pod. Plugins keep computed values in `state`, under their name."""

    pod: PodInfo
    snapshot: Snapshot
    state: dict[str, Any] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)  # plugins whose pre_filter returned SKIP
    times: PluginTimes | None = None  # records the duration of each plugin, if this cycle is sampled


class Plugin(Protocol):
    """Common to all plugins. `interests` lists the events that could make this plugin accept a rejected pod."""

    @property
    @abstractmethod
    def name(self) -> str: ...
    @property
    @abstractmethod
    def interests(self) -> tuple[EventInterest, ...]: ...


@runtime_checkable
class PreEnqueue(Plugin, Protocol):
    """Called before a pod enters the active queue; a rejected pod stays gated until an event of its `interests`."""

    @abstractmethod
    def pre_enqueue(self, pod: PodInfo) -> Status: ...


@runtime_checkable
class GroupPods(Plugin, Protocol):
    """Which pods are one entry of the queue: they are tried, woken up and paused together, and placed all or none."""

    @abstractmethod
    def group_of(self, pod: PodInfo) -> str:
        """The name of the pod's group; empty: it is on its own. It must depend on the pod alone."""
        ...

    @abstractmethod
    def group_ready(self, group: str, waiting: Sequence[PodInfo]) -> Status:
        """Whether these pods, all of the group that wait, may be tried now; else they stay gated."""
        ...


@runtime_checkable
class QueueSort(Plugin, Protocol):
    """The order of the active queue; exactly one plugin of a profile has it."""

    @abstractmethod
    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """Pods with smaller keys go first. `queued_at` is when the pod was first seen, in s."""
        ...


@runtime_checkable
class PreFilter(Plugin, Protocol):
    """Called once per cycle, before the filters: compute what does not depend on the node."""

    @abstractmethod
    def pre_filter(self, cycle: Cycle) -> Status:
        """SKIP: this plugin's `filter` is not called. Anything but OK or SKIP ends the cycle."""
        ...


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """For a filter that depends on other rows: called for pods that are hypothetically added or removed.

    The snapshot's row has been changed already. Every call is undone by its opposite before the cycle ends.
    """

    @abstractmethod
    def add_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None: ...
    @abstractmethod
    def remove_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None: ...


@runtime_checkable
class Filter(Plugin, Protocol):
    """Which nodes are feasible for the pod. Must not have side effects."""

    reuse: Reuse

    @abstractmethod
    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        """A result for each of `rows`; None means every row of the snapshot, 0 … len − 1."""
        ...


@runtime_checkable
class CostlyFilter(Filter, Protocol):
    """A filter that works node by node: if `costly`, it is called only for rows that are feasible so far."""

    costly: bool


@runtime_checkable
class Supply(Filter, Protocol):
    """A filter that rejects a row exactly when the row has less of something than the pod needs.

    Pods that it rejected are woken up by amounts instead of queueing hints (needs.py): whenever a row changes, those
    that the row can hold. `filter` and `available` must agree, or the pod waits for the next event that a hint accepts.
    """

    supply: str  # name of the amounts in Need.supply; the same for plugins with equal results

    @abstractmethod
    def needs(self, cycle: Cycle) -> Needs:
        """What the pod of this cycle needs; the pre-filter has run."""
        ...

    @abstractmethod
    def available(self, resource: str, row: int) -> float:
        """What the row has; −inf where the filter would reject the row for any need."""
        ...


@runtime_checkable
class PricedSupply(Supply, Protocol):
    """A supply of which a pod may need another amount later, because the cost of its class changes."""

    @abstractmethod
    def needs_of(self, pod: PodInfo) -> Needs:
        """What a waiting pod needs now, outside of a cycle."""
        ...


@runtime_checkable
class MeasuredSupply(PricedSupply, Protocol):
    """A supply that the nodes' reports measure. The extender gives kube-scheduler the verdicts of the first one."""

    @abstractmethod
    def pods_that_fit(self, cycle: Cycle, rows: RowArray) -> Vector:
        """How many pods like it fit on each row."""
        ...

    @abstractmethod
    def least(self, pod: PodInfo) -> Vector:
        """The amounts, in the order of `ledger.amounts`, that a node must have; −inf where the pod has no need."""
        ...

    @abstractmethod
    def unreported(self) -> Reason | None:
        """Why a node of which nothing is known yet is rejected; None if it is not."""
        ...


@dataclass(frozen=True, slots=True)
class Nomination:
    """Nominate the node for the pod, and evict `victims` there."""

    node: str
    victims: tuple[PodInfo, ...] = ()


class Wait:
    """Keep the nomination that the pod has: victims of an earlier one are still terminating."""


WAIT = Wait()


@dataclass(frozen=True, slots=True)
class HoldRoom:
    """Reserve what this pod takes on the node, for `seconds`, under a name; a hold of that name is replaced."""

    name: str
    node: str
    pod: PodInfo
    seconds: float


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Try these waiting pods again, by their UIDs."""

    uids: tuple[str, ...]


PostFilterAction = Nomination | Wait | HoldRoom | WakeUp


@runtime_checkable
class PostFilter(Plugin, Protocol):
    """Called when no node was feasible, to make room, by preemption or otherwise.

    Returns what is to be done; after an empty answer the next plugin is called. A nomination that the pod has ends
    unless one of the actions is a `Nomination` or WAIT.
    """

    @abstractmethod
    def post_filter(self, cycle: Cycle, feasibility: FilterResult) -> Sequence[PostFilterAction]: ...


@runtime_checkable
class PreScore(Plugin, Protocol):
    """Called once, when the feasible rows are known. SKIP: this plugin's `score` is not called."""

    @abstractmethod
    def pre_score(self, cycle: Cycle, rows: RowArray) -> Status: ...


@runtime_checkable
class Score(Plugin, Protocol):
    """How good each feasible node is."""

    @abstractmethod
    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        """One finite score in [0, MAX_SCORE] per row, higher is better; the profile multiplies it by a weight."""
        ...


@runtime_checkable
class Reserve(Plugin, Protocol):
    """Reserves what the pod will need on the chosen node, and releases it if a later step fails.

    `unreserve` is called for every plugin if any `reserve` failed, so it must be idempotent and harmless.
    """

    @abstractmethod
    def reserve(self, cycle: Cycle, node: str) -> Status: ...
    @abstractmethod
    def unreserve(self, cycle: Cycle, node: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PermitWait:
    """The pod keeps its node and waits until the plugin allows or rejects it (in_flight.py).

    After `seconds` it is rejected.
    """

    seconds: float


@runtime_checkable
class Permit(Plugin, Protocol):
    """The last check before the binding cycle. A rejected pod waits for the plugin's `interests`; ERROR is retried."""

    @abstractmethod
    def permit(self, cycle: Cycle, node: str) -> Status | PermitWait: ...


@runtime_checkable
class PreBind(Plugin, Protocol):
    """Prepares the cluster for the binding, such as the pod's volumes.

    A plugin that waits here must use `InFlightPod.news` (in_flight.py), and stop when `ended` is set there.
    """

    @abstractmethod
    async def pre_bind(self, cycle: Cycle, node: str) -> Status: ...


@runtime_checkable
class Bind(Plugin, Protocol):
    """Binds the pod; SKIP passes it to the next plugin. The first other result is final."""

    @abstractmethod
    async def bind(self, cycle: Cycle, node: str) -> Status: ...


@runtime_checkable
class PostBind(Plugin, Protocol):
    """Called after the pod was bound."""

    @abstractmethod
    def post_bind(self, cycle: Cycle, node: str) -> None: ...


class DecisionFigures(NamedTuple):
    """What a decision was based on, for the decision log and the Event of the binding."""

    need: float | None = None  # how much the pod takes
    free: float | None = None  # how much of it the chosen node had
    remark: str = ""  # for the Event
    stale_rule: str = ""  # the rule by which a node without recent figures was chosen, for a metric


@runtime_checkable
class Explain(Plugin, Protocol):
    """Says in words and numbers what the pod needs, and what its node has."""

    @abstractmethod
    def explain_need(self, pod: PodInfo, *, exact: bool) -> str:
        """What the pod needs of a node, as in "needs 2 cores"; empty if nothing. Not `exact`: for its condition."""
        ...

    @abstractmethod
    def explain_decision(self, cycle: Cycle, row: int | None) -> DecisionFigures | None:
        """Called before the pod is reserved on the chosen row, or without one; not if `pre_filter` was SKIP."""
        ...


@runtime_checkable
class ExplainRows(Plugin, Protocol):
    """Adds numbers to its verdict about rows that it rejected, for `carico explain`."""

    @abstractmethod
    def explain_rows(self, cycle: Cycle, rows: RowArray) -> Callable[[int], list[str]]:
        """Returns a function from an index of `rows` to texts about that row.

        It is called later, when snapshot and ledger may have changed, so it needs copies of what it shows.
        """
        ...


EXTENSION_POINTS: tuple[type[Plugin], ...] = (
    PreEnqueue,
    GroupPods,
    QueueSort,
    PreFilter,
    PreFilterExtensions,
    Filter,
    CostlyFilter,
    Supply,
    PricedSupply,
    MeasuredSupply,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
    Explain,
    ExplainRows,
)
