"""Plugins of other people that raise where the watches call them: the others go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from carico.kube.objects import Node
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import OK, Cycle, Reuse, Status, Verdict
from carico.scheduler.framework.needs import Need, Needs
from carico.scheduler.plugins import registry
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod
from harness.scheduler.binding_world import a_claim, a_class, a_volume, of_claim


class Broken:
    """Refuses every node; its hint and its pre-enqueue check raise for some pods."""

    name = "Broken"
    reuse = Reuse.NEVER

    @property
    def interests(self) -> tuple[EventInterest, ...]:
        return (EventInterest("Node", Action.ADD, self._hint),)

    def _hint(self, pod: PodInfo, _old: Node | None, _new: Node) -> bool:
        if pod.pod.name.startswith("bad"):
            raise RuntimeError("a bug in a hint")
        return True

    def pre_enqueue(self, pod: PodInfo) -> Status:
        if pod.pod.name == "worse":
            raise RuntimeError("a bug in a check")
        return OK

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        count = len(cycle.snapshot) if rows is None else len(rows)
        return Verdict.refuse(np.ones(count, dtype=np.bool_), "is refused")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Components:
    monkeypatch.setitem(registry.BUILT_IN, "Broken", lambda _: Broken())
    made = assemble(
        SchedulerSettings(on_stale="requests", profiles={"carico": {"enable": ["Broken"]}}), ManualClock(), None
    )
    made.cluster.node_changed(None, make_node("a"))
    return made


def errors(parts: Components) -> float:
    return float(parts.metrics.plugin_errors.labels("Broken")._value.get())


def attempt(parts: Components) -> str:
    """The pod whose turn it was."""
    queued = parts.queue.pop(0.0)
    assert queued is not None
    decision = decide(parts.profiles["carico"], parts.cluster, queued.info, np.random.default_rng(1))
    assert decision.refusal is not None
    parts.queue.fail(queued, decision.refusal, -1000.0)
    return queued.info.pod.name


def test_a_hint_that_raises_wakes_its_pod_and_keeps_no_other_pod_asleep(
    parts: Components, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad-1", "good", "bad-2"):
        parts.cluster.pod_changed(None, make_pod(name, labels={"app": name}))  # a hint is called once for pods alike
    assert {attempt(parts) for _ in range(3)} == {"bad-1", "good", "bad-2"}
    parts.cluster.node_changed(None, make_node("b"))
    assert parts.queue.counts()["active"] == 3
    assert errors(parts) == 2
    assert caplog.text.count("plugin Broken broke: a bug in a hint") == 1


def test_a_check_that_raises_keeps_its_pod_out_and_lets_the_others_in(parts: Components) -> None:
    parts.cluster.pod_changed(None, make_pod("worse"))
    parts.cluster.pod_changed(None, make_pod("good"))
    counts = parts.queue.counts()
    assert (counts["gated"], counts["active"]) == (1, 1)
    assert errors(parts) == 1
    worse = parts.queue.get("uid-worse")
    assert worse is not None
    assert worse.gate is not None
    assert worse.gate.status.message == "Broken broke: a bug in a check"
    parts.cluster.pod_changed(make_pod("worse"), None)
    assert "uid-worse" not in parts.queue


class Shelf:
    """Every pod needs a piece of what a node has; it raises where a test says so."""

    name, reuse, supply = "Shelf", Reuse.NEVER, "shelf"
    interests: tuple[EventInterest, ...] = ()
    pieces, breaks = 0.0, False

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        count = len(cycle.snapshot) if rows is None else len(rows)
        return Verdict.refuse(np.full(count, self.pieces < 1, dtype=np.bool_), "had no piece")

    def needs(self, _: Cycle) -> Needs:
        return (Need(self.supply, "pieces", 1, 1),)

    def available(self, _: str, __: int) -> float:
        if self.breaks:
            raise RuntimeError("a bug in an amount")
        return self.pieces


def test_an_amount_that_raises_wakes_those_who_need_it_and_leaves_no_reservation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf()
    monkeypatch.setitem(registry.BUILT_IN, "Shelf", lambda _: shelf)
    parts = assemble(
        SchedulerSettings(on_stale="requests", profiles={"carico": {"enable": ["Shelf"]}}), ManualClock(), None
    )
    parts.cluster.node_changed(None, make_node("a"))
    parts.cluster.pod_changed(None, make_pod("waits"))
    assert attempt(parts) == "waits"
    shelf.breaks, shelf.pieces = True, 1.0
    other = make_pod("other", node="a")
    parts.cluster.pod_changed(None, other)
    parts.cluster.pod_changed(other, None)
    assert parts.queue.counts()["active"] == 1
    parts.cluster.pod_changed(None, make_pod("waits too"))
    queued = parts.queue.pop(0.0)
    assert queued is not None
    assert decide(parts.profiles["carico"], parts.cluster, queued.info, np.random.default_rng(1)).node == "a"
    assert parts.metrics.plugin_errors.labels("Shelf")._value.get() >= 1
    assert caplog.text.count("plugin Shelf broke: a bug in an amount") == 1


def test_a_pod_whose_sort_key_raises_goes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sort:
        name = "Sort"
        interests: tuple[EventInterest, ...] = ()

        def sort_key(self, pod: PodInfo, _: float) -> tuple[Any, ...]:
            if pod.pod.name.startswith("bad"):
                raise RuntimeError("a bug in a sort key")
            return (-pod.priority,)

    monkeypatch.setitem(registry.BUILT_IN, "Sort", lambda _: Sort())
    rules = {"disable": ["PrioritySort"], "enable": ["Sort", "Broken"]}
    monkeypatch.setitem(registry.BUILT_IN, "Broken", lambda _: Broken())
    parts = assemble(SchedulerSettings(on_stale="requests", profiles={"carico": rules}), ManualClock(), None)
    for name, priority in (("bad-1", 9), ("low", 1), ("bad-2", 9), ("high", 5)):
        parts.cluster.pod_changed(None, make_pod(name, priority=priority))
    assert [attempt(parts) for _ in range(4)] == ["high", "low", "bad-1", "bad-2"]
    parts.cluster.node_changed(None, make_node("a"))
    assert attempt(parts) == "high"
    assert parts.metrics.plugin_errors.labels("Sort")._value.get() >= 2


def test_a_reserve_that_raises_takes_back_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that VolumeBinding has assumed for the pod must not stay taken until the pod's next attempt."""

    class Fragile:
        name = "Fragile"
        interests: tuple[EventInterest, ...] = ()
        breaks = True

        def reserve(self, _: Cycle, __: str) -> Status:
            if self.breaks:
                raise RuntimeError("a bug in a reserve")
            return OK

        def unreserve(self, _: Cycle, __: str) -> None:
            raise RuntimeError("and another one")

    fragile = Fragile()
    monkeypatch.setitem(registry.BUILT_IN, "Fragile", lambda _: fragile)
    parts = assemble(
        SchedulerSettings(on_stale="requests", profiles={"carico": {"enable": ["Fragile"]}}), ManualClock(), None
    )
    parts.cluster.node_changed(None, make_node("a"))
    for obj in (a_class("kubernetes.io/no-provisioner"), a_claim("one"), a_claim("two"), a_volume("v")):
        parts.cluster.thing_changed(None, obj)
    profile, rng = parts.profiles["carico"], np.random.default_rng(1)
    first, second = (PodInfo(make_pod(name, volumes=of_claim(name))) for name in ("one", "two"))
    with pytest.raises(RuntimeError, match="a bug in a reserve"):
        decide(profile, parts.cluster, first, rng)
    assert (dict(parts.cluster.assumed), parts.snapshot.pods) == ({}, {})
    assert parts.metrics.plugin_errors.labels("Fragile")._value.get() == 1
    fragile.breaks = False
    assert decide(profile, parts.cluster, second, rng).node == "a"
