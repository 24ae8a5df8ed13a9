"""Who has to go, and where: kube-scheduler's order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from carico.kube.objects import Pod, PodDisruptionBudget
from carico.scheduler.assembly import assemble
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.scheduler.framework.contract import WAIT, Cycle, Nomination, PostFilterAction, Wait
from carico.scheduler.plugins import default_preemption
from carico.scheduler.plugins.default_preemption import SURE_CANDIDATES, DefaultPreemption
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod, make_report
from harness.scheduler.worlds import World


def running(name: str, node: str, priority: int, cpu: str = "1", started: str = "", **more: Any) -> Pod:
    status = {"startTime": started or "2026-01-01T00:00:00Z"}
    return make_pod(name, node=node, priority=priority, requests={"cpu": cpu}, status=status, **more)


def answer(world: World, pod: Pod) -> Nomination | Wait | None:
    cycle = Cycle(world.snapshot.templates.info(pod), world.snapshot)
    found = world.filters.run(cycle)
    assert not len(found.rows)
    return one(DefaultPreemption(lambda: 0.0, seed=1).post_filter(cycle, found))


def one(actions: Sequence[PostFilterAction]) -> Nomination | Wait | None:
    """The only action, if there is one."""
    assert len(actions) <= 1
    action = actions[0] if actions else None
    assert action is None or isinstance(action, Nomination | Wait)
    return action


def preempt(world: World, pod: Pod) -> Nomination | None:
    found = answer(world, pod)
    assert not isinstance(found, Wait)
    return found


def victims(nomination: Nomination | None) -> list[str]:
    assert nomination is not None
    return [pod.pod.name for pod in nomination.victims]


def urgent(cpu: str = "1", **more: Any) -> Pod:
    return make_pod("urgent", priority=10, requests={"cpu": cpu}, **more)


def test_no_more_than_needed_and_the_least_important() -> None:
    pods = [running("low", "a", 1), running("mid", "a", 5), running("peer", "a", 10)]
    world = World([make_node("a", cpu="3")], pods)
    assert victims(preempt(world, urgent("1"))) == ["low"]
    assert victims(preempt(world, urgent("2"))) == ["mid", "low"]
    assert preempt(world, urgent("3")) is None  # its peer stays


def test_among_equals_the_younger_goes() -> None:
    pods = [
        running("old", "a", 1, started="2026-01-01T00:00:00Z"),
        running("young", "a", 1, started="2026-01-01T01:00:00Z"),
    ]
    assert victims(preempt(World([make_node("a", cpu="2")], pods), urgent())) == ["young"]


def test_the_node_whose_victim_matters_least() -> None:
    pods = [running("high", "a", 5), running("low", "b", 1)]
    nomination = preempt(World([make_node("a", cpu="1"), make_node("b", cpu="1")], pods), urgent())
    assert nomination is not None
    assert (nomination.node, victims(nomination)) == ("b", ["low"])


def test_fewer_victims_then_the_later_start() -> None:
    pods = [running("a1", "a", 1, "500m"), running("a2", "a", 1, "500m"), running("b1", "b", 1)]
    nodes = [make_node("a", cpu="1"), make_node("b", cpu="1"), make_node("c", cpu="1")]
    nomination = preempt(World(nodes[:2], pods), urgent())
    assert nomination is not None
    assert nomination.node == "b"
    pods.append(running("c1", "c", 1, started="2026-01-02T00:00:00Z"))
    nomination = preempt(World(nodes, pods), urgent())
    assert nomination is not None
    assert nomination.node == "c"


def budget(allowed: int, **status: Any) -> PodDisruptionBudget:
    plain = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": allowed, **status},
    }
    return msgspec.convert(plain, PodDisruptionBudget)


def test_budgets_are_spared_first_but_not_for_ever() -> None:
    pods = [running("kept", "a", 1, labels={"app": "kept"}), running("free", "a", 5)]
    node = make_node("a", cpu="2")
    # without a budget the pod of lower priority would go
    assert victims(preempt(World([node], pods), urgent())) == ["kept"]
    assert victims(preempt(World([node], pods, [budget(0)]), urgent())) == ["free"]
    assert victims(preempt(World([node], pods, [budget(1)]), urgent())) == ["kept"]
    assert victims(preempt(World([node], pods, [budget(0)]), urgent("2"))) == ["free", "kept"]
    # an eviction that was granted already is not counted again
    granted = budget(0, disruptedPods={"kept": "2026-01-01T00:00:00Z"})
    assert victims(preempt(World([node], pods, [granted]), urgent())) == ["kept"]


def test_a_node_without_violations_wins() -> None:
    pods = [running("kept", "a", 1, labels={"app": "kept"}), running("free", "b", 9)]
    nomination = preempt(World([make_node("a", cpu="1"), make_node("b", cpu="1")], pods, [budget(0)]), urgent())
    assert nomination is not None
    assert nomination.node == "b"


def test_evicting_does_not_help_everywhere() -> None:
    world = World([make_node("a", cpu="1", spec={"unschedulable": True})], [running("low", "a", 1)])
    assert preempt(world, urgent()) is None
    small = World([make_node("a", cpu="1")], [running("low", "a", 1)])
    assert preempt(small, urgent("2")) is None


def test_never_means_never() -> None:
    world = World([make_node("a", cpu="1")], [running("low", "a", 1)])
    assert preempt(world, urgent(spec={"preemptionPolicy": "Never", "containers": [_one_core()]})) is None


def _one_core() -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": "1"}}}


def evicted(pod: Pod) -> Pod:
    plain = msgspec.to_builtins(pod)
    plain["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    plain["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    return msgspec.convert(plain, Pod)


def test_it_waits_for_victims_that_a_leader_before_has_evicted() -> None:
    world = World(
        [make_node("a", cpu="1"), make_node("b", cpu="1")], [evicted(running("low", "a", 1)), running("o", "b", 1)]
    )
    world.snapshot.nominate(world.snapshot.templates.info(urgent()), "a")
    assert answer(world, urgent()) is WAIT


def test_it_waits_for_its_own_victims_before_any_watch_shows_their_eviction() -> None:
    low = running("low", "a", 1)
    world = World([make_node("a", cpu="1"), make_node("b", cpu="1")], [low, running("o", "b", 1)])
    world.snapshot.nominate(world.snapshot.templates.info(urgent()), "a", [world.snapshot.templates.info(low)])
    assert answer(world, urgent()) is WAIT


def test_it_evicts_again_when_its_node_would_not_hold_it_any_more() -> None:
    low = running("low", "a", 1)
    world = World([make_node("a", cpu="1"), make_node("b", cpu="1")], [low, running("o", "b", 1)])
    world.snapshot.nominate(world.snapshot.templates.info(urgent()), "a", [world.snapshot.templates.info(low)])
    world.snapshot.set_node(make_node("a", cpu="1", spec={"unschedulable": True}))
    assert victims(preempt(world, urgent())) == ["o"]


def test_anti_affinity_can_be_resolved() -> None:
    terms = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}]
    spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    world = World([make_node("a")], [running("low", "a", 1, labels={"app": "x"})])
    assert victims(preempt(world, urgent(spec=spec))) == ["low"]


def test_room_that_was_made_is_kept_for_its_pod() -> None:
    world = World([make_node("a", cpu="1"), make_node("b", cpu="1")])
    world.snapshot.nominate(world.snapshot.templates.info(urgent()), "a")
    assert world.feasible(make_pod("later", requests={"cpu": "1"})) == {"b"}
    assert world.feasible(make_pod("higher", priority=20, requests={"cpu": "1"})) == {"a", "b"}
    assert world.feasible(urgent()) == {"a", "b"}
    refused = world.judge(make_pod("both", requests={"cpu": "2"}))
    assert refused.refusing == {"NodeResourcesFit"}


def candidates(world: World, pod: Pod, *, seconds_each: float) -> list[int]:
    """The violations of each candidate that is found while the CPU takes so long for each of them."""
    cycle, spent = Cycle(world.snapshot.templates.info(pod), world.snapshot), itertools.count()
    plugin = DefaultPreemption(lambda: 0.0, seed=1, spent=lambda: next(spent) * seconds_each)
    found = plugin._candidates(cycle, world.filters.run(cycle), world.snapshot.all_rows())
    return [candidate.violations for candidate in found]


def test_a_search_that_takes_long_is_content_with_fewer_candidates() -> None:
    nodes = [make_node(f"n{i}", cpu="1") for i in range(40)]
    world = World(nodes, [running(f"p{i}", f"n{i}", 1) for i in range(40)])
    assert len(candidates(world, urgent(), seconds_each=0.0)) == 40
    assert len(candidates(world, urgent(), seconds_each=default_preemption.SEARCH_LIMIT)) == SURE_CANDIDATES


def test_a_search_that_takes_long_violates_no_budget_for_that() -> None:
    nodes = [make_node(f"n{i}", cpu="1") for i in range(40)]
    pods = [running(f"p{i}", f"n{i}", 1, labels={"app": "kept"} if i < 30 else {}) for i in range(40)]
    found = candidates(World(nodes, pods, [budget(0)]), urgent(), seconds_each=1.0)
    assert found == [1] * 30 + [0]


def test_a_search_leaves_nothing_behind_that_later_filters_would_recompute() -> None:
    """Rows that were tried and are as before must not be recomputed for each further row: that was quadratic."""
    parts = assemble(SchedulerSettings(), ManualClock(), None)
    for name in ("a", "b", "c"):
        parts.cluster.node_changed(None, make_node(name, cpu="2"))
        parts.cluster.pod_changed(None, make_pod(f"low-{name}", node=name, cpu="2", units=0.3))
        parts.cluster.apply_report(make_report(name, 5.0))
    pod = PodInfo(make_pod("urgent", cpu="1", priority=10))
    decision = decide(parts.profiles["carico"], parts.cluster, pod, np.random.default_rng(1))
    assert isinstance(decision.preemption, Nomination)
    assert decision.cycle.state["Capacity"] == {}


def test_a_node_that_requests_alone_rule_out_is_not_tried_pod_by_pod() -> None:
    """Most nodes of a full cluster: even without all pods of lower priority the requests do not fit."""
    pods = [running("low", "a", 1), running("peer", "a", 10, "2")]
    world = World([make_node("a", cpu="3")], pods)
    cycle = Cycle(world.snapshot.templates.info(urgent("2")), world.snapshot)
    found = world.filters.run(cycle)
    world.filters.pretending = None  # type: ignore[method-assign, assignment]
    assert DefaultPreemption(lambda: 0.0, seed=1).post_filter(cycle, found) == ()
