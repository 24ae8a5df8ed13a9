"""NodeUnschedulable and TaintToleration: filters and scores by their own rules."""

from __future__ import annotations

from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World

TAINTED = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}

SOFT_TAINT = {"taints": [{"key": "old", "value": "", "effect": "PreferNoSchedule"}]}


def test_taints_repel_who_does_not_tolerate_them() -> None:
    world = World([make_node("plain"), make_node("tainted", spec=TAINTED)])
    assert world.feasible(make_pod("p")) == {"plain"}
    tolerant = make_pod("q", spec={"tolerations": [{"key": "gpu", "operator": "Equal", "value": "yes"}]})
    assert world.feasible(tolerant) == {"plain", "tainted"}


def test_cordoned_nodes_are_left_alone() -> None:
    world = World([make_node("open"), make_node("cordoned", spec={"unschedulable": True})])
    assert world.feasible(make_pod("p")) == {"open"}
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert world.feasible(make_pod("q", spec={"tolerations": [toleration]})) == {"open", "cordoned"}


def test_soft_taints_cost() -> None:
    world = World([make_node("a"), make_node("b", spec=SOFT_TAINT)])
    # the most disliked node gets 0
    assert world.scores(make_pod("p"), "TaintToleration") == {"a": 100, "b": 0}
    tolerant = make_pod("q", spec={"tolerations": [{"key": "old", "operator": "Exists"}]})
    assert world.scores(tolerant, "TaintToleration") == {}
