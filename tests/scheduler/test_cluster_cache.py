"""Watches, decisions and reports in awkward orders, with the whole set of default plugins."""

from __future__ import annotations

from carico.scheduler.framework.contract import Nomination
from carico.scheduler.plugins.capacity import Capacity
from carico.testing import make_node, make_pod
from harness.scheduler.offline import World


def test_the_freest_node_is_chosen_until_others_are_freer() -> None:
    world = World({"a": 3.0, "b": 5.0})
    for i in range(6):
        world.see(make_pod(f"p{i}"))
    chosen = [world.attempt()[1].node for _ in range(6)]
    assert chosen[:2] == ["b", "b"]
    assert sorted(chosen) == ["a", "a", "b", "b", "b", "b"]


def test_no_more_pods_than_capacity_however_many_wait() -> None:
    world = World({"a": 2.9, "b": 1.0, "c": 0.99})
    for i in range(10):
        world.see(make_pod(f"p{i}"))
    chosen = [world.attempt()[1].node for _ in range(10)]
    assert sorted(node for node in chosen if node) == ["a", "a", "b"]
    assert world.queue.refused_by({"Capacity"}) == 7


def test_the_message_counts_nodes_by_reason() -> None:
    world = World({"a": 0.2, "b": 0.0})
    world.cluster.node_changed(None, make_node("c"))  # never reported
    world.cluster.node_changed(None, make_node("d", spec={"unschedulable": True}))
    world.see(make_pod("p"))
    message = world.attempt()[1].message
    reasons = ("1 had no recent capacity report", "1 node(s) were unschedulable", "2 had no free capacity")
    assert message == f"0/4 nodes are available: {', '.join(reasons)}."


def test_capacity_that_comes_back_wakes_as_many_as_fit() -> None:
    world = World({"a": 0.0})
    for i in range(5):
        world.see(make_pod(f"p{i}"))
        assert not world.attempt()[1].node
    world.clock.advance(2)
    world.report("a", 2.4)
    assert world.queue.counts()["active"] == 2
    assert [world.attempt()[1].node for _ in range(2)] == ["a", "a"]


def test_a_failed_binding_gives_everything_back() -> None:
    world = World({"a": 5.0})
    world.see(make_pod("p", cpu="1"))
    queued, decision = world.attempt()
    assert world.free("a") == 4
    world.fail_binding(queued, decision)
    assert world.free("a") == 5
    assert world.parts.snapshot.unrequested("cpu")[0] == 8000
    world.clock.advance(1)
    assert world.attempt()[1].node == "a"


def test_bound_by_another_scheduler_while_in_flight() -> None:
    world = World({"a": 5.0, "b": 1.0})
    world.see(make_pod("p"))
    queued, decision = world.attempt()
    assert decision.node == "a"
    world.see(make_pod("p", node="b"))  # the watch is faster than our own conflict
    world.fail_binding(queued, decision)
    assert (world.free("a"), world.free("b")) == (5, 0)
    assert len(world.queue) == 0


def test_deleted_in_mid_flight() -> None:
    world = World({"a": 5.0})
    world.see(make_pod("p"))
    queued, decision = world.attempt()
    world.see(None, "default/p")
    world.fail_binding(queued, decision)
    assert world.free("a") == 5
    assert len(world.queue) == 0
    assert not world.parts.snapshot.pods


def test_pods_of_every_scheduler_count_but_only_ours_are_queued() -> None:
    world = World({"a": 5.0})
    world.see(make_pod("x", schedulerName="default-scheduler", node="a"))
    world.see(make_pod("y", schedulerName="default-scheduler"))
    assert world.free("a") == 4
    assert len(world.queue) == 0


def test_daemon_and_ended_pods_do_not_count() -> None:
    world = World({"a": 5.0})
    world.see(make_pod("d", owner="DaemonSet", node="a"))
    world.see(make_pod("e", node="a", phase="Succeeded"))
    world.see(make_pod("own", node="a", labels={"carico.dev/workload": "false"}))
    assert world.free("a") == 5
    world.see(make_pod("r", node="a", phase="Running"))
    assert world.free("a") == 4
    world.see(make_pod("r", node="a", phase="Failed"))
    assert world.free("a") == 5


def test_units_of_the_annotation_are_reserved() -> None:
    world = World({"a": 2.0})
    world.see(make_pod("big", units=2.5))
    assert "had no free capacity" in world.attempt()[1].message
    world.see(make_pod("small", units=0.25))
    assert world.attempt()[1].node == "a"
    assert world.free("a") == 1.75
    world.see(make_pod("odd", units="many"))
    assert "annotation carico.dev/units is 'many'" in world.attempt()[1].message


def test_stale_nodes_by_each_rule() -> None:
    for rule, node in (("filter", ""), ("requests", "a"), ("ignore", "a")):
        world = World({"a": 2.0}, on_stale=rule)
        world.clock.advance(60)
        world.see(make_pod("p"))
        decision = world.attempt()[1]
        assert decision.node == node, rule
        assert ("stale" in decision.figures.remark) == (node != "")


def test_ignore_still_obeys_the_last_report() -> None:
    world = World({"a": 0.5}, on_stale="ignore")
    world.clock.advance(60)
    world.see(make_pod("p"))
    assert not world.attempt()[1].node


def test_the_last_report_also_decides_which_stale_node_is_best() -> None:
    for best in ("a", "b"):
        world = World({"a": 3.0, "b": 3.0} | {best: 9.0}, on_stale="ignore")
        world.clock.advance(60)
        world.see(make_pod("p"))
        assert world.attempt()[1].node == best


def test_a_start_storm_is_held_back_and_goes_on_as_pods_start() -> None:
    world = World({"a": 50.0}, startup_limit=2, startup_limit_idle=2)
    for i in range(4):
        world.see(make_pod(f"p{i}"))
    assert [world.attempt()[1].node for _ in range(3)] == ["a", "a", ""]
    assert "had too many pods starting" in world.attempt()[1].message
    world.clock.advance(5)
    world.see(make_pod("p0", node="a", phase="Running"))
    assert world.queue.counts()["active"] == 1
    assert world.attempt()[1].node == "a"


def test_an_idle_node_may_start_more() -> None:
    world = World({}, startup_limit=1, startup_limit_idle=5)
    world.cluster.node_changed(None, make_node("a"))
    world.report("a", 50.0, usage=(0.5, 0.1))
    for i in range(5):
        world.see(make_pod(f"p{i}"))
    assert [world.attempt()[1].node for _ in range(4)] == ["a", "a", "a", ""]


def test_missing_capacity_evicts_no_pod_by_default() -> None:
    for told in (False, True):
        world = World({"a": 0.0}, preempt_for_capacity=told)
        world.see(make_pod("low", node="a", phase="Running", priority=0))
        world.report("a", 0.0, counted=("uid-low",))
        world.see(make_pod("high", priority=100))
        answer = world.attempt()[1].preemption
        assert isinstance(answer, Nomination) == told
        assert [victim.pod.name for victim in answer.victims] == ["low"] if isinstance(answer, Nomination) else True


def test_missing_requests_do_evict() -> None:
    world = World({"a": 9.0})
    world.see(make_pod("low", node="a", phase="Running", cpu="8"))
    world.see(make_pod("high", priority=100, cpu="4"))
    decision = world.attempt()[1]
    assert isinstance(decision.preemption, Nomination)
    assert [victim.pod.name for victim in decision.preemption.victims] == ["low"]


def test_the_report_profile_has_nothing_but_capacity() -> None:
    world = World({"a": 2.0}, profiles={"carico": {}, "report": {}})
    profile = world.parts.profiles["report"]
    assert [plugin.name for plugin in profile.plugins] == ["PrioritySort", "Capacity"]
    capacity = profile.plugins[1]
    assert isinstance(capacity, Capacity)
    assert capacity.args.release == "pending"
    world.see(make_pod("p", schedulerName="report", nodeSelector={"no": "such"}))
    assert world.attempt()[1].node == "a"


def test_a_new_node_wakes_who_waited_for_one() -> None:
    world = World({"a": 5.0})
    world.see(make_pod("p", nodeSelector={"disk": "fast"}))
    assert not world.attempt()[1].node
    world.clock.advance(2)
    world.cluster.node_changed(None, make_node("b", labels={"disk": "fast"}))
    world.report("b", 1.0)
    assert world.attempt()[1].node == "b"
