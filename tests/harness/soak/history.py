"""The events of a soak, and the state of the cluster that follows from them.

Everything that the checks use is in here and nothing is taken from the scheduler's own state: pods, nodes and Events as
a watch of the benchmark saw them, requests as the proxy passed them on, reports as the agents sent them. Times are
seconds of the machine's monotonic clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import msgspec

STARTING_FOR = 60.0  # s after its binding in which a pod that has not started counts as starting
STARTING_FULL, STARTING_IDLE = 8, 32  # pods; `startup_limit` and `startup_limit_idle`
STARTING_SPARE = 3  # pods fewer than that; the reported usage is not exactly known
MOST_PODS = 110  # pods per node
REMEMBERED = 120.0  # s
SETTLED_AFTER = 15.0  # s after a fault within which everything is known again


class Event(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    at: float


class PodSeen(Event, frozen=True):
    uid: str
    key: str
    ours: bool = True
    priority: int = 0
    cpu: int = 0  # millicores requested
    units: float = 1.0
    selector: dict[str, str] = {}
    plain: bool = True  # only requests, units and a node selector decide where it fits


class Bound(Event, frozen=True):
    uid: str
    node: str


class Started(Event, frozen=True):
    uid: str


class Leaving(Event, frozen=True):
    """It has a deletion timestamp and is in its grace period."""

    uid: str


class Gone(Event, frozen=True):
    """Deleted, or succeeded or failed."""

    uid: str


class Nominated(Event, frozen=True):
    """The API server's status.nominatedNodeName; empty: removed."""

    uid: str
    node: str


class EvictionSent(Event, frozen=True):
    """A scheduler began to evict a pod: the first request for it, whatever its result."""

    uid: str


class Evicted(Event, frozen=True):
    """A scheduler's DELETE that the API server accepted; `at` is when it was sent."""

    uid: str


class Preempted(Event, frozen=True):
    """The Event of a victim, which names its preemptor."""

    uid: str
    preemptor: str


class Announced(Event, frozen=True):
    """An Event `Scheduled`."""

    uid: str
    name: str


class BindingSent(Event, frozen=True):
    """A Binding as the proxy saw it; `at` is when it was forwarded."""

    uid: str
    node: str
    status: int  # of the API server, whether the scheduler received it or not; 0: no response
    answered_at: float


class NodeUp(Event, frozen=True):
    node: str
    cpu: int  # millicores
    labels: dict[str, str] = {}


class NodeDown(Event, frozen=True):
    node: str


class Reported(Event, frozen=True):
    """The last report of a node's agent: Pod-Capacity, and changes of the set of pods that it counts."""

    node: str
    full: float  # units that the empty node would take: the truth, which no scheduler knows
    capacity: float
    added: list[str] = []
    removed: list[str] = []


class Silenced(Event, frozen=True):
    node: str


class Renewed(Event, frozen=True):
    """The Lease was taken or renewed."""

    holder: str


class ApiAnswers(Event, frozen=True):
    yes: bool


class FaultBegan(Event, frozen=True):
    number: int
    kind: str
    stops_bindings: bool = False  # while it lasts no binding is possible


class FaultEnded(Event, frozen=True):
    number: int


class Memory(Event, frozen=True):
    process: str  # one process of one replica
    mb: float


History = Iterable[Event]
KINDS = (
    PodSeen | Bound | Started | Leaving | Gone | Nominated | EvictionSent | Evicted | Preempted | Announced
    | BindingSent | NodeUp | NodeDown | Reported | Silenced | Renewed | ApiAnswers | FaultBegan | FaultEnded | Memory
)  # fmt: skip


@dataclass
class PodState:
    seen: PodSeen
    node: str = ""
    bound_at: float = 0.0
    started: bool = False
    leaving_since: float | None = None
    evicted: bool = False  # by a scheduler of ours, which therefore knows that it is leaving
    gone_at: float = 0.0
    nominated: str = ""

    @property
    def leaving(self) -> bool:
        return self.evicted or self.leaving_since is not None

    @property
    def uid(self) -> str:
        return self.seen.uid


@dataclass
class NodeState:
    cpu: int  # millicores
    labels: dict[str, str]


@dataclass
class ReportState:
    capacity: float
    counted: set[str] = field(default_factory=set)


class State:
    """The cluster at one moment; `apply` advances it by one event."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pods: dict[str, PodState] = {}
        self.nodes: dict[str, NodeState] = {}
        self.on: defaultdict[str, dict[str, PodState]] = defaultdict(dict)
        self.kept: defaultdict[str, dict[str, PodState]] = defaultdict(dict)  # pods that are nominated to a node
        self._leader, self._led_since = "", float("-inf")
        self._ghosts: defaultdict[str, list[PodState]] = defaultdict(list)  # pods that were on a node until recently
        self._cpu_taken: defaultdict[str, int] = defaultdict(int)  # millicores
        self.reports: dict[str, ReportState] = {}
        self.full: dict[str, float] = {}  # units that each node can take; known even while its agent sends no report
        self.faults: dict[int, FaultBegan] = {}
        self.calm_since = float("-inf")  # when the last fault ended; meaningless while one is active
        self.disturbed_since = float("-inf")  # when the first fault after the last calm began

    def apply(self, event: Event) -> None:
        self.now = max(self.now, event.at)  # a request is recorded when its response arrives
        match event:
            case PodSeen():
                self.pods.setdefault(event.uid, PodState(event)).seen = event
            case Bound() if event.uid in self.pods:
                pod = self.pods[event.uid]
                self._place(pod, event.node)
                self._nominate(pod, "")
                pod.bound_at = event.at
            case Started() if event.uid in self.pods:
                self.pods[event.uid].started = True
            case Leaving() if event.uid in self.pods:
                self.pods[event.uid].leaving_since = event.at
            case Evicted() if event.uid in self.pods:
                self.pods[event.uid].evicted = True
            case Gone():
                if (gone := self.pods.pop(event.uid, None)) is not None:
                    self._remember(gone)
                    self._place(gone, "")
                    self._nominate(gone, "")
            case Nominated() if event.uid in self.pods:
                self._nominate(self.pods[event.uid], event.node)
            case NodeUp():
                self.nodes[event.node] = NodeState(event.cpu, event.labels)
            case NodeDown():
                self.nodes.pop(event.node, None)
            case Reported():
                self.full[event.node] = event.full
                report = self.reports.setdefault(event.node, ReportState(event.capacity))
                report.capacity = event.capacity
                report.counted = (report.counted | set(event.added)) - set(event.removed)
            case Silenced():
                self.reports.pop(event.node, None)
            case Renewed() if event.holder != self._leader:
                self._leader, self._led_since = event.holder, event.at
            case FaultBegan():
                if self.calm_for(SETTLED_AFTER):
                    self.disturbed_since = event.at
                self.faults[event.number] = event
            case FaultEnded():
                self.faults.pop(event.number, None)
                self.calm_since = event.at

    def _remember(self, pod: PodState) -> None:
        """A scheduler may not know for a while that it has ended."""
        pod.gone_at = self.now
        pod.leaving_since = self.now if pod.leaving_since is None else pod.leaving_since
        kept = [other for other in self._ghosts[pod.node] if self.now - other.gone_at < REMEMBERED]
        self._ghosts[pod.node] = [*kept, pod]

    def _place(self, pod: PodState, node: str) -> None:
        if self.on[pod.node].pop(pod.uid, None) is not None:
            self._cpu_taken[pod.node] -= pod.seen.cpu
        pod.node = node
        if node:
            self.on[node][pod.uid] = pod
            self._cpu_taken[node] += pod.seen.cpu

    def _nominate(self, pod: PodState, node: str) -> None:
        self.kept[pod.nominated].pop(pod.uid, None)
        pod.nominated = node
        if node:
            self.kept[node][pod.uid] = pod

    # --- queries ---

    def calm_for(self, seconds: float) -> bool:
        return not self.faults and self.now - self.calm_since >= seconds

    def waiting(self) -> Iterator[PodState]:
        """Our pods that have no node and could still get one."""
        return (pod for pod in self.pods.values() if pod.seen.ours and not pod.node and not pod.leaving)

    def nodes_for(self, pod: PodState, *, cpu: int = 0, units: float = 0.0) -> list[str]:
        """Nodes that would take a plain pod and still have `cpu` and `units` left: observations have a delay."""
        return [
            name
            for name, node in self.nodes.items()
            if pod.seen.selector.items() <= node.labels.items()
            and self._cpu_left(name, pod) >= pod.seen.cpu + cpu
            and self._capacity_left(name) >= pod.seen.units + units
            and len(self.on[name]) < MOST_PODS
            and self._starting(name) < self._may_start(name)
        ]

    def _cpu_left(self, name: str, asking: PodState) -> int:
        """What is reserved for nominated pods of equal or higher priority is not free either."""
        return self.nodes[name].cpu - self._cpu_taken[name] - sum(pod.seen.cpu for pod in self._ahead(name, asking))

    def _ahead(self, name: str, asking: PodState) -> list[PodState]:
        kept = self.kept[name].values()
        return [pod for pod in kept if pod is not asking and pod.seen.priority >= asking.seen.priority]

    def _capacity_left(self, name: str) -> float:
        """The hand-over rule: the node's last report, minus the pods that it does not count yet."""
        report = self.reports.get(name)
        if report is None:
            return float("-inf")
        return report.capacity - sum(p.seen.units for uid, p in self.on[name].items() if uid not in report.counted)

    def _starting(self, name: str) -> int:
        """A new leader does not know how long a pod has been starting."""
        waiting = [pod for pod in self.on[name].values() if not pod.started]
        return sum(self.now - max(pod.bound_at, self._led_since) < STARTING_FOR for pod in waiting)

    def _may_start(self, name: str) -> float:
        left = max(0.0, self.reports[name].capacity / self.full[name])
        return STARTING_FULL + left * (STARTING_IDLE - STARTING_FULL) - STARTING_SPARE

    def load(self, name: str, before: float) -> float:
        """Units of the pods on a node, without other schedulers' pods that came at or after `before`."""
        return sum(pod.seen.units for pod in self.on[name].values() if pod.seen.ours or pod.bound_at < before)

    def would_hold(
        self, name: str, pod: PodState, *, since: float, seen: float, condemned: AbstractSet[str] = frozenset()
    ) -> bool:
        """Whether a node has the room for a pod once all leaving pods have ended.

        A pod that began to leave without an eviction at or after `seen` may be unknown to a scheduler and is kept; the
        `condemned` are the pod's own victims. Our own pods of lower priority that came after `since` do not count: the
        room was not theirs.
        """
        if name not in self.nodes or name not in self.reports:
            return False
        present = (*self.on[name].values(), *self._ghosts[name])
        stays = [o for o in present if o is not pod and not _known_to_go(o, seen, condemned)]
        stays = [o for o in stays if not (o.seen.ours and o.seen.priority < pod.seen.priority and o.bound_at > since)]
        stays += self._ahead(name, pod)
        cpu = self.nodes[name].cpu - sum(other.seen.cpu for other in stays)
        units = self.full[name] - sum(other.seen.units for other in stays)
        return cpu >= pod.seen.cpu and units >= pod.seen.units


def _known_to_go(pod: PodState, seen: float, condemned: AbstractSet[str]) -> bool:
    by_itself = pod.leaving_since is not None and pod.leaving_since < seen
    return pod.evicted or by_itself or pod.uid in condemned


def in_order(history: History) -> list[Event]:
    """By time; events of the same time keep their order."""
    return sorted(history, key=lambda event: event.at)
