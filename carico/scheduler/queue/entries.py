"""What the scheduling queue stores of a pod."""

from __future__ import annotations

from dataclasses import dataclass, field

from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import EventInterest
from carico.scheduler.framework.contract import Status
from carico.scheduler.framework.needs import Needs
from carico.scheduler.queue.unschedulable import Diagnosis, WaitingGroup

# "grouped": with the entry of the first pod of its group
PLACES = ("active", "backoff", "waiting", "gated", "held", "flight", "grouped")


@dataclass(frozen=True, slots=True)
class Gate:
    """The PreEnqueue plugin that keeps a pod out of the active queue."""

    plugin: str
    status: Status
    interests: tuple[EventInterest, ...]
    broken: bool = False  # the plugin raised an exception, or returned ERROR: called again later


@dataclass(slots=True, eq=False)
class Queued:
    """A pod and its state in the queue."""

    info: PodInfo
    queued_at: float  # s, monotonic: first seen
    attempts: int = 0
    refusal: Diagnosis = field(default_factory=Diagnosis)
    gate: Gate | None = None
    failed_at: float = 0.0  # s, monotonic: last failure
    ready_at: float = 0.0  # s, monotonic: end of the back-off
    place: str = ""  # one of PLACES
    after_flush: bool = False
    seen: int = 0  # number of the last change before its attempt began
    ticket: int = 0  # number of its newest entry in a heap; older ones are invalid. 0: none is valid
    group: WaitingGroup | None = None  # while it waits
    woken_from: WaitingGroup | None = None  # the group from which a change woke it up; until it is tried
    woken_for: int = -1  # the row that woke it up; until it is tried
    woken_needs: Needs = ()  # what it would take there
    pod_group: QueuedGroup | None = None  # until all its pods have a node

    @property
    def uid(self) -> str:
        return self.info.uid

    @property
    def infos(self) -> tuple[PodInfo, ...]:
        """The pods of this entry."""
        group = self.pod_group
        return (self.info,) if group is None else tuple(member.info for member in group.members.values())


@dataclass(slots=True, eq=False)
class QueuedGroup:
    """Pods that are one entry. The first one represents them in heaps and groups; the others are "grouped"."""

    key: tuple[str, str, str]  # profile, plugin, and the plugin's name for it
    members: dict[str, Queued] = field(default_factory=dict)  # by UID

    @property
    def first(self) -> Queued:
        return next(iter(self.members.values()))
