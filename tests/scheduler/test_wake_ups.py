"""Pods that wait come back as soon as they would fit, and only then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from carico.kube.objects import Pod
from carico.scheduler.cycle.scheduling_cycle import unreserve
from carico.scheduler.framework.contract import Nomination
from carico.testing import make_node, make_pod
from harness.scheduler.offline import World

# --- for want of Pod-Capacity ---


@pytest.mark.parametrize(("units", "threshold"), [(0.25, 1.0), (1, 0.5)])
def test_less_than_one_pod_of_capacity_is_enough_for_a_pod_that_needs_less(units: float, threshold: float) -> None:
    world = World({"a": 0.05}, threshold=threshold)
    world.refuse(make_pod("p", units=units))
    world.clock.advance(20)
    world.report("a", 0.9)
    assert world.drain() == ["p"]


def test_a_pod_with_senseless_units_takes_no_wake_up_of_others() -> None:
    world = World({"a": 0.5})
    world.refuse(make_pod("bad", units="many"), make_pod("good"))
    world.clock.advance(20)
    world.report("a", 1.2)
    assert world.drain() == ["good"]


def test_repaired_units_are_noticed() -> None:
    world = World({"a": 2.0})
    world.refuse(make_pod("big", units=8), make_pod("bad", units="many"))
    world.clock.advance(11)
    world.see(make_pod("big", units=1))
    world.see(make_pod("bad", units=1))
    assert sorted(world.drain()) == ["bad", "big"]


def test_room_goes_to_the_next_when_the_woken_pod_is_deleted() -> None:
    world = World({"a": 0.5})
    world.refuse(make_pod("p1"), make_pod("p2"))
    world.report("a", 1.2)
    world.see(None, "default/p1")
    world.clock.advance(11)
    assert world.drain() == ["p2"]


def test_as_many_are_woken_as_may_start_when_the_node_calms_down() -> None:
    world = World({"a": 500.0}, cpu="64")
    world.report("a", 500.0, usage=(1.0, 0.2))
    for i in range(40):
        world.see(make_pod(f"p{i}"))
    assert len(world.drain()) == 8
    world.clock.advance(4)
    world.report("a", 500.0, usage=(0.0, 0.0))
    assert world.queue.counts()["waiting"] == 40 - 8 - 24
    assert len(world.drain()) == 24


def test_a_node_whose_report_becomes_stale_takes_pods_by_requests() -> None:
    world = World({"a": 0.0}, on_stale="requests")
    world.refuse(make_pod("p"))
    world.cluster.tick()
    world.clock.advance(13)
    world.cluster.tick()
    assert world.drain() == ["p"]


def test_a_node_whose_stream_breaks_takes_pods_by_requests_at_once() -> None:
    world = World({"a": 0.0}, on_stale="requests")
    world.refuse(make_pod("p"))
    world.clock.advance(2)
    world.ledger.mark_disconnected("a")
    world.cluster.capacity_changed()
    assert world.drain() == ["p"]


def test_pods_that_leave_a_stale_node_make_room_where_its_last_report_counts() -> None:
    world = World({"a": 1.0}, on_stale="ignore")
    world.see(make_pod("first"))
    assert world.drain() == ["first"]
    world.refuse(make_pod("second"))
    world.clock.advance(60)
    world.see(None, "default/first")
    world.cluster.pod_changed(make_pod("first", node="a"), None)
    assert world.drain() == ["second"]


def test_a_new_leader_waits_for_reports_before_it_judges_by_requests() -> None:
    world = World({"a": 0.0}, on_stale="requests")
    world.cluster.node_changed(None, make_node("silent"))
    world.ledger.expect_reports(world.clock.monotonic() + 5)
    world.refuse(make_pod("p"))
    world.clock.advance(5)
    world.cluster.tick()
    assert world.drain() == ["p"]


@pytest.mark.parametrize("on_stale", ["filter", "requests"])
def test_a_pod_that_may_evict_others_is_tried_when_its_node_begins_to_report(on_stale: str) -> None:
    world = World({}, cpu="4", on_stale=on_stale)
    world.cluster.node_changed(None, make_node("a", cpu="4"))
    world.ledger.expect_reports(world.clock.monotonic() + 5)
    low = [make_pod(f"low-{i}", cpu="1", node="a", phase="Running") for i in range(4)]
    for pod in low:
        world.see(pod)
    world.refuse(make_pod("high", cpu="2", priority=1000))
    world.clock.advance(2)
    world.report("a", 10.0, tuple(pod.uid for pod in low))
    assert isinstance(world.attempt()[1].preemption, Nomination)


def test_a_pod_that_may_evict_others_is_tried_when_reports_are_no_longer_expected() -> None:
    world = World({}, cpu="4", on_stale="requests")
    world.cluster.node_changed(None, make_node("a", cpu="4"))
    world.ledger.expect_reports(world.clock.monotonic() + 5)
    world.see(make_pod("low", cpu="4", node="a", phase="Running"))
    world.refuse(make_pod("high", cpu="2", priority=1000))
    world.clock.advance(5)
    world.cluster.tick()
    assert isinstance(world.attempt()[1].preemption, Nomination)


# --- pods that never start ---


def test_pods_that_cannot_start_close_a_node_for_a_minute_only() -> None:
    world = World({"a": 500.0}, cpu="64")
    for i in range(32):
        world.see(make_pod(f"stuck{i}", node="a", phase="Pending"))
    world.refuse(make_pod("p"))
    for _ in range(60):
        world.clock.advance(1)
        world.report("a", 460.0)
        world.cluster.tick()
    assert world.drain() == ["p"]
    assert world.free("a") == 460 - 32 - 1, "they still count as promised"


# --- pods that wait for requests, ports or anti-affinity ---


@pytest.mark.parametrize("how", ["the binding failed", "the pod was deleted while it was bound"])
@pytest.mark.parametrize("want", ["cpu", "port", "affinity"])
def test_room_of_a_pod_that_was_never_bound_is_free_again(how: str, want: str) -> None:
    terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}]
    specs: dict[str, dict[str, Any]] = {
        "cpu": {"cpu": "2"},
        "port": {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]},
        "affinity": {
            "labels": {"app": "x"},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        },
    }
    spec = specs[want]
    world = World({"a": 50.0}, cpu="2")
    world.see(make_pod("first", **spec))
    queued, decision = world.attempt()
    world.refuse(make_pod("second", **spec))
    world.clock.advance(12)
    world.report("a", 50.0)
    if how == "the pod was deleted while it was bound":
        world.see(None, "default/first")
    unreserve(world.parts.profiles["carico"], decision.cycle, decision.node)
    world.cluster.unassume(decision.cycle.pod)
    world.queue.done(queued.uid, world.clock.monotonic())
    assert world.drain() == ["second"]


@pytest.mark.parametrize("how", ["it is deleted", "its nomination is cleared", "it is bound elsewhere"])
def test_room_that_was_kept_is_free_when_the_nomination_ends(how: str) -> None:
    world = World({"a": 50.0}, cpu="2")
    world.cluster.node_changed(None, make_node("tiny", cpu="0"))
    world.see(make_pod("high", cpu="2", priority=1000, nominated="a", schedulerName="other"))
    world.refuse(make_pod("low", cpu="2"))
    world.clock.advance(11)
    world.report("a", 50.0)
    assert world.drain() == []
    assert world.place("low") == "waiting", "what woke it was the report"
    if how == "it is deleted":
        world.see(None, "default/high")
    else:
        changes: dict[str, Any] = {"node": "tiny"} if how == "it is bound elsewhere" else {}
        world.see(make_pod("high", cpu="2", priority=1000, schedulerName="other", **changes))
    assert world.drain() == ["low"]


def test_room_on_our_node_is_free_when_another_scheduler_binds_the_pod_elsewhere() -> None:
    world = World({"a": 50.0}, cpu="2")
    world.cluster.node_changed(None, make_node("b", cpu="4"))
    world.see(make_pod("first", cpu="2"))
    assert world.attempt()[1].node == "a"
    world.refuse(make_pod("second", cpu="2"))
    world.clock.advance(12)
    world.report("a", 50.0)
    world.see(make_pod("first", cpu="2", node="b"))
    assert world.drain() == ["second"]


def test_a_container_that_starts_wakes_no_pod() -> None:
    world = World({"a": 500.0}, cpu="4")
    world.refuse(*(make_pod(f"big{i}", cpu="64") for i in range(20)))
    world.clock.advance(30)
    world.report("a", 500.0)
    bound = make_pod("small", cpu="1", node="a")
    world.see(bound)
    plain = msgspec.to_builtins(bound)
    kept = {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}
    plain["status"] = {"phase": "Running", "containerStatuses": [kept]}
    world.see(msgspec.convert(plain, Pod))
    assert world.queue.counts()["waiting"] == 20


@pytest.mark.parametrize("owner", ["ReplicaSet", "DaemonSet"])
def test_a_pod_that_is_resized_to_less_makes_room(owner: str) -> None:
    """Also one that is not in the ledger, as those of DaemonSets."""

    def running(cpu: str) -> Pod:
        plain = msgspec.to_builtins(make_pod("running", cpu=cpu, node="a", owner=owner))
        kept = {"name": "c", "allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}
        plain["status"] = {"phase": "Running", "containerStatuses": [kept]}
        return msgspec.convert(plain, Pod)

    world = World({"a": 50.0}, cpu="4")
    world.see(running("4"))
    world.refuse(make_pod("p", cpu="2"))
    world.clock.advance(12)
    world.report("a", 50.0)
    world.see(running("1"))
    assert world.drain() == ["p"]


def test_a_cluster_without_nodes_waits_for_one() -> None:
    world = World({})
    world.refuse(make_pod("p"))
    for _ in range(100):
        world.clock.advance(1)
        assert not world.drain()
    queued = world.queue.get("uid-p")
    assert queued is not None
    assert queued.attempts == 1
    world.cluster.node_changed(None, make_node("a"))
    world.drain()
    world.report("a", 5.0)
    assert world.drain() == ["p"]


# --- profiles that differ in Capacity ---


def test_a_pod_is_woken_by_the_arguments_of_its_own_profile() -> None:
    careful = {"args": {"Capacity": {"threshold": 3}}}
    world = World({"a": 0.5}, profiles={"carico": {}, "careful": careful})
    world.refuse(make_pod("p"), make_pod("q", schedulerName="careful"))
    world.clock.advance(11)
    world.report("a", 2.5)
    assert world.drain() == ["p"]
    world.clock.advance(11)
    world.report("a", 4.5)
    assert world.drain() == ["q"]


# --- a profile without Capacity ---


def test_a_pod_of_a_profile_without_capacity_is_reserved_from_the_decision_on() -> None:
    world = World({"a": 1.0}, profiles={"carico": {}, "lean": {"disable": ["Capacity"]}})
    world.see(make_pod("lean", schedulerName="lean"))
    assert world.drain() == ["lean"]
    assert world.free("a") == 0
    world.refuse(make_pod("p"))
    world.see(make_pod("lean", schedulerName="lean", node="a"))
    assert world.free("a") == 0
