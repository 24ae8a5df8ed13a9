"""NodeResourcesFit plugin: the requests of a node's pods must not exceed its allocatable resources."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from carico.kube.objects import Node, Pod
from carico.scheduler.cache import requests
from carico.scheduler.cache.requests import Requests
from carico.scheduler.cache.rows import Mask, RowArray
from carico.scheduler.cache.snapshot import Snapshot
from carico.scheduler.cache.template import PodInfo, PodTemplate
from carico.scheduler.framework.cluster_events import Action, EventInterest, only_itself
from carico.scheduler.framework.contract import Bits, Cycle, Reason, Reuse, Supply, Verdict
from carico.scheduler.framework.needs import REQUESTS, Need, Needs

TOO_MANY = Reason("Too many pods")
UNKNOWN = Reason("node(s) had a pod that could not be read", unresolvable=True, transient=True)
PAIRS = 31  # pairs of bits in 64, besides the two bits for the reasons above


class NodeResourcesFit(Supply):
    name = "NodeResourcesFit"
    reuse = Reuse.ROW
    supply = REQUESTS

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (
            EventInterest("Pod", Action.POD_SCALE_DOWN, _requests_less, pod_set=only_itself),
            EventInterest("Node", Action.ADD | Action.NODE_ALLOCATABLE, _could_hold),
        )

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        """Two reasons per resource: evicting pods does not help on a node whose allocatable amount is too small."""
        snapshot = cycle.snapshot
        wanted = _wanted(cycle.pod.template)
        free = snapshot.unrequested(requests.PODS)
        full = (free if rows is None else free[rows]) < 1
        bits: Bits = full.astype(wanted.width)
        if snapshot.unknown_pods:
            unknown = np.zeros(len(snapshot), dtype=np.bool_)
            unknown[snapshot.rows_with_unknown_pods()] = True
            _mark(bits, unknown if rows is None else unknown[rows], 1)
        for name, amount, bit in wanted.resources:
            free = snapshot.unrequested(name)
            lacking = (free if rows is None else free[rows]) < amount
            if lacking.any():
                whole = snapshot.allocatable(name)
                hopeless = lacking & ((whole if rows is None else whole[rows]) < amount)
                _mark(bits, lacking & ~hopeless, bit)
                _mark(bits, hopeless, bit + 1)
        return Verdict(bits, wanted.reasons)

    def needs(self, cycle: Cycle) -> Needs:
        wanted = cycle.pod.template.requests.items()
        amounts = (Need(self.supply, name, amount, amount) for name, amount in wanted if amount > 0)
        return (Need(self.supply, requests.PODS, 1, 1), *amounts)

    def available(self, resource: str, row: int) -> float:
        if row >= len(self._snapshot) or row in self._snapshot.rows_with_unknown_pods():
            return -math.inf
        return float(self._snapshot.unrequested(resource)[row])


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a template requests, and which bits of a verdict represent it."""

    resources: tuple[tuple[str, int, int], ...]  # name, amount, and the first of its two bits
    reasons: tuple[Reason, ...]
    width: Any  # the unsigned type that has a bit for each reason


def _wanted(template: PodTemplate) -> _Wanted:
    found: _Wanted | None = template.memo.get("resources")
    if found is None:
        found = template.memo["resources"] = _numbered(template.requests)
    return found


def _numbered(wanted: Requests) -> _Wanted:
    """The last pair of bits is shared by all resources that are left over when there are more than PAIRS.

    >>> many = _numbered({"cpu": 1000} | {f"example.com/{i}": 1 for i in range(39)})
    >>> [bit for _, _, bit in many.resources][:2], {bit for _, _, bit in many.resources[30:]}, many.reasons[62].text
    ([2, 4], {62}, 'Insufficient example.com/29 or another of 10 resources')
    """
    names = tuple(sorted((name for name, amount in wanted.items() if amount > 0), key=lambda name: "/" in name))
    resources = tuple((name, wanted[name], 2 + 2 * min(i, PAIRS - 1)) for i, name in enumerate(names))
    return _Wanted(resources, *_reasons(names))


@lru_cache(maxsize=1024)
def _reasons(names: tuple[str, ...]) -> tuple[tuple[Reason, ...], Any]:
    """The reasons, and the unsigned type that has a bit for each: the same for most templates."""
    texts = [f"Insufficient {name}" for name in names]
    if len(names) > PAIRS:
        shared = len(names) - PAIRS + 1
        texts[PAIRS - 1 :] = [f"{texts[PAIRS - 1]} or another of {shared} resources"]
    pairs = ((Reason(text), Reason(text, unresolvable=True)) for text in texts)
    reasons = (TOO_MANY, UNKNOWN, *(reason for pair in pairs for reason in pair))
    widths = (np.uint8, np.uint16, np.uint32, np.uint64)
    return reasons, next(kind for kind in widths if np.iinfo(kind).bits >= len(reasons))


def _mark(bits: Bits, where: Mask, bit: int) -> None:
    bits |= where.astype(bits.dtype) << bits.dtype.type(bit)


def _requests_less(pod: PodInfo, old: Pod, new: Pod) -> bool:
    """Whether the waiting pod itself was resized. What running pods free is seen on their row."""
    return new.uid == pod.uid


def _could_hold(pod: PodInfo, old: Node | None, new: Node) -> bool:
    """Whether the node, if empty, could hold the pod, and offers more than before of what the pod wants."""
    wanted = {**pod.template.requests, requests.PODS: 1}
    has = requests.allocatable(new.status.allocatable)
    had = requests.allocatable(old.status.allocatable) if old is not None else {}
    if any(has.get(name, 0) < amount for name, amount in wanted.items()):
        return False
    return any(has.get(name, 0) > had.get(name, 0) for name in wanted)
