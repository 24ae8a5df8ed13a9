"""Explaining, simulating, the extender and the ring of decisions: all of them look, none of them touches."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest
from scheduling import make_node, make_pod, make_report

from carico.errors import UsageError
from carico.health import Request
from carico.scheduler.ask import read_pod
from carico.scheduler.assembly import Parts, assemble
from carico.scheduler.decisions import Record, Ring, load, replay
from carico.scheduler.explain import as_table, explain
from carico.scheduler.extender import HOLD, Extender
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


def ask(extender: Extender, verb: str, pod: Any, names: list[str]) -> Any:
    body = msgspec.json.encode({"Pod": msgspec.to_builtins(pod), "NodeNames": names})
    page = getattr(extender, verb)(Request("POST", {}, body))
    assert page.status == HTTPStatus.OK
    return json.loads(page.body)


def test_the_extender_filters_and_scores_by_the_ledger() -> None:
    parts, clock = world({"a": 5.0, "b": 0.4, "c": 2.5})
    extender = Extender(parts, clock.monotonic)
    answer = ask(extender, "filter", make_pod("p"), ["a", "b", "c", "unknown"])
    assert answer["NodeNames"] == ["a", "c"]
    assert answer["FailedAndUnresolvableNodes"] == {"b": "had no free capacity", "unknown": "had no capacity report"}
    scores = {entry["Host"]: entry["Score"] for entry in ask(extender, "prioritize", make_pod("p"), ["a", "c"])}
    assert scores == {"a": 10, "c": 5}


def test_the_extender_charges_the_likely_node_until_the_watch_knows_better() -> None:
    parts, clock = world({"a": 1.5, "b": 1.2})
    extender = Extender(parts, clock.monotonic)
    ask(extender, "prioritize", make_pod("p"), ["a", "b"])
    assert ask(extender, "filter", make_pod("q"), ["a", "b"])["NodeNames"] == ["b"]
    clock.advance(HOLD)
    assert ask(extender, "filter", make_pod("q"), ["a", "b"])["NodeNames"] == ["a", "b"]
    ask(extender, "prioritize", make_pod("r"), ["a", "b"])
    parts.cluster.pod_changed(None, make_pod("r", node="b"))
    clock.advance(HOLD)
    assert ask(extender, "filter", make_pod("s"), ["a", "b"])["NodeNames"] == ["a"]


def test_nodes_that_travel_whole_come_back_whole() -> None:
    parts, clock = world({"a": 5.0, "b": 0.4})
    nodes = [{"metadata": {"name": name}, "secret": name} for name in ("a", "b")]
    body = msgspec.json.encode({"Pod": msgspec.to_builtins(make_pod("p")), "Nodes": {"items": nodes}})
    answer = json.loads(Extender(parts, clock.monotonic).filter(Request("POST", {}, body)).body)
    assert answer["Nodes"]["items"] == [nodes[0]]


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"Pod": 5}'])
def test_nonsense_is_refused(body: bytes) -> None:
    parts, clock = world({"a": 5.0})
    extender = Extender(parts, clock.monotonic)
    assert extender.filter(Request("POST", {}, body)).status == HTTPStatus.BAD_REQUEST
    assert extender.prioritize(Request("POST", {}, body)).status == HTTPStatus.BAD_REQUEST


def record(pod: str, node: str, free: float = 5.0, result: str = "scheduled") -> Record:
    return Record(0.0, pod, f"uid-{pod}", "carico", 1, node, result, free_before=free)


def test_the_ring_is_bounded_dumped_and_read_back() -> None:
    ring = Ring(3)
    for i in range(5):
        ring.add(record(f"p{i}", "a"))
    assert [each.pod for each in load(ring.dump())] == ["p2", "p3", "p4"]
    assert len(ring.of_pod("p3")) == 1


def test_a_replay_finds_what_must_not_be() -> None:
    assert replay([record("p", "a"), record("p", "a", result="failed"), record("p", "b")]) == []
    assert replay([record("p", "a"), record("p", "b")]) == ["p was promised a and then b"]
    assert replay([record("p", "a", free=0.4)]) == ["p went to a, which had only 0.4 pods free"]
