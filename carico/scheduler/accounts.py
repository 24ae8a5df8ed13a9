"""What the ledger holds of each node and of each pod on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from carico.scheduler.charge import Charge, Claim, Sum
from carico.scheduler.freshness import NEVER
from carico.types import ClassKey, NodeReport

NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class Entry:
    """A pod that stands on a node's account."""

    uid: str
    node: str
    claim: Claim
    charge: Charge
    since: float  # s, monotonic: when it was first promised or seen
    pending: bool = True  # not running yet, as far as the API server knows
    overdue: bool = False  # promised or seen for longer than a start takes
    probe: ClassKey | None = None  # it counts as an unmeasured pod of this class
    promised: bool = False
    bound: bool = False

    @property
    def starting(self) -> bool:
        return self.pending and not self.overdue


@dataclass(slots=True)
class Account:
    """A node's row and what it last said."""

    row: int
    counted: frozenset[str] | None = None  # None before the first report
    finished: frozenset[str] = NOBODY
    pods: dict[str, Entry] = field(default_factory=dict)
    reserved: Sum = field(default_factory=Sum)
    pending: Sum = field(default_factory=Sum)  # what would be reserved by the older rule
    report: NodeReport | None = None
    sampled: float = NEVER  # s on this process's monotonic clock: when the newest sample was taken
    connected: bool = False
    in_cluster: bool = False  # the API server has a Node of this name

    def answered(self) -> frozenset[str]:
        """UIDs of pods that the node's own figures answer for."""
        return (self.counted or NOBODY) | self.finished

    def sum_open(self) -> Sum:
        """What the pods take that the node does not answer for yet."""
        found, counted, finished = Sum(), self.counted or NOBODY, self.finished
        for uid, entry in self.pods.items():
            if uid not in counted and uid not in finished:
                found.add(entry.charge)
        return found
