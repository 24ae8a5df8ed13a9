"""Bound pods that cannot be decoded: their nodes take no further pods by requests until they can be read."""

from __future__ import annotations

from typing import Any

import numpy as np

from carico.kube.meta import ObjectName
from carico.scheduler.assembly import assemble
from carico.scheduler.cycle.scheduling_cycle import Decision, decide
from carico.scheduler.plugins.node_resources_fit import UNKNOWN
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod

GHOST = ObjectName("ghost", "default", "uid-ghost", "5")


def on(node: Any) -> dict[str, Any]:
    """What can be read of the ghost."""
    return {"metadata": {"name": "ghost"}, "spec": {"nodeName": node, "containers": "none"}}


class World:
    def __init__(self, *nodes: str) -> None:
        self.clock = ManualClock()
        self.parts = assemble(SchedulerSettings(validate=True, on_stale="requests"), self.clock, None)
        self.cluster, self.queue = self.parts.cluster, self.parts.queue
        for node in nodes:
            self.cluster.node_changed(None, make_node(node))

    def wait(self, name: str) -> None:
        self.cluster.pod_changed(None, make_pod(name, cpu="1"))

    def attempt(self) -> Decision:
        queued = self.queue.pop(self.clock.monotonic())
        assert queued is not None
        decision = decide(self.parts.profiles["carico"], self.cluster, queued.info, np.random.default_rng(1))
        if not decision.node:
            assert decision.refusal is not None
            self.queue.fail(queued, decision.refusal, self.clock.monotonic())
        return decision

    def place(self, name: str) -> str:
        self.wait(name)
        return self.attempt().node


def test_its_node_gets_no_further_pods_and_the_others_do() -> None:
    world = World("a", "b")
    world.cluster.pod_undecodable(GHOST, on("a"))
    assert [world.place(f"p{i}") for i in range(3)] == ["b", "b", "b"]


def test_the_reason_is_given_and_evicting_pods_does_not_help() -> None:
    world = World("a")
    world.cluster.pod_undecodable(GHOST, on("a"))
    world.wait("p")
    assert world.attempt().message == "0/1 nodes are available: 1 node(s) had a pod that could not be read."
    assert UNKNOWN.unresolvable


def test_waiting_pods_are_woken_when_it_is_gone() -> None:
    world = World("a")
    world.cluster.pod_undecodable(GHOST, on("a"))
    assert world.place("p") == ""
    world.clock.advance(20)
    world.cluster.pod_undecodable(GHOST, None)
    assert world.attempt().node == "a"


def test_waiting_pods_are_woken_when_it_can_be_decoded_and_its_room_counts_then() -> None:
    world = World("a")
    world.cluster.pod_undecodable(GHOST, on("a"))
    assert world.place("p") == ""
    world.clock.advance(20)
    world.cluster.pod_changed(None, make_pod("ghost", node="a", cpu="7"))
    world.cluster.pod_undecodable(GHOST, None)
    assert world.attempt().node == "a"
    assert world.place("q") == ""  # 7 of 8 cores were the ghost's


def test_kept_answers_of_a_template_are_corrected() -> None:
    world = World("a")
    assert world.place("before") == "a"
    world.cluster.pod_undecodable(GHOST, on("a"))
    assert world.place("during") == ""
    world.cluster.pod_undecodable(GHOST, None)
    assert world.place("after") == "a"


def test_a_node_that_comes_after_it_is_closed_too() -> None:
    world = World("b")
    world.cluster.pod_undecodable(GHOST, on("a"))
    world.cluster.node_changed(None, make_node("a"))
    assert [world.place(f"p{i}") for i in range(3)] == ["b", "b", "b"]
    world.cluster.node_changed(make_node("a"), None)
    world.cluster.pod_undecodable(GHOST, None)


def test_what_was_known_of_a_bound_pod_stands() -> None:
    world = World("a")
    world.cluster.pod_changed(None, make_pod("ghost", node="a", cpu="7"))
    world.cluster.pod_undecodable(GHOST, on("a"))
    assert world.place("p") == "a"
    assert world.place("q") == ""


def test_a_waiting_pod_that_was_known_goes_on_waiting_until_it_is_bound() -> None:
    world = World("a", "b")
    world.cluster.pod_changed(None, make_pod("ghost", cpu="1"))
    world.cluster.pod_undecodable(GHOST, on(""))
    assert "uid-ghost" in world.queue
    world.cluster.pod_undecodable(GHOST, on("b"))  # another client's decision
    assert "uid-ghost" not in world.queue
    assert [world.place(f"p{i}") for i in range(3)] == ["a", "a", "a"]


def test_one_of_ours_whose_binding_is_not_confirmed_yet_keeps_its_place() -> None:
    world = World("a")
    world.wait("ghost")
    assert world.attempt().node == "a"
    world.cluster.pod_undecodable(GHOST, on("a"))
    assert world.parts.snapshot.unrequested("cpu")[0] == 7000
    assert world.place("p") == "a"


def test_one_whose_node_cannot_be_read_either_is_only_counted() -> None:
    world = World("a")
    names: tuple[Any, ...] = (None, 5, ["a"], {})
    for node in names:
        world.cluster.pod_undecodable(GHOST, on(node))
    world.cluster.pod_undecodable(GHOST, {"spec": 7})
    assert world.place("p") == "a"
