"""Explaining and simulating: both look, neither touches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from carico.errors import TooManyRequests
from carico.scheduler.assembly import Components, assemble
from carico.scheduler.cache.object_store import KINDS
from carico.scheduler.cache.rows import RowArray
from carico.scheduler.cache.template import PodInfo
from carico.scheduler.cycle.scheduling_cycle import decide
from carico.scheduler.framework.contract import Cycle, DecisionFigures, Explain, ExplainRows, Filter, Reuse, Verdict
from carico.scheduler.http.explain import SLICE, WAITING, Explainer, explain, judge
from carico.scheduler.http.explanation import Explanation, as_table
from carico.scheduler.http.manifest import as_stranger
from carico.scheduler.plugins import registry
from carico.settings import SchedulerSettings
from carico.testing import ManualClock, make_node, make_pod, make_report


def world(nodes: dict[str, float]) -> tuple[Components, ManualClock]:
    clock = ManualClock()
    parts = assemble(SchedulerSettings(validate=True), clock, None)
    for name, capacity in nodes.items():
        parts.cluster.node_changed(None, make_node(name))
        parts.ledger.report(make_report(name, capacity), 0.0)
    return parts, clock


def test_every_node_gets_a_verdict_with_numbers() -> None:
    parts, _ = world({"a": 5.0, "b": 0.4, "c": 3.0})
    parts.cluster.node_changed(None, make_node("d", spec={"unschedulable": True}))
    result = explain(parts, make_pod("p"), now=1.0)
    verdicts = {verdict.node: verdict for verdict in result.nodes}
    assert result.choice == ["a"]
    assert [name for name, verdict in verdicts.items() if verdict.feasible] == ["a", "c"]
    assert verdicts["b"].reasons == {"Capacity": ["had no free capacity"]}
    assert (verdicts["b"].free, verdicts["b"].report_age) == (0.4, 1.0)
    assert "node(s) were unschedulable" in verdicts["d"].reasons["NodeUnschedulable"]
    assert verdicts["a"].scores["Capacity"] == 500  # the freest node: 100 points, weight 5
    assert verdicts["c"].scores["Capacity"] == 300


def test_a_running_pod_is_explained_as_if_it_were_not_there_and_stays() -> None:
    parts, _ = world({"a": 5.0})
    pod = make_pod("p", node="a", phase="Running", cpu="8")
    parts.cluster.pod_changed(None, pod)
    assert explain(parts, pod, now=1.0).nodes[0].feasible
    assert parts.snapshot.unrequested("cpu")[0] == 0


def test_a_simulated_pod_cannot_take_the_place_of_one_that_runs() -> None:
    """The body of a request names the UID of a pod of the cluster, and another node."""
    parts, _ = world({"a": 5.0, "b": 5.0})
    parts.cluster.pod_changed(None, make_pod("p", node="a", phase="Running", cpu="8"))
    forged = as_stranger(make_pod("p", node="b", cpu="8"))
    assert [v.node for v in explain(parts, forged, now=1.0).nodes if v.feasible] == ["b"], "it does not count for free"
    where = {name: parts.snapshot.unrequested("cpu")[parts.snapshot.rows.number[name]] for name in ("a", "b")}
    assert where == {"a": 0, "b": 8000}


def test_a_running_pod_is_put_back_where_it_was_whatever_the_result() -> None:
    parts, _ = world({"a": 5.0, "b": 5.0})
    parts.cluster.pod_changed(None, make_pod("p", node="a", phase="Running", cpu="8"))
    explain(parts, make_pod("p", node="b", phase="Running", cpu="8"), now=1.0)
    assert parts.snapshot.unrequested("cpu")[parts.snapshot.rows.number["a"]] == 0


def test_a_running_pod_could_have_gone_elsewhere() -> None:
    """Its node is its own only since it was bound: that is no reason against the others."""
    parts, _ = world({"a": 5.0, "b": 3.0, "c": 0.4})
    pod = make_pod("p", node="a", phase="Running")
    parts.cluster.pod_changed(None, pod)
    result = explain(parts, pod, now=1.0)
    assert (result.bound_to, result.choice) == ("a", ["a"])
    assert [verdict.node for verdict in result.nodes if verdict.feasible] == ["a", "b"]
    assert result.nodes[2].reasons == {"Capacity": ["had no free capacity"]}


def test_the_table_shows_every_node_and_reason() -> None:
    parts, _ = world({"a": 5.0, "b": 0.4})
    table = as_table(explain(parts, make_pod("p", units=2), now=0.0))
    assert "default/p, profile carico, 2 units" in table
    assert "would go to a" in table
    assert "Capacity: had no free capacity" in table


def test_the_victims_of_a_preemption_are_named() -> None:
    parts, _ = world({"a": 9.0})
    parts.cluster.pod_changed(None, make_pod("low", node="a", cpu="8", phase="Running"))
    result = explain(parts, make_pod("high", priority=10, cpu="4"), now=0.0)
    assert result.preemption == {"node": "a", "victims": ["default/low"]}
    assert "default/low" in as_table(result)
    assert len(parts.snapshot.pods) == 1


def test_a_running_pods_own_reservation_is_free_to_it() -> None:
    parts, _ = world({"a": 1.0, "b": 0.5})
    pod = make_pod("p", node="a", phase="Running")
    parts.cluster.pod_changed(None, pod)
    verdicts = {verdict.node: verdict for verdict in explain(parts, pod, now=1.0).nodes}
    assert verdicts["a"].feasible
    assert (verdicts["a"].free, verdicts["b"].free) == (1.0, 0.5)
    assert explain(parts, make_pod("q"), now=1.0).choice == []  # to any other pod it is not
    assert parts.ledger.free[0] == 0


def test_a_running_pods_own_node_is_scored_without_it() -> None:
    parts, _ = world({"a": 5.0, "b": 4.0})
    pod = make_pod("p", node="a", phase="Running", units=2)
    parts.cluster.pod_changed(None, pod)
    result = explain(parts, pod, now=1.0)
    assert (result.choice, result.nodes[0].scores["Capacity"]) == (["a"], 500)


def test_a_pod_that_is_starting_does_not_keep_itself_off_its_node() -> None:
    parts, clock = world({"a": 100.0})
    pods = [make_pod(f"p{number}", node="a") for number in range(27)]  # as many as may start at this usage
    for pod in pods:
        parts.cluster.pod_changed(None, pod)
    assert not explain(parts, make_pod("q"), now=clock.monotonic()).nodes[0].feasible
    assert explain(parts, pods[0], now=clock.monotonic()).nodes[0].feasible
    assert parts.ledger.starting[0] == len(pods)


def test_the_pods_that_have_been_starting_longest_are_named() -> None:
    parts, clock = world({"a": 100.0})
    for number in range(33):
        clock.advance(1.0)
        parts.cluster.pod_changed(None, make_pod(f"p{number}", node="a"))
    clock.advance(100.0)
    parts.ledger.report(make_report("a", 100.0), clock.monotonic())
    (verdict,) = explain(parts, make_pod("q"), now=clock.monotonic()).nodes
    assert verdict.reasons == {"Capacity": ["had too many pods starting"]}
    oldest = ["default/p0 for 132 s", "default/p1 for 131 s", "default/p2 for 130 s"]
    assert verdict.details == {"Capacity": oldest}
    assert "had too many pods starting (default/p0 for 132 s, " in as_table(explain(parts, make_pod("q"), now=133.0))


class Rack(Filter, Explain, ExplainRows):
    """A plugin of another package that explains itself with words and numbers."""

    name, interests, reuse = "Rack", (), Reuse.NODE

    def filter(self, cycle: Cycle, rows: RowArray | None) -> Verdict:
        asked = cycle.snapshot.all_rows() if rows is None else rows
        return Verdict.refuse(np.array([cycle.snapshot.name(int(row)) == "b" for row in asked]), "was too warm")

    def explain_need(self, _: PodInfo, *, exact: bool) -> str:
        return "needs 300 W" if exact else "needs some W"

    def explain_decision(self, _: Cycle, row: int | None) -> DecisionFigures:
        return DecisionFigures(300, None if row is None else 450.0, " (by the rack's own meter)")

    def explain_rows(self, cycle: Cycle, rows: RowArray) -> Callable[[int], list[str]]:
        names = [cycle.snapshot.name(int(row)) for row in rows]
        return lambda index: [f"{names[index]} has 31.5 °C"]


def test_any_plugin_can_explain_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "Rack", lambda _: Rack())
    profiles = {"carico": {"enable": ["Rack"], "disable": ["Capacity"]}}
    parts = assemble(SchedulerSettings(profiles=profiles), ManualClock(), None)
    for name in "ab":
        parts.cluster.node_changed(None, make_node(name))
    result = explain(parts, make_pod("p"), now=1.0)
    assert result.needs == "needs 300 W"
    assert [verdict.details for verdict in result.nodes] == [{}, {"Rack": ["b has 31.5 °C"]}]
    assert "Rack: was too warm (b has 31.5 °C)" in as_table(result)
    profile, rng = parts.profiles["carico"], np.random.default_rng(1)
    decision = decide(profile, parts.cluster, PodInfo(make_pod("p")), rng)
    assert (decision.node, decision.figures) == ("a", (300, 450.0, " (by the rack's own meter)", ""))
    refused = decide(profile, parts.cluster, PodInfo(make_pod("q", nodeSelector={"kubernetes.io/hostname": "b"})), rng)
    assert refused.figures == (300, None, " (by the rack's own meter)", "")


def test_evicting_is_thought_through_for_a_bounded_number_of_nodes() -> None:
    parts, _ = world({f"n{number}": 9.0 for number in range(80)})
    for number in range(80):
        parts.cluster.pod_changed(None, make_pod(f"low{number}", node=f"n{number}", cpu="8", phase="Running"))
    result = explain(parts, make_pod("high", priority=10, cpu="4"), now=0.0)
    assert result.preemption["victims"]
    assert result.notes == ["evicting pods was simulated for 50 of 80 nodes"]


def test_a_costly_plugin_does_not_run_for_rejected_nodes() -> None:
    """Volume limits go node by node: a cordoned node is out of the question without them."""
    parts, _ = world({"a": 5.0, "b": 5.0})
    parts.cluster.node_changed(None, make_node("c", spec={"unschedulable": True}))
    driver = {"name": "csi.example.com", "nodeID": "x", "allocatable": {"count": 0}}
    for node in ("a", "c"):
        put(parts, "CSINode", metadata={"name": node}, spec={"drivers": [driver]})
    put(parts, "StorageClass", metadata={"name": "fast"}, provisioner="csi.example.com", volumeBindingMode="Immediate")
    source = {"csi": {"driver": "csi.example.com", "volumeHandle": "h"}}
    put(parts, "PersistentVolume", metadata={"name": "v"}, spec=source)
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = {"volumeName": "v", "storageClassName": "fast"}
    put(
        parts, "PersistentVolumeClaim", metadata={"name": "c", "namespace": "default", "annotations": bound}, spec=claim
    )
    pod = make_pod("p", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}])
    result = explain(parts, pod, now=0.0)
    reasons = {verdict.node: set(verdict.reasons) for verdict in result.nodes}
    assert reasons == {"a": {"NodeVolumeLimits"}, "b": set(), "c": {"NodeUnschedulable", "Capacity"}}
    assert result.notes == ["NodeVolumeLimits did not run for nodes that plugins before it had rejected"]


def put(parts: Components, kind: str, **plain: Any) -> None:
    parts.cluster.thing_changed(None, msgspec.convert(plain, KINDS[kind]))


def test_the_loop_runs_while_thousands_of_nodes_are_explained() -> None:
    parts, clock = world({f"n{number}": 9.0 for number in range(4 * SLICE)})
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> int:
        working = asyncio.create_task(others())
        await asyncio.sleep(0)
        before = turns
        result = await Explainer(parts, clock).explain(make_pod("p"))
        assert len(result.nodes) == 4 * SLICE
        working.cancel()
        return turns - before

    assert asyncio.run(run()) >= 4


def test_one_explanation_at_a_time_and_not_too_many_in_a_row() -> None:
    parts, clock = world({f"n{number}": 9.0 for number in range(2 * SLICE)})

    async def run() -> list[object]:
        explainer = Explainer(parts, clock)
        return await asyncio.gather(*(explainer.explain(make_pod()) for _ in range(20)), return_exceptions=True)

    answers = asyncio.run(run())
    assert sum(isinstance(answer, TooManyRequests) for answer in answers) == 20 - WAITING - 1
    assert all(len(answer.nodes) == 2 * SLICE for answer in answers if isinstance(answer, Explanation))


def test_a_world_that_changes_between_two_slices_does_not_change_the_answer() -> None:
    names = [f"n{number:03d}" for number in range(SLICE + 1)]
    parts, _ = world(dict.fromkeys(names, 9.0))
    judged = judge(parts, make_pod("p"), now=0.0)
    slices = judged.slices()
    next(slices)
    parts.cluster.node_changed(make_node(names[-1]), None)
    parts.cluster.node_changed(None, make_node("other", spec={"unschedulable": True}))  # takes over the row
    explain(parts, make_pod("p"), now=0.0)  # another cycle of the same template
    next(slices)
    last = judged.result.nodes[-1]
    assert (last.node, last.feasible, last.free) == (names[-1], True, 9.0)
