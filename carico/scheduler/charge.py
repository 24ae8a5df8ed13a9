"""What a pod takes of the node that it is on.

A `Claim` is what of a pod decides that: its class, its requests, and the units that somebody wrote on it. A `Charge` is
the answer of the class table (class_costs.py) at one moment. Nodes that report room are charged amounts per resource;
nodes of older agents, which report Pod-Capacity alone, are charged units.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from carico.scheduler.requests import Requests
from carico.settings import DIMENSIONS
from carico.types import ClassKey, Vector

RESOURCES = DIMENSIONS  # amounts per resource are in this order, absolute: cores of demand, bytes
NUMBER = {name: number for number, name in enumerate(RESOURCES)}


class Claim(NamedTuple):
    """What of a pod decides how much it takes."""

    key: ClassKey
    units: float | None = None  # by annotation: times what the mean recent pod of the node costs. None: by its class
    requests: Requests = {}  # noqa: RUF012  never changed


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """What a pod takes, wherever it goes. `cost` None: as many mean recent pods of the node as its units say."""

    units: float = 1.0  # pods, on a node that reports no room
    cost: Vector | None = None  # absolute, one per RESOURCES; zero: nothing, or nothing is known
    probe: ClassKey | None = None  # nobody has measured a pod of this class yet
    numbers: tuple[int, ...] = field(init=False)  # the resources that it takes anything of

    def __post_init__(self) -> None:
        found = () if self.cost is None else tuple(np.flatnonzero(self.cost).tolist())
        object.__setattr__(self, "numbers", found)


@dataclass(slots=True)
class Sum:
    """Several charges together."""

    units: float = 0.0  # of all of them
    by_units: float = 0.0  # of those that have no cost of their own
    cost: Vector = field(default_factory=lambda: np.zeros(len(RESOURCES)))

    def add(self, charge: Charge, times: float = 1.0) -> None:
        self.units += times * charge.units
        if charge.cost is None:
            self.by_units += times * charge.units
        else:
            self.cost += times * charge.cost

    def amounts(self, mean: Vector) -> Vector:
        """On a node whose mean recent pod costs `mean`."""
        return self.cost + self.by_units * mean


def vector(names: Iterable[str], values: Iterable[float], missing: float = 0.0) -> Vector:
    """Amounts in the order of RESOURCES; names that no agent of ours uses are left out.

    >>> vector(("memory", "cpu", "invented"), (5.0, 2.0, 9.0)).tolist()[:3]
    [2.0, 5.0, 0.0]
    """
    found = np.full(len(RESOURCES), missing)
    for name, value in zip(names, values, strict=False):
        if name in NUMBER:
            found[NUMBER[name]] = value
    return found
