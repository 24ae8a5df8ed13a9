"""NodeResourcesFit: filters and scores by the plugin's own rule; tests/conformance compares with kube-scheduler."""

from __future__ import annotations

from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World


def test_requests_count_what_is_there_and_say_what_is_lacking() -> None:
    world = World([make_node("a", cpu="2"), make_node("b", cpu="1")], [make_pod("r", node="a", cpu="1500m")])
    assert world.feasible(make_pod("p", requests={"cpu": "1"})) == {"b"}
    found = world.judge(make_pod("q", requests={"cpu": "2"}))
    assert found.message() == "0/2 nodes are available: 2 Insufficient cpu."
    # `a` could be emptied, `b` is too small whatever is on it
    assert [world.snapshot.name(int(row)) for row in found.resolvable().nonzero()[0]] == ["a"]


def test_a_node_takes_no_more_pods_than_it_says() -> None:
    world = World([make_node("a", pods="1")], [make_pod("r", node="a")])
    assert world.judge(make_pod("p")).message() == "0/1 nodes are available: 1 Too many pods."


def test_extended_resources() -> None:
    world = World([make_node("a"), make_node("b", **{"example.com/gpu": "2"})])
    assert world.feasible(make_pod("p", requests={"example.com/gpu": "1"})) == {"b"}


def test_more_resources_than_a_verdict_has_bits() -> None:
    """40 kinds of devices: each that a node lacks keeps the pod off, and is resolvable or not by its own measure."""
    wanted = {f"example.com/r{i:02d}": "2" for i in range(40)}
    enough, lacks_last = dict.fromkeys(wanted, "4"), dict.fromkeys(list(wanted)[:-1], "4")
    nodes = [
        make_node("enough", **enough),
        make_node("lacks", **lacks_last),
        make_node("used", **enough),
        make_node("bare"),
    ]
    last = {"example.com/r39": "3"}
    world = World(nodes, [make_pod("user", requests=last, node="used")])
    pod = make_pod("p", requests=wanted | {"cpu": "100m"})
    found = world.judge(pod)
    names = {name: world.snapshot.rows.number[name] for name in ("enough", "lacks", "used", "bare")}
    assert {name for name, row in names.items() if found.mask[row]} == {"enough"}
    assert {name for name, row in names.items() if found.resolvable()[row]} == {"used"}
    shared = "Insufficient example.com/r29 or another of 11 resources"
    assert [reason.text for reason in found.why(names["lacks"])["NodeResourcesFit"]] == [shared]
    assert len(found.why(names["bare"])["NodeResourcesFit"]) == 31 - 1  # all but cpu
    world.add(make_pod("more", requests=last, node="enough"))  # the kept answer is corrected in the same bits
    assert world.feasible(pod) == set()
    assert f"4 {shared}" in world.judge(pod).message()
