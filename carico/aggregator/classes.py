"""The cluster's table of class costs: from the rows of this replica's nodes and the aggregates of the others'.

Messages only fill rows and mark classes; `refresh` merges a bounded number of marked classes each time, off the path of
any call: first those that are new, then those that may have moved by a share that is to be sent. Where less than that
can have changed, a class is merged later, in rotation: what nodes report of 2,000 classes changes thousands of
times a second, and almost none of it changes what a class costs.

A class that no live node reports any more is remembered for a week: a nightly job on nodes that come and go is not
unknown each night. There are at most CLASSES of them; those that were not reported for longest are evicted first.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from carico.aggregator import class_merge
from carico.aggregator.class_merge import LEAST_NODES, ClassReports, Merged
from carico.aggregator.class_rows import (
    FIGURES,
    PODS,
    RAMP,
    RESOURCES,
    WEIGHT,
    ClassRows,
    ClassShift,
    R,
    positions,
)
from carico.aggregator.journal import VersionedJournal
from carico.types import ClassCost, ClassKey, Matrix
from carico.wire.codec import classes as codec
from carico.wire.codec.classes import ClassName, name_of

CLASSES = 20_000
REMEMBERED_FOR = 7 * 86_400.0  # s
PER_REFRESH = 256  # classes that are merged at once: some milliseconds
IN_BACKGROUND = 64  # of these, those that can hardly have moved
WIDTHS = (4, 16, 64)  # nodes per class; classes of similar width are merged together
FADING_STEPS = 4  # times that a node that fades changes its classes
MOVED = 0.05  # share by which a value must move to be sent
FIELDS = Merged._fields
MEMORY = RESOURCES.index("memory")
MOVED_COUNT = 0.25  # the same for counts of pods and nodes
FEW = 10  # nodes: below it every change of their number is sent


class Published(NamedTuple):
    cost: ClassCost
    chunk: bytes  # the same, ready to be sent


class RememberedClass(NamedTuple):
    cost: ClassCost
    at: float  # s, monotonic: when the last node that reported it went


class Classes:
    """`now` is monotonic time in seconds."""

    def __init__(self, first_version: int) -> None:
        self._rows = ClassRows()
        self._reported: OrderedDict[ClassName, ClassKey] = OrderedDict()  # the least recently reported first
        self._peers: dict[str, dict[ClassName, ClassCost]] = {}
        self._remembered: OrderedDict[ClassName, RememberedClass] = OrderedDict()
        self._new: dict[ClassName, None] = {}  # no aggregate yet
        self._to_merge: dict[ClassName, None] = {}  # rows changed so much that it may have moved
        self._drift: dict[ClassName, float] = {}  # share by which the rows have changed since the last merge: small
        self._to_combine: dict[ClassName, None] = {}  # the aggregate of some replica changed
        self.own: VersionedJournal[ClassName, ClassCost] = VersionedJournal()
        self.published: VersionedJournal[ClassName, Published] = VersionedJournal(first_version)

    @property
    def rows(self) -> int:
        return len(self._rows)

    # Messages

    def receive(self, node: str, costs: Sequence[ClassCost], resources: tuple[str, ...]) -> None:
        """A node's report of its own pods."""
        self._mark(self._rows.fade(node, 1.0))
        for cost in costs:
            self._touch(cost.key)
            self._mark(self._rows.put(node, cost, resources))
            if self._is_higher(cost, resources):
                self._mark((ClassShift(name_of(cost.key), math.inf),))

    def receive_peer(self, peer: str, costs: Sequence[ClassCost], resources: tuple[str, ...], now: float) -> None:
        """What another replica has of its own nodes; weight 0: it has none of a class any more."""
        known = self._peers.setdefault(peer, {})
        for cost in costs:
            name = name_of(cost.key)
            if cost.weight > 0:
                self._touch(cost.key)
                known[name] = _arranged(cost, resources, RESOURCES)
            elif name in known:
                self._remember(known.pop(name), now)
            self._to_combine[name] = None

    def fade(self, node: str, left: float) -> None:
        self._mark(self._rows.fade(node, math.ceil(left * FADING_STEPS) / FADING_STEPS))

    def forget(self, node: str) -> None:
        self._mark(self._rows.forget(node))

    def forget_peer(self, peer: str, now: float) -> None:
        for name, cost in self._peers.pop(peer, {}).items():
            self._remember(cost, now)
            self._to_combine[name] = None

    def _is_higher(self, cost: ClassCost, resources: tuple[str, ...]) -> bool:
        """Whether a node measured more memory than the known `high` of the class: one node can raise that alone."""
        known, at = self.own.get(name_of(cost.key)), positions(resources)[MEMORY]
        if known is None or at is None or cost.weight <= 0:
            return False
        return cost.high[at] > (1 + MOVED) * known.high[MEMORY]

    def _mark(self, shifts: Iterable[ClassShift]) -> None:
        for name, share in shifts:
            if name in self._to_merge or name in self._new:
                continue
            if self.own.get(name) is None:
                self._new[name] = None
                continue
            drift = self._drift.get(name, 0.0) + share
            if drift < MOVED:
                self._drift[name] = drift
            else:
                self._to_merge[name] = None
                self._drift.pop(name, None)

    def _touch(self, key: ClassKey) -> None:
        name = name_of(key)
        self._reported[name] = key
        self._reported.move_to_end(name)
        while len(self._reported) > CLASSES:
            self._evict(next(iter(self._remembered), None) or next(iter(self._reported)))

    def _evict(self, name: ClassName) -> None:
        del self._reported[name]
        self._remembered.pop(name, None)
        self._rows.forget_class(name)
        for known in self._peers.values():
            known.pop(name, None)
        for marked in (self._new, self._to_merge, self._drift, self._to_combine):
            marked.pop(name, None)
        for journal in (self.own, self.published):
            if journal.get(name) is not None:
                journal.put(name, None)

    def _remember(self, cost: ClassCost, now: float) -> None:
        name = name_of(cost.key)
        if name in self._reported:
            self._remembered[name] = RememberedClass(replace(cost, pods=0, nodes=0), now)
            self._remembered.move_to_end(name)

    # Time

    def refresh(self, now: float) -> bool:
        """Merges what has changed, a bounded number of classes at once; returns whether something is to be sent."""
        before = self.published.version
        names = _take_first(self._new, PER_REFRESH)
        names += _take_first(self._to_merge, PER_REFRESH - len(names))
        names += _take_first(self._drift, min(PER_REFRESH - len(names), IN_BACKGROUND))
        alive = [name for name in names if self._rows.nodes(name)]
        for name in set(names) - set(alive):
            self._gone(name, now)
        for cost in self._merged(alive):
            name = name_of(cost.key)
            self._remembered.pop(name, None)
            old = self.own.get(name)
            if old is None or _moved(old, cost):
                self.own.put(name, cost)
                self._to_combine[name] = None
        self._combine()
        self._drop_old(now)
        return self.published.version != before

    def _gone(self, name: ClassName, now: float) -> None:
        """No node of this replica reports it any more."""
        old = self.own.get(name)
        if old is not None:
            self.own.put(name, None)
            self._remember(old, now)
            self._to_combine[name] = None

    def _drop_old(self, now: float) -> None:
        while self._remembered:
            name, oldest = next(iter(self._remembered.items()))
            if now - oldest.at <= REMEMBERED_FOR:
                return
            self._evict(name)

    def _merged(self, names: list[ClassName]) -> list[ClassCost]:
        found: list[ClassCost] = []
        narrowest = 0
        for width in WIDTHS:
            alike = [name for name in names if narrowest < self._rows.nodes(name) <= width]
            if alike:
                keys = [self._reported[name] for name in alike]
                found += _of_block(keys, *self._rows.block(alike, width))
            narrowest = width
        return found

    def _combine(self) -> None:
        for name in _take_first(self._to_combine, 2 * PER_REFRESH):
            parts = [
                cost for cost in (self.own.get(name), *[known.get(name) for known in self._peers.values()]) if cost
            ]
            remembered = self._remembered.get(name)
            if parts:
                if remembered is not None:
                    del self._remembered[name]
                self._publish(name, parts[0] if len(parts) == 1 else combined(parts))
            elif remembered is not None:
                self._publish(name, remembered.cost)
            elif self.published.get(name) is not None:
                self.published.put(name, None)
                self._reported.pop(name, None)

    def _publish(self, name: ClassName, cost: ClassCost) -> None:
        old = self.published.get(name)
        if old is None or _moved(old.cost, cost):
            self.published.put(name, Published(cost, codec.chunk(cost)))


def _take_first(marked: dict[ClassName, Any], most: int) -> list[ClassName]:
    """Removes the first ones and returns them."""
    names = list(itertools.islice(marked, most))
    for name in names:
        del marked[name]
    return names


def _of_block(keys: list[ClassKey], values: Matrix, fading: Matrix) -> list[ClassCost]:
    """Classes × nodes × columns to one cost for each class."""
    weight = values[:, :, WEIGHT]
    present = (fading > 0) & (weight > 0)
    nodes = present.sum(axis=1)
    trust = class_merge.trust_of(np.where(present, weight, 0.0), fading)
    may_overrule = (nodes >= LEAST_NODES)[:, None] & present
    resources = []
    for i, resource in enumerate(RESOURCES):
        figures = [values[:, :, FIGURES + figure * R + i] for figure in range(4)]
        known = ~np.isnan(figures[0])
        reports = ClassReports(*[np.where(known, figure, 0.0) for figure in figures])
        resources.append(class_merge.merge(reports, trust * known, may_overrule, is_peak=resource == "memory"))
    return _costs(
        keys,
        np.where(present, values[:, :, PODS], 0.0).sum(axis=1).tolist(),
        class_merge.total_weight(np.where(present, weight, 0.0), fading).tolist(),
        class_merge.quantile(values[:, :, RAMP], trust, 0.5).tolist(),
        nodes.tolist(),
        resources,
    )


def _costs(
    keys: Sequence[ClassKey],
    pods: list[float],
    weight: list[float],
    ramp: list[float],
    nodes: list[int],
    resources: list[Merged],
) -> list[ClassCost]:
    columns = [list(zip(*[getattr(merged, field).tolist() for merged in resources], strict=True)) for field in FIELDS]
    mean, variance, high, use_high = columns
    return [
        ClassCost(
            key=key,
            pods=round(pods[i]),
            weight=weight[i],
            mean=mean[i],
            variance=variance[i],
            high=high[i],
            use_high=use_high[i],
            ramp=ramp[i],
            nodes=nodes[i],
        )
        for i, key in enumerate(keys)
    ]


def combined(parts: Sequence[ClassCost]) -> ClassCost:
    """One class from the aggregates of several replicas, each weighted by its nodes.

    An aggregate of at least three nodes is robust already; one of fewer may be overruled by the others.
    """
    nodes = np.array([[float(max(part.nodes, 1)) for part in parts]])
    overruled = (nodes < LEAST_NODES) & (nodes.sum() >= LEAST_NODES)
    resources = []
    for i, resource in enumerate(RESOURCES):
        figures = [
            np.array([[getattr(part, field)[i] for part in parts]])
            for field in ("mean", "variance", "high", "use_high")
        ]
        known = (figures[0] > 0) | (figures[2] > 0)
        resources.append(
            class_merge.merge(ClassReports(*figures), nodes * known, overruled, is_peak=resource == "memory")
        )
    ramp = class_merge.quantile(np.array([[part.ramp for part in parts]]), nodes, 0.5)
    return _costs(
        [parts[0].key],
        [float(sum(part.pods for part in parts))],
        [sum(part.weight for part in parts)],
        ramp.tolist(),
        [sum(part.nodes for part in parts)],
        resources,
    )[0]


def figures_moved(old: ClassCost, new: ClassCost, share: float) -> bool:
    """Whether a pod's expected need moved by more than that share."""
    if any(abs(a - b) > share * a for a, b in zip(old.mean, new.mean, strict=True)):
        return True
    return any(abs(a - b) > share * a for a, b in zip(old.high, new.high, strict=True))


def _moved(old: ClassCost, new: ClassCost) -> bool:
    if abs(new.nodes - old.nodes) > (MOVED_COUNT * old.nodes if old.nodes >= FEW else 0):
        return True
    if (old.pods > 0) != (new.pods > 0) or abs(new.pods - old.pods) > MOVED_COUNT * old.pods:
        return True
    if not 0.5 < new.weight / max(old.weight, 1e-9) < 2.0:
        return True
    if figures_moved(old, new, MOVED):
        return True
    spreads = zip(old.mean, old.variance, new.variance, strict=True)
    return any(abs(math.sqrt(b) - math.sqrt(a)) > MOVED * mean for mean, a, b in spreads)


def _arranged(cost: ClassCost, there: tuple[str, ...], here: tuple[str, ...]) -> ClassCost:
    """The same with its values in another order of resources; 0 for one that it has no value of."""
    if there == here:
        return cost
    at = {resource: i for i, resource in enumerate(there)}

    def arranged(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple([values[at[resource]] if resource in at else 0.0 for resource in here])

    return replace(
        cost,
        mean=arranged(cost.mean),
        variance=arranged(cost.variance),
        high=arranged(cost.high),
        use_high=arranged(cost.use_high),
    )


def for_resources(cost: ClassCost, resources: tuple[str, ...]) -> ClassCost:
    """As a message with these resources needs it."""
    return _arranged(cost, RESOURCES, resources)


def nothing_of(name: ClassName) -> ClassCost:
    """What a replica sends of a class that none of its nodes reports any more."""
    none = (0.0,) * R
    return ClassCost(ClassKey("", name.family, name.revision), 0, 0.0, none, none, none, none, 0.0, 0)
