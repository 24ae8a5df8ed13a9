"""NodePorts: filters and scores by the plugin's own rule; tests/conformance compares with kube-scheduler."""

from __future__ import annotations

from carico.testing import make_node, make_pod
from harness.scheduler.worlds import World


def test_host_ports_conflict_by_address_and_protocol() -> None:
    def port(name: str, address: str = "", protocol: str = "TCP", node: str = "") -> object:
        ports = [{"containerPort": 80, "hostPort": 80, "hostIP": address, "protocol": protocol}]
        return make_pod(name, node=node, spec={"containers": [{"name": "c", "ports": ports}]})

    world = World([make_node("a"), make_node("b")], [port("r", "10.0.0.1", node="a")])  # type: ignore[list-item]
    assert world.feasible(port("p")) == {"b"}  # type: ignore[arg-type]
    assert world.feasible(port("q", "10.0.0.2")) == {"a", "b"}  # type: ignore[arg-type]
    assert world.feasible(port("s", protocol="UDP")) == {"a", "b"}  # type: ignore[arg-type]
