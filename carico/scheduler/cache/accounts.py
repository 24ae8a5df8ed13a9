"""What the ledger stores per node and per pod on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from carico.scheduler.cache.charge import Charge, Claim, Sum
from carico.scheduler.cache.freshness import NEVER
from carico.types import ClassKey, NodeReport

NO_PODS: frozenset[str] = frozenset()


@dataclass(slots=True)
class PodEntry:
    """A pod that is charged to a node."""

    uid: str
    node: str
    claim: Claim
    charge: Charge
    since: float  # s, monotonic: when it was first reserved or seen
    pending: bool = True  # not running yet, according to the API server
    overdue: bool = False  # reserved or seen for longer than a start takes
    probe: ClassKey | None = None  # it counts as an unmeasured pod of this class
    promised: bool = False
    bound: bool = False
    until: float = math.inf  # s, monotonic: when a hold ends; a pod has no end

    @property
    def starting(self) -> bool:
        return self.pending and not self.overdue


class SavedAccount(NamedTuple):
    """An account and its columns at one moment of a trial."""

    account: Account
    touched: bool
    starts: int
    pods: dict[str, PodEntry]
    reserved: Sum
    pending: Sum
    columns: dict[str, Any]


class Hold(NamedTuple):
    """Room that is reserved for something that is not a pod yet."""

    name: str
    node: str
    claim: Claim
    until: float  # s, monotonic


@dataclass(slots=True)
class Account:
    """A node's row and its last report."""

    row: int
    counted: frozenset[str] | None = None  # None before the first report
    finished: frozenset[str] = NO_PODS
    pods: dict[str, PodEntry] = field(default_factory=dict)
    reserved: Sum = field(default_factory=Sum)
    pending: Sum = field(default_factory=Sum)  # what the older rule would reserve
    report: NodeReport | None = None
    sampled: float = NEVER  # s on this process's monotonic clock: when the newest sample was taken
    connected: bool = False
    in_cluster: bool = False  # the API server has a Node of this name

    def answered(self) -> frozenset[str]:
        """UIDs of pods that the node's own figures cover: counted or finished."""
        return (self.counted or NO_PODS) | self.finished

    def sum_open(self) -> Sum:
        """The charges of the pods that the node's figures do not cover yet."""
        found, counted, finished = Sum(), self.counted or NO_PODS, self.finished
        for uid, entry in self.pods.items():
            if uid not in counted and uid not in finished:
                found.add(entry.charge)
        return found
