"""NodeAffinity: filters and scores by the plugin's own rule; tests/conformance compares with kube-scheduler."""

from __future__ import annotations

import pytest

from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World


def required(kind: str, *terms: object) -> dict[str, object]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "cores", "operator": "Gt", "values": ["4"]}, {"large"}),
        ({"key": "cores", "operator": "Lt", "values": ["8"]}, {"small"}),
        ({"key": "cores", "operator": "In", "values": ["4", "16"]}, {"small", "large"}),
        ({"key": "cores", "operator": "NotIn", "values": ["4"]}, {"large", "odd", "none"}),
        ({"key": "cores", "operator": "Exists"}, {"small", "large", "odd"}),
        ({"key": "cores", "operator": "DoesNotExist"}, {"none"}),
        ({"key": "kubernetes.io/hostname", "operator": "In", "values": [*"abcdef", "odd"]}, {"odd"}),
    ],
)
def test_node_affinity_knows_every_operator(expression: object, expected: set[str]) -> None:
    cores = {"small": {"cores": "4"}, "large": {"cores": "16"}, "odd": {"cores": "many"}, "none": {}}
    world = World([make_node(name, labels=labels) for name, labels in cores.items()])
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert world.feasible(make_pod("p", spec={"affinity": affinity})) == expected


def test_node_affinity_by_name_and_the_empty_term() -> None:
    world = World([make_node("a"), make_node("b")])

    def feasible(*terms: object) -> set[str]:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return world.feasible(make_pod(f"p{len(terms)}", spec={"affinity": {"nodeAffinity": required}}))

    not_a = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}
    assert feasible(not_a) == {"b"}
    assert feasible({}) == set()
    assert feasible({}, not_a) == {"b"}


def test_preferred_node_affinity_adds_weights() -> None:
    def preference(weight: int, key: str) -> object:
        return {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}

    nodes = [make_node("none"), make_node("one", labels={"x": ""}), make_node("both", labels={"x": "", "y": ""})]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [preference(10, "x"), preference(30, "y")]}
    pod = make_pod("p", spec={"affinity": {"nodeAffinity": preferred}})
    # 0, 10 and 40 of at most 40
    assert World(nodes).scores(pod, "NodeAffinity") == {"none": 0, "one": 25, "both": 100}
