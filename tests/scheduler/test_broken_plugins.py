"""Plugins of other people that raise where the watches call them: the others go on."""

from __future__ import annotations

import numpy as np
import pytest
from binding_world import a_claim, a_class, a_volume, of_claim
from scheduling import make_node, make_pod

from carico.kube.objects import Node
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.scheduler.framework.cluster_events import Action, EventInterest
from carico.scheduler.framework.contract import OK, Cycle, Reuse, Status, Verdict
from carico.scheduler.plugins import registry
from carico.settings import SchedulerSettings
from carico.testing import ManualClock


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
    return parts.metrics.plugin_errors.labels("Broken")._value.get()


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
    for thing in (a_class("kubernetes.io/no-provisioner"), a_claim("one"), a_claim("two"), a_volume("v")):
        parts.cluster.thing_changed(None, thing)
    profile, rng = parts.profiles["carico"], np.random.default_rng(1)
    first, second = (PodInfo(make_pod(name, volumes=of_claim(name))) for name in ("one", "two"))
    with pytest.raises(RuntimeError, match="a bug in a reserve"):
        decide(profile, parts.cluster, first, rng)
    assert (dict(parts.cluster.assumed), parts.snapshot.pods) == ({}, {})
    assert parts.metrics.plugin_errors.labels("Fragile")._value.get() == 1
    fragile.breaks = False
    assert decide(profile, parts.cluster, second, rng).node == "a"
