"""Requests: what the pods of a node ask for must not exceed what the node offers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from carico.kube.objects import Node, Pod
from carico.scheduler import requests
from carico.scheduler.changes import Action, Interest
from carico.scheduler.framework import Bits, Cycle, Reason, Reuse, Verdict
from carico.scheduler.rows import Mask, RowArray
from carico.scheduler.snapshot import Snapshot
from carico.scheduler.supply import Need, Needs
from carico.scheduler.template import PodInfo

TOO_MANY = Reason("Too many pods")
UNKNOWN = Reason("node(s) had a pod that could not be read", unresolvable=True)


class NodeResourcesFit:
    name = "NodeResourcesFit"
    reuse = Reuse.ROW
    supply = "requests"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def interests(self) -> tuple[Interest, ...]:
        return (
            Interest("Pod", Action.POD_SCALE_DOWN, _asks_for_less),
            Interest("Node", Action.ADD | Action.NODE_ALLOCATABLE, _could_hold),
        )

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        """One reason per resource, twice: a node that is too small as a whole is not helped by evicting pods."""
        snapshot = cycle.snapshot
        wanted = {name: amount for name, amount in cycle.pod.template.requests.items() if amount > 0}
        free = snapshot.free(requests.PODS)
        full = (free if rows is None else free[rows]) < 1
        bits: Bits = full.astype(_wide_enough(2 + 2 * len(wanted)))
        reasons = [TOO_MANY, UNKNOWN]
        if snapshot.unknown_pods:
            unknown = np.zeros(len(snapshot), dtype=np.bool_)
            unknown[snapshot.rows_with_unknown_pods()] = True
            _mark(bits, unknown if rows is None else unknown[rows], 1)
        for name, amount in wanted.items():
            free = snapshot.free(name)
            lacking = (free if rows is None else free[rows]) < amount
            if lacking.any():
                whole = snapshot.allocatable(name)
                hopeless = lacking & ((whole if rows is None else whole[rows]) < amount)
                _mark(bits, lacking & ~hopeless, len(reasons))
                _mark(bits, hopeless, len(reasons) + 1)
            reasons += [Reason(f"Insufficient {name}"), Reason(f"Insufficient {name}", unresolvable=True)]
        return Verdict(bits, tuple(reasons))

    def needs(self, cycle: Cycle) -> Needs:
        wanted = cycle.pod.template.requests.items()
        amounts = (Need(self.supply, name, amount, amount) for name, amount in wanted if amount > 0)
        return (Need(self.supply, requests.PODS, 1, 1), *amounts)

    def available(self, resource: str, row: int) -> float:
        if row >= len(self._snapshot) or row in self._snapshot.rows_with_unknown_pods():
            return -math.inf
        return float(self._snapshot.free(resource)[row])


def _wide_enough(count: int) -> Any:
    """The unsigned type with a bit for every reason; API limits keep pods far below 31 resources."""
    return next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if np.iinfo(kind).bits >= min(count, 64))


def _mark(bits: Bits, where: Mask, bit: int) -> None:
    bits |= where.astype(bits.dtype) << bits.dtype.type(bit)


def _asks_for_less(pod: PodInfo, old: Pod, new: Pod) -> bool:
    """The waiting pod itself was resized. What running pods give back is seen on their row."""
    return new.uid == pod.uid


def _could_hold(pod: PodInfo, old: Node | None, new: Node) -> bool:
    """Whether the node, emptied, could hold the pod, and offers more than before of what the pod wants."""
    wanted = {**pod.template.requests, requests.PODS: 1}
    has = requests.allocatable(new.status.allocatable)
    had = requests.allocatable(old.status.allocatable) if old is not None else {}
    if any(has.get(name, 0) < amount for name, amount in wanted.items()):
        return False
    return any(has.get(name, 0) > had.get(name, 0) for name in wanted)
