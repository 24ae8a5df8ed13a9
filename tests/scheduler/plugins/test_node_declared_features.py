"""NodeDeclaredFeatures: filters and scores by the plugin's own rule; tests/conformance compares with kube-scheduler."""

from __future__ import annotations

from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World


def test_declared_features() -> None:
    world = World([make_node("a"), make_node("b")])
    needy = make_pod("p", spec={"hostNetwork": True, "hostUsers": False})
    assert world.judge(needy).message() == "0/2 nodes are available: 2 node(s) didn't match Pod's required features."
