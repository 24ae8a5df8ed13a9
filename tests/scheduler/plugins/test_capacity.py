"""Capacity by room: what fits, which reasons are given, and what wakes waiting pods."""

from __future__ import annotations

from typing import Any

import numpy as np

from carico.kube.objects import Pod
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cycle.scheduling_cycle import Decision, decide
from carico.scheduler.http.class_view import class_rows
from carico.scheduler.http.explain import explain
from carico.scheduler.http.explanation import as_table
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_cost, make_node, make_pod, make_report
from carico.types import NodeReport

RESOURCES = ("cpu", "memory")
FULL = (8.0, 16 * 2.0**30)
GIB = 2.0**30


class World:
    def __init__(self, *nodes: str, **settings: Any) -> None:
        self.clock = ManualClock(now=100.0)
        self.parts: Components = assemble(SchedulerSettings(validate=True, **settings), self.clock, None)
        for name in nodes:
            self.parts.cluster.node_changed(None, make_node(name, cpu="4"))

    def report(self, node: str, cores: float, memory: float, counted: Any = (), **more: Any) -> None:
        self.parts.cluster.apply_report(room(node, cores, memory, counted, **more))

    def aggregate(self, **mean: tuple[float, float]) -> None:
        costs = [make_cost(f"default/{name}", *amounts, weight=212.0) for name, amounts in mean.items()]
        self.parts.cluster.aggregated({cost.key: cost for cost in costs}, RESOURCES)

    def decide(self, pod: Pod) -> Decision:
        profile = self.parts.profiles["carico"]
        return decide(profile, self.parts.cluster, PodInfo(pod), np.random.default_rng(0))

    def attempt(self) -> Decision | None:
        """The next pod of the queue."""
        queue = self.parts.queue
        if (queued := queue.pop(self.clock.monotonic())) is None:
            return None
        decision = decide(self.parts.profiles["carico"], self.parts.cluster, queued.info, np.random.default_rng(0))
        if decision.node:
            queue.done(queued.uid, self.clock.monotonic())
        else:
            assert decision.refusal is not None
            queue.fail(queued, decision.refusal, self.clock.monotonic())
        return decision


def room(node: str, cores: float, memory: float, counted: Any = (), **more: Any) -> NodeReport:
    return make_report(node, 10.0, counted, room=(cores, memory), full=FULL, cost_ratio=(0.05, 0.05), **more)


def web(name: str = "", **changes: Any) -> Pod:
    return make_pod(name, labels={"app": "web"}, **changes)


def test_a_pod_goes_where_every_resource_has_room_for_its_class() -> None:
    world = World("cpu-full", "memory-full", "both")
    world.report("cpu-full", 0.2, 8 * GIB)
    world.report("memory-full", 4.0, 0.1 * GIB)
    world.report("both", 1.0, 2 * GIB)
    world.aggregate(web=(0.31, 0.41 * GIB))
    assert [world.decide(web()).node for _ in range(3)] == ["both"] * 3
    refused = world.decide(web())
    assert refused.node == ""
    assert refused.message == (
        "0/3 nodes are available: 1 had too little memory left, 2 had too little cpu left."
        " The pod needs 0.31 cores and 420 MiB (measured on pods of default/web)."
    )


def test_threshold_times_the_cost_must_be_left() -> None:
    world = World("a", threshold=2.0)
    world.report("a", 1.0, 8 * GIB)
    world.aggregate(web=(0.6, GIB))
    assert "too little cpu" in world.decide(web()).message
    world.aggregate(web=(0.5, GIB))
    assert world.decide(web()).node == "a"


def test_the_emptiest_node_by_its_own_class_is_preferred() -> None:
    world = World("cores", "bytes")
    world.report("cores", 7.0, 2 * GIB)
    world.report("bytes", 2.0, 14 * GIB)
    world.aggregate(web=(0.1, GIB), batch=(0.5, 0.1 * GIB))
    assert world.decide(web()).node == "bytes"
    assert world.decide(make_pod(labels={"app": "batch"})).node == "cores"


def test_one_unmeasured_pod_per_node_until_its_class_was_measured() -> None:
    world = World("a", "b")
    for node in ("a", "b"):
        world.report(node, 7.0, 14 * GIB)
    assert {world.decide(web("p0")).node, world.decide(web("p1")).node} == {"a", "b"}
    refused = world.decide(web("p2"))
    assert "2 had a pod of the same class that is not measured yet" in refused.message
    assert "is charged 1 core and 1 GiB until a pod of default/web has been measured" in refused.message
    assert world.decide(make_pod(labels={"app": "other"})).node
    world.report("a", 6.8, 14 * GIB, ["uid-p0"], class_costs=(make_cost("default/web", 0.2, 0.1 * GIB),))
    assert all(world.decide(web()).node for _ in range(20))


def test_beside_an_unmeasured_pod_only_a_full_nodes_number_of_pods_may_start() -> None:
    """An idle node once took 29 light pods with the first heavy one, which turned out to need ten times the guess."""
    world = World("a", startup_limit=3, startup_limit_idle=20)
    world.report("a", 7.0, 14 * GIB)
    world.aggregate(web=(0.1, 0.1 * GIB))
    assert world.decide(make_pod("new", labels={"app": "new"})).node == "a"
    assert [world.decide(web()).node for _ in range(3)] == ["a", "a", ""]
    assert "1 had too many pods starting" in world.decide(web()).message
    world.report("a", 4.0, 12 * GIB, ["uid-new"], class_costs=(make_cost("default/new", 3.0, GIB),))
    assert [world.decide(web()).node for _ in range(3)] == ["a"] * 3


def test_pods_that_wait_beside_an_unmeasured_pod_are_tried_when_it_is_measured() -> None:
    world = World("a", startup_limit=2, startup_limit_idle=20)
    world.report("a", 7.0, 14 * GIB)
    world.aggregate(web=(0.1, 0.1 * GIB))
    world.parts.cluster.pod_changed(None, make_pod("new", labels={"app": "new"}))
    for number in range(3):
        world.parts.cluster.pod_changed(None, web(f"p{number}"))
    assert [bool(found.node) for found in iter(world.attempt, None)] == [True, True, False, False]
    world.clock.advance(11)
    world.report("a", 6.0, 13 * GIB, ["uid-new"], class_costs=(make_cost("default/new", 0.5, GIB),))
    assert [found.node for found in iter(world.attempt, None)] == ["a"] * 2


def test_an_older_agent_never_measures_so_nothing_waits_for_it() -> None:
    world = World("old", startup_limit=2, startup_limit_idle=20)
    world.parts.cluster.apply_report(make_report("old", 100.0, usage=(0.0, 0.0)))
    assert world.decide(make_pod("new", labels={"app": "new"})).node == "old"
    assert [world.decide(web()).node for _ in range(5)] == ["old"] * 5


def test_a_node_of_an_older_agent_takes_pods_by_pod_capacity() -> None:
    world = World("old")
    world.parts.cluster.apply_report(make_report("old", 2.0))
    world.aggregate(web=(100.0, GIB))
    assert [world.decide(web()).node for _ in range(2)] == ["old", "old"]
    assert world.decide(web()).message == "0/1 nodes are available: 1 had no free capacity."


def test_units_are_mean_recent_pods_of_the_node() -> None:
    world = World("a")
    world.report("a", 4.0, 8 * GIB)  # ten mean pods
    assert world.decide(web(units=8)).node == "a"
    refused = world.decide(web(units=3))
    assert refused.message.startswith("0/1 nodes are available: 1 had no free capacity.")
    assert world.decide(web(units=2)).node == "a"


def test_pods_that_wait_for_a_class_to_be_measured_are_tried_when_it_is() -> None:
    world = World("a")
    world.report("a", 7.0, 14 * GIB)
    for number in range(4):
        world.parts.cluster.pod_changed(None, web(f"p{number}"))
    assert [bool(found.node) for found in iter(world.attempt, None)] == [True, False, False, False]
    world.clock.advance(11)
    world.aggregate(web=(0.2, 0.1 * GIB))
    assert [found.node for found in iter(world.attempt, None)] == ["a"] * 3


def test_pods_that_wait_for_amounts_are_tried_when_their_class_costs_less() -> None:
    world = World("a")
    world.report("a", 3.0, 14 * GIB)
    world.aggregate(web=(5.0, GIB))
    for number in range(4):
        world.parts.cluster.pod_changed(None, web(f"p{number}"))
    assert [bool(found.node) for found in iter(world.attempt, None)] == [False] * 4
    world.clock.advance(11)
    world.aggregate(web=(4.0, GIB))  # one of them tries, for all
    assert [bool(found.node) for found in iter(world.attempt, None)] == [False]
    world.clock.advance(11)
    world.report("a", 3.0, 14 * GIB)
    world.aggregate(web=(1.0, GIB))
    assert [bool(found.node) for found in iter(world.attempt, None)] == [True, True, True, False]


def test_explain_shows_what_the_pod_needs_and_what_room_nodes_have() -> None:
    world = World("node-7", "node-8")
    world.report("node-7", 0.2, 3 * GIB)
    world.report("node-8", 6.0, 3 * GIB)
    world.aggregate(web=(0.31, 420 * 2.0**20))
    found = explain(world.parts, web(), world.clock.monotonic())
    assert found.needs == "needs 0.31 cores and 420 MiB (measured on 212 pods of default/web)"
    by_name = {verdict.node: verdict for verdict in found.nodes}
    assert by_name["node-7"].room == "0.2 cores and 3 GiB; 4.0 of 4 cores busy"
    assert by_name["node-8"].room == "6 cores and 3 GiB; 2.0 of 4 cores busy"
    table = as_table(found)
    assert "Capacity: had too little cpu left (has room for 0.2 cores and 3 GiB; 4.0 of 4 cores busy)" in table
    assert as_table(found, wide=True).count("0.2 cores and 3 GiB; 4.0 of 4 cores busy") == 1  # in its column
    assert "needs 0.31 cores" in table


def test_people_are_shown_use_where_threads_have_to_wait() -> None:
    world = World("a")
    world.report("a", 6.0, 3 * GIB)
    cost = make_cost("default/web", 4.0, GIB, use_high=(1.5, 0.9 * GIB))
    world.parts.cluster.aggregated({cost.key: cost}, RESOURCES)
    found = explain(world.parts, web(), world.clock.monotonic())
    assert found.needs.startswith("needs 1.5 cores and 1 GiB")


def test_classes_are_listed_with_what_their_requests_should_say() -> None:
    world = World("a", "b")
    cost = make_cost("default/web", 0.5, GIB, use_high=(0.312, 0.9 * GIB), variance=(0.01, 0.0))
    world.parts.cluster.aggregated({cost.key: cost}, RESOURCES)
    for number in range(3):
        world.parts.cluster.pod_changed(None, web(f"p{number}", node="a", cpu="2"))
    world.parts.cluster.pod_changed(None, make_pod("q", labels={"app": "new"}, node="b"))
    rows = class_rows(world.parts.classes, world.parts.ledger, world.clock.monotonic())
    first, second = rows
    assert (first.family, first.pods, first.measured) == ("default/web", 3, 10.0)
    assert first.requests == {"cpu": 2.0, "memory": 0.0}
    assert first.suggested == {"cpu": 0.32, "memory": 922 * 2.0**20}
    assert (second.family, second.pods, second.measured, second.suggested) == ("default/new", 1, 0.0, {})
