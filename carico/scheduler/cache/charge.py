"""What a pod takes of its node.

A `Claim` holds the properties of a pod that determine that: its class, its requests, and the units of its annotation. A
`Charge` is computed from it by the class table (class_costs.py) at one moment. Nodes that report room are charged
amounts per resource; nodes of older agents, which report Pod-Capacity alone, are charged units.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from carico.scheduler.cache.requests import Requests
from carico.settings import DIMENSIONS
from carico.types import ClassKey, Vector

RESOURCES = DIMENSIONS  # amounts per resource are in this order, absolute: cores of demand, bytes
NUMBER = {name: number for number, name in enumerate(RESOURCES)}


class Claim(NamedTuple):
    """The properties of a pod that determine how much it takes."""

    key: ClassKey
    units: float | None = None  # by annotation: multiples of the mean recent pod of the node. None: by its class
    requests: Requests = {}  # noqa: RUF012  never changed


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """What a pod takes, on any node. `cost` None: `units` times the mean recent pod of the node."""

    units: float = 1.0  # pods, on a node that reports no room
    cost: tuple[float, ...] | None = None  # absolute, one per RESOURCES; zero: nothing, or nothing is known
    probe: ClassKey | None = None  # no pod of this class has been measured yet
    numbers: tuple[int, ...] = field(init=False)  # indices of the resources with a nonzero cost

    def __post_init__(self) -> None:
        found = () if self.cost is None else tuple([i for i, amount in enumerate(self.cost) if amount])
        object.__setattr__(self, "numbers", found)


@dataclass(slots=True)
class Sum:
    """The sum of several charges. Plain floats: numpy is slower for a handful of resources."""

    units: float = 0.0  # of all of them
    by_units: float = 0.0  # of those that have no cost
    cost: list[float] = field(default_factory=lambda: [0.0] * len(RESOURCES))

    def add(self, charge: Charge, times: float = 1.0) -> None:
        self.units += times * charge.units
        if charge.cost is None:
            self.by_units += times * charge.units
        else:
            for number in charge.numbers:
                self.cost[number] += times * charge.cost[number]

    def amounts(self, mean: list[float]) -> list[float]:
        """On a node whose mean recent pod costs `mean`; read-only."""
        if not self.by_units:
            return self.cost
        return [cost + self.by_units * one for cost, one in zip(self.cost, mean, strict=True)]


def in_order(names: Iterable[str], values: Iterable[float], missing: float = 0.0) -> list[float]:
    """Amounts in the order of RESOURCES; unknown names are left out. A list: numpy is slower for a handful of them.

    >>> in_order(("memory", "cpu", "invented"), (5.0, 2.0, 9.0))[:3]
    [2.0, 5.0, 0.0]
    """
    found = [missing] * len(RESOURCES)
    for name, value in zip(names, values, strict=False):
        number = NUMBER.get(name)
        if number is not None:
            found[number] = value
    return found


def vector(names: Iterable[str], values: Iterable[float], missing: float = 0.0) -> Vector:
    """The same as an array."""
    return np.array(in_order(names, values, missing), dtype=np.float64)
