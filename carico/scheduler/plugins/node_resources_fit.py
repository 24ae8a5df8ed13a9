"""Requests: what the pods of a node ask for must not exceed what the node offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from carico.kube.objects import Node, Pod
from carico.scheduler import requests
from carico.scheduler.changes import Action, Interest
from carico.scheduler.framework import Bits, Cycle, Reason, Reuse, Verdict
from carico.scheduler.requests import Requests
from carico.scheduler.rows import Mask, RowArray
from carico.scheduler.template import PodInfo, Template

TOO_MANY = Reason("Too many pods")
PAIRS = 31  # of bits in 64, beside the one for the number of pods


class NodeResourcesFit:
    name = "NodeResourcesFit"
    reuse = Reuse.ROW

    @property
    def interests(self) -> tuple[Interest, ...]:
        return (
            Interest("Pod", Action.DELETE, _left_a_node),
            Interest("Pod", Action.POD_SCALE_DOWN),
            Interest("Node", Action.ADD | Action.NODE_ALLOCATABLE, _could_hold),
        )

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        """One reason per resource, twice: a node that is too small as a whole is not helped by evicting pods."""
        snapshot = cycle.snapshot
        wanted = _wanted(cycle.pod.template)
        free = snapshot.free(requests.PODS)
        full = (free if rows is None else free[rows]) < 1
        bits: Bits = full.astype(wanted.width)
        for name, amount, bit in wanted.resources:
            free = snapshot.free(name)
            lacking = (free if rows is None else free[rows]) < amount
            if lacking.any():
                whole = snapshot.allocatable(name)
                hopeless = lacking & ((whole if rows is None else whole[rows]) < amount)
                _mark(bits, lacking & ~hopeless, bit)
                _mark(bits, hopeless, bit + 1)
        return Verdict(bits, wanted.reasons)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a template asks for, and which bits of a verdict stand for it."""

    resources: tuple[tuple[str, int, int], ...]  # name, amount, and the first of its two bits
    reasons: tuple[Reason, ...]
    width: Any  # the unsigned type that has a bit for each reason


def _wanted(template: Template) -> _Wanted:
    found: _Wanted | None = template.memo.get("resources")
    if found is None:
        found = template.memo["resources"] = _numbered(template.requests)
    return found


def _numbered(wanted: Requests) -> _Wanted:
    """The last pair of bits is shared by all resources for which no pair of their own is left, if there are any.

    >>> many = _numbered({"cpu": 1000} | {f"example.com/{i}": 1 for i in range(39)})
    >>> [bit for _, _, bit in many.resources][:2], {bit for _, _, bit in many.resources[30:]}, many.reasons[61].text
    ([1, 3], {61}, 'Insufficient example.com/29 or another of 10 resources')
    """
    names = sorted((name for name, amount in wanted.items() if amount > 0), key=lambda name: "/" in name)
    texts = [f"Insufficient {name}" for name in names]
    if len(names) > PAIRS:
        shared = len(names) - PAIRS + 1
        texts[PAIRS - 1 :] = [f"{texts[PAIRS - 1]} or another of {shared} resources"]
    resources = tuple((name, wanted[name], 1 + 2 * min(i, PAIRS - 1)) for i, name in enumerate(names))
    pairs = ((Reason(text), Reason(text, unresolvable=True)) for text in texts)
    reasons = (TOO_MANY, *(reason for pair in pairs for reason in pair))
    widths = (np.uint8, np.uint16, np.uint32, np.uint64)
    return _Wanted(resources, reasons, next(kind for kind in widths if np.iinfo(kind).bits >= len(reasons)))


def _mark(bits: Bits, where: Mask, bit: int) -> None:
    bits |= where.astype(bits.dtype) << bits.dtype.type(bit)


def _left_a_node(pod: PodInfo, old: Pod, new: object) -> bool:
    return bool(old.spec.node_name or old.status.nominated_node_name)


def _could_hold(pod: PodInfo, old: Node | None, new: Node) -> bool:
    """Whether the node, emptied, could hold the pod, and offers more than before of what the pod wants."""
    wanted = {**pod.template.requests, requests.PODS: 1}
    has = requests.allocatable(new.status.allocatable)
    had = requests.allocatable(old.status.allocatable) if old is not None else {}
    if any(has.get(name, 0) < amount for name, amount in wanted.items()):
        return False
    return any(has.get(name, 0) > had.get(name, 0) for name in wanted)
