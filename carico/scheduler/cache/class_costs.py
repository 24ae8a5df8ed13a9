"""The cost of a pod of each class, from the first source that has measured it:

    the aggregator ─► reports of nodes ─► other revisions of the family ─► a guess

The aggregator knows all nodes, so it takes precedence. Where it has no figures, or has sent none for `max_age`, the
reports of the nodes are merged here. A class that was never measured is charged a first guess, raised to the pod's
requests, and is marked as a probe: few of its pods go to one node until the first was measured (probes.py). Requests
alone never decide that a pod fits: they are often a fraction of the real use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import gt
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from carico.estimate.class_cost import cost_of
from carico.pod_class import DEFAULT_IGNORED, class_of, is_of_images
from carico.scheduler.cache.charge import NUMBER, Charge, Claim, in_order, vector
from carico.scheduler.cache.class_merge import merged
from carico.scheduler.cache.requests import CPU, MEMORY
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cache.units import ANNOTATION, units_of
from carico.types import ClassCost, ClassKey, NodeReport, Vector

CLASSES = 5000  # classes whose reports are kept; the least recently reported is dropped first
NODES = 16  # nodes whose figures are kept, per class
MOVED = 0.02  # relative change of a cost at which pods are charged again
GUESSES = 1000  # charges of unmeasured classes that are kept
CHARGES = 20_000  # charges of measured families that are kept: every roll-out has a revision of its own
LOOK_EVERY = 1.0  # s between two merges of node reports, for classes that are known already


class ClassFigures(NamedTuple):
    """The measured cost of a class."""

    cost: ClassCost
    resources: tuple[str, ...]
    at: float  # s, monotonic
    source: str  # "aggregator" or "nodes"


class ClassCostTable:
    def __init__(
        self,
        first_cores: float = 1.0,
        first_memory: float = 2.0**30,
        max_age: float = 86400.0,
        ignored: tuple[str, ...] = DEFAULT_IGNORED,
    ) -> None:
        self._first = in_order(("cpu", "memory"), (first_cores, first_memory))
        self._guess = self._first
        self._largest = [0.0] * len(self._first)  # size of the largest node that reported
        self._max_age, self._ignored = max_age, ignored
        self._aggregated: dict[ClassKey, ClassFigures] = {}
        self._aggregated_at = -np.inf  # s, monotonic: the aggregator's last message
        self._reported: OrderedDict[ClassKey, dict[str, ClassFigures]] = OrderedDict()  # by node
        # The figures in force, by family and revision, and the charge of a pod that follows from them.
        self._known: dict[str, dict[str, tuple[ClassFigures, Vector]]] = {}
        self._guesses: dict[tuple[ClassKey, int, int], Charge] = {}  # of unmeasured classes
        self._charges: dict[ClassKey, Charge] = {}  # of measured classes, until their figures change
        self._moved: set[ClassKey] = set()  # reported since the last tick
        self._looked = -np.inf

    # --- lookups ---

    def claim(self, info: PodInfo) -> Claim:
        """The properties of the pod that determine how much it takes."""
        if info.claim is None:
            units = units_of(info.pod) if ANNOTATION in info.pod.metadata.annotations else None
            info.claim = Claim(self._class_of(info), units, info.requests)
        return info.claim

    def charge(self, claim: Claim) -> Charge:
        if claim.units is not None:
            return Charge(claim.units)
        charge = self._charges.get(claim.key)
        if charge is None:
            family = self._known.get(claim.key.family)
            if family is None:
                return self._guessed(claim)
            itself = family.get(claim.key.revision)
            price = itself[1] if itself is not None else _price(_of_family(claim.key, family.values()))
            if len(self._charges) >= CHARGES:
                self._charges.clear()
            charge = self._charges[claim.key] = Charge(1.0, tuple(price.tolist()))
        return charge

    def figures(self, key: ClassKey) -> ClassFigures | None:
        """Of the class itself, else of the other revisions of its family; None: never measured."""
        family = self._known.get(key.family)
        if family is None:
            return None
        itself = family.get(key.revision)
        return itself[0] if itself is not None else _of_family(key, family.values())

    def __iter__(self) -> Iterator[tuple[ClassKey, ClassFigures]]:
        """The measured classes."""
        return ((figures.cost.key, figures) for family in self._known.values() for figures, _ in family.values())

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    # --- updates; each returns the families whose pods have a different cost now ---

    def aggregated(self, costs: Mapping[ClassKey, ClassCost], resources: tuple[str, ...], now: float) -> set[str]:
        """The aggregator's complete table."""
        before, self._aggregated_at = self._aggregated, now
        self._aggregated = {}
        changed = before.keys() - costs.keys()
        for key, cost in costs.items():
            old = before.get(key)
            if old is None or old.cost != cost or old.resources != resources:
                changed.add(key)
                old = ClassFigures(replace(cost, key=key), resources, now, "aggregator")
            self._aggregated[key] = old
            self._reported.pop(key, None)
        return self._settle(changed)

    def apply_report(self, report: NodeReport, now: float) -> set[str]:
        """A node's figures; applied at once where the class was unknown, else at the next tick."""
        fresh: set[ClassKey] = set()
        if report.full:
            self._note_size(report)
        for cost in report.class_costs:
            if cost.key in self._aggregated or cost.weight <= 0:
                continue
            by_node = self._reported.setdefault(cost.key, {})
            self._reported.move_to_end(cost.key)
            by_node.pop(report.node, None)
            by_node[report.node] = ClassFigures(_bounded(cost, report.full), report.dimensions, now, "nodes")
            oldest = next(iter(by_node))  # nodes are in the order of their last report
            if len(by_node) > NODES or now - by_node[oldest].at > self._max_age:
                del by_node[oldest]
            known = cost.key.revision in self._known.get(cost.key.family, {})
            (self._moved if known else fresh).add(cost.key)
        while len(self._reported) > CLASSES:
            self._moved.add(self._reported.popitem(last=False)[0])
        return self._settle(fresh)

    def tick(self, now: float) -> set[str]:
        """Merges the reports since the last tick, and drops figures older than `max_age`."""
        if now - self._looked < LOOK_EVERY:
            return set()
        self._looked = now
        moved, self._moved = self._moved, set()
        if self._aggregated and now - self._aggregated_at > self._max_age:
            moved |= self._aggregated.keys()
            self._aggregated = {}
        for key, by_node in list(self._reported.items()):  # the least recently reported class first
            if all(now - figures.at <= self._max_age for figures in by_node.values()):
                break
            for node in [node for node, figures in by_node.items() if now - figures.at > self._max_age]:
                del by_node[node]
            if not by_node:
                del self._reported[key]
            moved.add(key)
        return self._settle(moved)

    # --- inside ---

    def _guessed(self, claim: Claim) -> Charge:
        """The charge of an unmeasured class; cached, because one scheduling cycle needs it several times."""
        requested = claim.requests.get(CPU, 0), claim.requests.get(MEMORY, 0)
        charge = self._guesses.get((claim.key, *requested))
        if charge is None:
            if len(self._guesses) >= GUESSES:
                self._guesses.clear()
            cost = self._guess.copy()
            for number, amount in ((NUMBER["cpu"], requested[0] / 1000), (NUMBER["memory"], float(requested[1]))):
                cost[number] = max(cost[number], amount)
            charge = self._guesses[claim.key, *requested] = Charge(1.0, tuple(cost), probe=claim.key)
        return charge

    def _note_size(self, report: NodeReport) -> None:
        full = in_order(report.dimensions, report.full)
        if any(map(gt, full, self._largest)):
            self._largest = list(map(max, full, self._largest))
            # At most half of the largest node: a pod that fits no node is never measured.
            self._guess = [
                min(first, size / 2) if size else first for first, size in zip(self._first, self._largest, strict=True)
            ]
            self._guesses.clear()

    def _class_of(self, info: PodInfo) -> ClassKey:
        """Computed once for pods with the same labels, and once per template where the images determine it."""
        meta, spec, identity = info.pod.metadata, info.template.spec, info.identity
        known = identity.class_key or (identity.classes.get(info.template) if identity.classes is not None else None)
        if known is not None and not meta.annotations:
            return known
        images = [container.image for container in (*spec.containers, *spec.init_containers)]
        found = class_of(meta.namespace, meta.name, meta.labels, meta.annotations, images, self._ignored)
        if meta.annotations:
            return found
        if not is_of_images(found):
            identity.class_key = found
        else:
            identity.classes = WeakKeyDictionary() if identity.classes is None else identity.classes
            identity.classes[info.template] = found
        return found

    def _settle(self, keys: set[ClassKey]) -> set[str]:
        families: set[str] = set()
        for key in keys:
            figures = self._aggregated.get(key) or _of_nodes(key, self._reported.get(key))
            known = self._known.setdefault(key.family, {})
            before = known.pop(key.revision, None)
            if figures is not None:
                price = _price(figures)
                if before is not None and _is_near(price, before[1]):
                    price = before[1]
                else:
                    families.add(key.family)
                known[key.revision] = (figures, price)
            elif before is not None:
                families.add(key.family)
            if not known:
                del self._known[key.family]
        if families:
            self._charges = {key: charge for key, charge in self._charges.items() if key.family not in families}
        return families


def _price(figures: ClassFigures) -> Vector:
    return vector(figures.resources, cost_of(figures.cost, figures.resources, ()))


def _is_near(new: Vector, old: Vector) -> bool:
    return bool((np.abs(new - old) <= MOVED * old).all())


def _of_nodes(key: ClassKey, by_node: Mapping[str, ClassFigures] | None) -> ClassFigures | None:
    if not by_node:
        return None
    newest = max(by_node.values(), key=lambda figures: figures.at)
    alike = [figures.cost for figures in by_node.values() if figures.resources == newest.resources]
    return newest._replace(cost=merged(key, alike))


def _of_family(key: ClassKey, revisions: Iterable[tuple[ClassFigures, Vector]]) -> ClassFigures:
    """The cost of other revisions; a new revision may cost something else, so the weight is only 1."""
    found = [figures for figures, _ in revisions]
    newest = max(found, key=lambda figures: figures.at)
    alike = [figures.cost for figures in found if figures.resources == newest.resources]
    return newest._replace(cost=replace(merged(key, alike), weight=1.0))


def _bounded(cost: ClassCost, full: tuple[float, ...]) -> ClassCost:
    """Limits the cost to the size of the node that ran the pod."""
    if len(full) != len(cost.mean):
        return cost
    mean, high, use = (tuple(map(min, values, full)) for values in (cost.mean, cost.high, cost.use_high))
    return replace(cost, mean=mean, high=high, use_high=use)
