"""Nodes that cannot be decoded any more: they stay as they were known, but a cordon is followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from carico.kube.meta import ObjectName
from carico.kube.objects import Node
from carico.scheduler.assembly import assemble
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod

NAME = ObjectName("a", "", "uid-a", "5")


def readable(cordoned: object) -> dict[str, Any]:
    """What can be read of the node."""
    return {"metadata": {"name": "a"}, "spec": {"unschedulable": cordoned}, "status": {"allocatable": "none"}}


class World:
    """One node, and pods that are tried as soon as the queue has one."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.parts = assemble(SchedulerSettings(validate=True, on_stale="requests"), self.clock, None)
        self.cluster = self.parts.cluster
        self.node: Node | None = None
        self.see(make_node("a"))

    def see(self, node: Node | None) -> None:
        self.cluster.node_changed(self.node, node)
        self.node = node

    def place(self) -> list[str]:
        """The nodes of all pods that are tried now; "" for none."""
        found = []
        self.clock.advance(20)  # longer than any back-off, shorter than the flush
        while (queued := self.parts.queue.pop(self.clock.monotonic())) is not None:
            decision = decide(self.parts.profiles["carico"], self.cluster, queued.info, np.random.default_rng(1))
            found.append(decision.node)
            if not decision.node:
                assert decision.refusal is not None
                self.parts.queue.fail(queued, decision.refusal, self.clock.monotonic())
        return found

    def try_one(self) -> list[str]:
        self.cluster.pod_changed(None, make_pod())
        return self.place()


@pytest.mark.parametrize("cordoned", [False, None, "true", 1])
def test_it_stays_as_it_was_known(cordoned: object) -> None:
    world = World()
    world.cluster.node_undecodable(NAME, readable(cordoned))
    assert world.try_one() == ["a"]


def test_a_cordon_that_can_be_read_is_followed_until_it_ends() -> None:
    world = World()
    for _ in range(2):  # a list brings it again
        world.cluster.node_undecodable(NAME, readable(cordoned=True))
    assert world.try_one() == [""]
    world.cluster.node_undecodable(NAME, readable(cordoned=False))
    assert world.place() == ["a"]


def test_a_node_that_can_be_decoded_again_wakes_what_waited_for_it() -> None:
    """The change from the last state that could be decoded is none."""
    world = World()
    world.cluster.node_undecodable(NAME, readable(cordoned=True))
    assert world.try_one() == [""]
    world.see(make_node("a"))
    world.cluster.node_undecodable(NAME, None)
    assert world.place() == ["a"]


def test_one_that_is_decoded_with_the_cordon_keeps_it() -> None:
    world = World()
    world.cluster.node_undecodable(NAME, readable(cordoned=True))
    world.see(make_node("a", spec={"unschedulable": True}))
    world.cluster.node_undecodable(NAME, None)
    assert world.try_one() == [""]


def test_one_that_is_deleted_leaves_nothing() -> None:
    world = World()
    world.cluster.node_undecodable(NAME, readable(cordoned=True))
    world.see(None)
    world.cluster.node_undecodable(NAME, None)
    assert world.try_one() == [""]
    world.see(make_node("a"))
    assert world.place() == ["a"]


def test_one_that_was_never_known_is_no_node() -> None:
    world = World()
    world.cluster.node_undecodable(ObjectName("b", "", "uid-b", "5"), readable(cordoned=True))
    world.cluster.node_undecodable(ObjectName("b", "", "uid-b", "5"), None)
    assert world.try_one() == ["a"]
