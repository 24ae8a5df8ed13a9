"""Class costs as nodes report them, and what the table publishes of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from carico.aggregator.classes import Classes
from carico.testing import make_cost
from carico.types import ClassCost
from carico.wire.codec.classes import ClassName, name_of

NOW = 1000.0
RESOURCES = ("cpu", "memory")


def cost(name: str = "web", cpu: float = 0.5, memory: float = 2.0**28, **changes: Any) -> ClassCost:
    found = make_cost(f"a/{name}", cpu, memory, revision="r1", pods=2, weight=5.0, ramp=1.0)
    return dataclasses.replace(found, **changes)


NAME = name_of(cost().key)


def published(table: Classes, name: ClassName = NAME) -> ClassCost:
    found = table.published.get(name)
    assert found is not None
    return found.cost


def settle(table: Classes, now: float = NOW) -> None:
    for _ in range(200):
        table.refresh(now)
