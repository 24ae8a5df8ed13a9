"""Explaining and simulating: both look, neither touches."""

from __future__ import annotations

from pathlib import Path

import pytest
from scheduling import make_node, make_pod, make_report

from carico.errors import UsageError
from carico.scheduler.assembly import Parts, assemble
from carico.scheduler.explain import explain
from carico.scheduler.explanation import as_table
from carico.settings import SchedulerSettings
from carico.testing import ManualClock


def world(nodes: dict[str, float]) -> tuple[Parts, ManualClock]:
    clock = ManualClock()
    parts = assemble(SchedulerSettings(validate=True), clock, None)
    for name, capacity in nodes.items():
        parts.cluster.node_changed(None, make_node(name))
        parts.ledger.report(make_report(name, capacity), 0.0)
    return parts, clock


def test_every_node_gets_a_verdict_with_numbers() -> None:
    parts, _ = world({"a": 5.0, "b": 0.4, "c": 3.0})
    parts.cluster.node_changed(None, make_node("d", unschedulable=True))
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
    assert parts.snapshot.free("cpu")[0] == 0


def test_the_table_says_it_all() -> None:
    parts, _ = world({"a": 5.0, "b": 0.4})
    table = as_table(explain(parts, make_pod("p", units=2), now=0.0))
    assert "default/p, profile carico, 2 unit(s)" in table
    assert "would go to a" in table
    assert "Capacity: had no free capacity" in table


def test_who_would_have_to_go_is_said() -> None:
    parts, _ = world({"a": 9.0})
    parts.cluster.pod_changed(None, make_pod("low", node="a", cpu="8", phase="Running"))
    result = explain(parts, make_pod("high", priority=10, cpu="4"), now=0.0)
    assert result.preemption == {"node": "a", "victims": ["default/low"]}
    assert "default/low" in as_table(result)
    assert len(parts.snapshot.pods) == 1


def test_pods_are_read_from_yaml(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod\nmetadata: {name: x}\nspec:\n  containers: [{name: c, image: i}]\n")
    pod = read_pod(str(file))
    assert (pod.key, pod.spec.containers[0].image) == ("default/x", "i")
    file.write_text("kind: Deployment\n")
    with pytest.raises(UsageError, match="is not a Pod but Deployment"):
        read_pod(str(file))
    file.write_text("metadata: 5\n")
    with pytest.raises(UsageError):
        read_pod(str(file))
