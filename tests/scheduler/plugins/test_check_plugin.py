"""Every built-in plugin keeps the contract, and the checks find plugins that do not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import (
    OK,
    Cycle,
    Nomination,
    Plugin,
    Reason,
    Reuse,
    Status,
    Verdict,
)
from carico.scheduler.framework.filtering import FilterResult
from carico.scheduler.framework.needs import Need, Needs
from carico.scheduler.plugins import registry
from carico.testing import check_plugin
from carico.types import Vector


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_every_built_in_plugin_keeps_the_contract(name: str) -> None:
    check_plugin(registry.BUILT_IN[name])


class Base:
    name = "Mine"
    reuse = Reuse.NODE
    interests: tuple[EventInterest, ...] = ()


class FewPods(Base):
    """Keeps the contract: at most two pods on a node."""

    reuse = Reuse.ROW

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        asked = cycle.snapshot.all_rows() if rows is None else rows
        return Verdict.refuse(np.array([len(cycle.snapshot.on[row]) > 2 for row in asked], dtype=np.bool_), "full")

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        return np.array([100.0 / (1 + len(cycle.snapshot.on[row])) for row in rows])


def test_a_plugin_that_keeps_the_contract() -> None:
    check_plugin(lambda _: FewPods())


class WithoutReuse:
    name = "Mine"
    interests = ()

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        raise NotImplementedError


class NoExtensionPoint(Base):
    def fitler(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        raise NotImplementedError


class AwaitsInReserve(Base):
    async def reserve(self, cycle: Cycle, node: str) -> Status:
        return OK

    def unreserve(self, cycle: Cycle, node: str) -> None: ...


class SortsByNothing(Base):
    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        return (math.nan * queued_at,)  # a new NaN each time


class ByPosition(FewPods):
    """Takes positions in `rows` for rows."""

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        return Verdict(super().filter(cycle, None).bits[: None if rows is None else len(rows)], (Reason("full"),))


class SignedBits(FewPods):
    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        return Verdict(super().filter(cycle, rows).bits.astype(np.int64), (Reason("full"),))


class UnnamedBit(FewPods):
    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        return Verdict(super().filter(cycle, rows).bits << np.uint8(1), (Reason("full"),))


class ChangesTheCluster(FewPods):
    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        cycle.snapshot.unrequested("cpu")[:] -= 1
        return super().filter(cycle, rows)


class HeldTooLong(FewPods):
    reuse = Reuse.NODE


class ByLabels(FewPods):
    """A verdict that depends on the pod's labels, which two pods of one template need not share."""

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        return Verdict(super().filter(cycle, rows).bits, (Reason(str(cycle.pod.pod.metadata.labels)),))


class OneArray(Base):
    """Returns the same array every time."""

    def __init__(self) -> None:
        self._bits = np.zeros(1000, dtype=np.uint8)

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        return Verdict(self._bits[: len(cycle.snapshot) if rows is None else len(rows)], (Reason("full"),))


class CountsOtherRows(Base):
    """Counts pods of the whole cluster, once per cycle, and does not hear of hypothetical ones."""

    reuse = Reuse.NEVER

    def pre_filter(self, cycle: Cycle) -> Status:
        cycle.state[self.name] = len(cycle.snapshot.pods) % 2
        return OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        length = len(cycle.snapshot) if rows is None else len(rows)
        return Verdict.refuse(np.full(length, cycle.state[self.name] == 1), "odd number of pods")


class DoesNotUndo(CountsOtherRows):
    def add_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        cycle.state[self.name] = 1 - cycle.state[self.name]

    def remove_pod(self, cycle: Cycle, pod: PodInfo, row: int) -> None:
        cycle.state[self.name] = 1


class HasMoreThanTheFilterSees(FewPods):
    supply = "pods"

    def needs(self, cycle: Cycle) -> Needs:
        return (Need(self.supply, "pods", 1, 1),)

    def available(self, resource: str, row: int) -> float:
        return 10.0


class Scoring(Base):
    def __init__(self, value: float) -> None:
        self._value = value

    def score(self, cycle: Cycle, rows: RowArray) -> Vector:
        return np.full(len(rows), self._value)


class UnreservesTwice(Base):
    def reserve(self, cycle: Cycle, node: str) -> Status:
        cycle.state[self.name] = node
        return OK

    def unreserve(self, cycle: Cycle, node: str) -> None:
        del cycle.state[self.name]


class NeverReleases(Base):
    def reserve(self, cycle: Cycle, node: str) -> Status:
        cycle.snapshot.nominate(cycle.pod, node)
        return OK

    def unreserve(self, cycle: Cycle, node: str) -> None: ...


class EvictsTheImportant(Base):
    def post_filter(self, cycle: Cycle, feasibility: FilterResult) -> tuple[Nomination]:
        row = int(np.flatnonzero(cycle.snapshot.present)[0])
        return (Nomination(cycle.snapshot.name(row), (cycle.pod,)),)


class BrokenHint(FewPods):
    interests = (EventInterest("Node", Action.ADD, lambda pod, old, new: old.name),)


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (WithoutReuse(), "it has filter, but lacks reuse: the framework would never call it"),
        (NoExtensionPoint(), "it has no extension point; these are the methods: pre_enqueue"),
        (AwaitsInReserve(), "reserve must not be `async def`"),
        (SortsByNothing(), "neither of which goes first"),
        (ByPosition(), "filter says of row"),
        (SignedBits(), "bits of type int64"),
        (UnnamedBit(), "a bit above its 1 reasons: 10"),
        (ChangesTheCluster(), "filter changed free amounts of the cluster"),
        (HeldTooLong(), "reuse is Reuse.NODE, but the verdict of unchanged row"),
        (ByLabels(), "got other lists of reasons"),
        (OneArray(), "writing to a verdict changed the next one"),
        (CountsOtherRows(), "see PreFilterExtensions"),
        (DoesNotUndo(), "do not undo each other"),
        (HasMoreThanTheFilterSees(), "by `available` it lacks nothing"),
        (Scoring(101.0), r"scores are finite and in \[0, 100\]"),
        (Scoring(math.nan), r"scores are finite and in \[0, 100\]"),
        (UnreservesTwice(), "unreserve in a cycle without pre_filter raised KeyError"),
        (NeverReleases(), "reserve and unreserve changed nominations of the cluster"),
        (EvictsTheImportant(), "not of lower priority"),
        (BrokenHint(), "the hint for Node .* raised AttributeError"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_plugin_that_breaks_the_contract_is_named_with_the_seed(plugin: Plugin, problem: str) -> None:
    with pytest.raises(AssertionError, match=rf"plugin Mine, seed \d.*: .*{problem}"):
        check_plugin(lambda _: plugin)


def test_a_check_can_be_left_out() -> None:
    check_plugin(lambda _: HasMoreThanTheFilterSees(), without=["supply"])
    with pytest.raises(ValueError, match=r"no check is called 'suply'; there are extension points, .*supply"):
        check_plugin(lambda _: FewPods(), without=["suply"])
